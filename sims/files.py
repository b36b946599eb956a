"""Files as they come: packed or not, with a byte order mark or not, rows in lines or in one array."""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sims.errors import SimError

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


def read_text(path: Path) -> str:
    """Read UTF-8 text, gzipped or not, without a byte order mark. SimError for what cannot be read."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz" or content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if (kind := next((kind for start, kind in _PACKED.items() if content.startswith(start)), None)) is not None:
            raise SimError(f"{path} cannot be read: it is packed with {kind}; unpack it, or use gzip")
        if content[:2] in _UTF_16:
            raise SimError(f"{path} cannot be read: it is UTF-16; save it as UTF-8")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SimError(f"{path} cannot be read: {error}") from None


def json_rows(text: str) -> Iterator[Any]:
    """Decode a JSON array, or a row a line; what is no JSON is given as NOT_JSON.

    Lines end at a line feed alone: other characters that Unicode takes for ends of lines are text.
    """
    decode = msgspec.json.Decoder().decode
    if text.lstrip().startswith("["):
        try:
            rows = decode(text)
        except msgspec.DecodeError:
            pass  # an array that is not whole: none of its lines is a row
        else:
            yield from rows
            return
    for line in io.StringIO(text, newline="\n"):
        if not line.isspace():
            try:
                yield decode(line)
            except msgspec.DecodeError:
                yield NOT_JSON


class _NotJson:
    """Stands for a line that is no JSON."""


NOT_JSON = _NotJson()
