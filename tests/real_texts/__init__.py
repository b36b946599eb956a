"""Texts of every way to draft, on a real model: `python -m tests.real_texts [WORD...]`; a few of them are tests."""
