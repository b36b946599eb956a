"""Vectors computed by `tests.reference`, one JSON list per file, one case per line; null in a row is -inf."""
