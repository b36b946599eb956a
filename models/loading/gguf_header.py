"""What a GGUF file says before its data: metadata by key, and where each tensor lies.

    "GGUF" | version | num_tensors | num_pairs | pairs: key, type, value | tensors: name, shape, format, offset | data

Format: ggml, docs/gguf.md. A vocabulary is a hundred thousand strings, so they are cut out of the bytes directly.
"""

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

from models.loading.files import refuse_pointer

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_VERSIONS = (2, 3)


class TensorPlace(NamedTuple):
    """Where a tensor lies: its shape with the outermost dimension first, its format, its offset in the file."""

    shape: tuple[int, ...]
    format: int
    offset: int


class Header(NamedTuple):
    """Metadata by key and tensors by name."""

    fields: dict[str, Any]
    tensors: dict[str, TensorPlace]


def read_header(path: Path) -> Header:
    """Read a file's header. ValueError, naming the file, where it is none or broke off."""
    refuse_pointer(path)
    with path.open("rb") as file:
        if (start := file.read(4)) != b"GGUF":
            raise ValueError(f"{path} is no GGUF file: it begins with {start!r}")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            try:
                return _Cursor(memory, 4).header()
            except (struct.error, IndexError, UnicodeDecodeError, _OutOfRangeError) as error:
                raise ValueError(f"{path} has {len(memory)} bytes, and its header is not whole: {error}") from None
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None


class _OutOfRangeError(Exception):
    """A length that points past the end of the file."""


class _Cursor:
    """A place in the bytes, moved on by each reading."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory = memory
        self._at = at

    def header(self) -> Header:
        version = self._scalar("<I")
        if version not in _VERSIONS:
            raise ValueError(f"GGUF version {version}; can read {', '.join(map(str, _VERSIONS))}, little-endian")
        num_tensors, num_pairs = self._scalar("<Q"), self._scalar("<Q")
        fields: dict[str, Any] = {}
        for _ in range(num_pairs):
            key = self._string()
            fields[key] = self._value(self._scalar("<I"))
        places = {}
        for _ in range(num_tensors):
            name = self._string()
            shape = tuple(self._scalar("<Q") for _ in range(self._scalar("<I")))[::-1]
            places[name] = TensorPlace(shape, self._scalar("<I"), self._scalar("<Q"))
        alignment = fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment}: a positive integer")
        start = -(-self._at // alignment) * alignment
        return Header(fields, {name: place._replace(offset=start + place.offset) for name, place in places.items()})

    def _scalar(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self._memory, self._at)
        self._at += struct.calcsize(layout)
        return value

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        memory, at, length = self._memory, self._at, _LENGTH.unpack_from
        found = []
        for _ in range(count):
            first = at + 8
            at = first + length(memory, at)[0]
            if at > len(memory):
                raise _OutOfRangeError(f"a string at {first} ends at {at}")
            found.append(memory[first:at].decode())
        self._at = at
        return found

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(_layout(kind))
        kind, count = self._scalar("<I"), self._scalar("<Q")
        if kind == _STRING:
            return self._strings(count)
        if kind == _ARRAY:
            return [self._value(_ARRAY) for _ in range(count)]
        layout = f"<{count}{_layout(kind)[1]}"
        if self._at + struct.calcsize(layout) > len(self._memory):
            raise _OutOfRangeError(f"an array of {count} at {self._at}")
        values = list(struct.unpack_from(layout, self._memory, self._at))
        self._at += struct.calcsize(layout)
        return values


def _layout(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"metadata of type {kind}: not in the format")
    return _SCALARS[kind]
