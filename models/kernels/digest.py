"""A number that changes with the source of the compiled code."""

import hashlib
from pathlib import Path

_FILES = sorted(Path(__file__).parent.glob("*.py"))

SOURCES = int.from_bytes(hashlib.sha256(b"".join(file.read_bytes() for file in _FILES)).digest()[:7], "big")
"""Part of the key of compiled code on disk: a file's date and size do not always tell versions apart."""
