"""Files as they come: packed or not, with a byte order mark or not, rows in lines or in one array."""

import contextlib
import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import msgspec

from sims.errors import SimError

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open UTF-8 text, gzipped or not, without a byte order mark. SimError for what cannot be read, then or later.

    Lines end at a line feed alone: other characters that Unicode takes for ends of lines are text.
    """
    try:
        with path.open("rb") as file:
            is_gzip = path.suffix == ".gz" or file.peek(2)[:2] == b"\x1f\x8b"
            content = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file
            start = content.read(8)
            content.seek(0)
            if (kind := next((kind for mark, kind in _PACKED.items() if start.startswith(mark)), None)) is not None:
                raise SimError(f"{path} cannot be read: it is packed with {kind}; unpack it, or use gzip")
            if start[:2] in _UTF_16:
                raise SimError(f"{path} cannot be read: it is UTF-16; save it as UTF-8")
            yield io.TextIOWrapper(content, "utf-8-sig", newline="\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SimError(f"{path} cannot be read: {error}") from None


def read_text(path: Path) -> str:
    """Read the whole of a text, as `open_text` opens it."""
    with open_text(path) as file:
        return file.read()


def json_rows(lines: Iterable[str]) -> Iterator[Any]:
    """Decode a row a line as they are read, or a JSON array as a whole; what is no JSON is given as NOT_JSON."""
    decode = msgspec.json.Decoder().decode
    lines = (line for line in lines if not line.isspace())
    first = next(lines, None)
    if first is None:
        return
    lines = itertools.chain((first,), lines)
    if first.lstrip().startswith("["):
        text = "".join(lines)
        try:
            yield from decode(text)
            return
        except msgspec.DecodeError:
            lines = io.StringIO(text, newline="\n")  # an array that is not whole: none of its lines is a row
    for line in lines:
        try:
            yield decode(line)
        except msgspec.DecodeError:
            yield NOT_JSON


class _NotJson:
    """Stands for a line that is no JSON."""


NOT_JSON = _NotJson()
