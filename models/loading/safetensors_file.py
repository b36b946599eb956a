"""The tensors of one safetensors file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.loading.assembly import Stored, widen_bf16
from models.loading.files import refuse_pointer
from models.weights import Matrix

FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
INTEGERS = {"I64": "<i8", "I32": "<i4", "I8": "<i1", "BOOL": "|b1"}
_CAN_BE_COMPUTED = ".rotary_emb.inv_freq"  # older files keep a table of RoPE's frequencies


def read_tensors(file: Path, dtypes: Mapping[str, str] = FLOATS) -> dict[str, Stored]:
    """Map the tensors of one file: eight bytes of header length, a JSON header, then the data it points into.

    Raises ValueError, naming the file, for one that is not whole and for a number format that is not in `dtypes`.
    """
    memory, start, header = _open(file)
    size = len(memory)
    header.pop("__metadata__", None)
    try:
        places = {
            name: (entry["dtype"], tuple(entry["shape"]), *(start + offset for offset in entry["data_offsets"]))
            for name, entry in header.items()
        }
    except (TypeError, KeyError) as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from None
    tensors = {}
    for name, (dtype, shape, first, end) in places.items():
        if name.endswith(_CAN_BE_COMPUTED):
            continue
        if dtype not in dtypes:
            raise ValueError(f"{file}: {name} is {dtype}; can read {', '.join(dtypes)}")
        if end > size:
            raise ValueError(f"{file} has {size} bytes, but {name} ends at {end}: the file is not whole")
        try:
            data = memory[first:end].view(dtypes[dtype]).reshape(shape)
        except ValueError as error:
            raise ValueError(f"{file}: {name} {shape} does not fit its {end - first} bytes: {error}") from None
        tensors[name] = Stored(Matrix(data, decode=widen_bf16 if dtype == "BF16" else None), shape)
    return tensors


def read_metadata(file: Path) -> dict[str, str]:
    """Read what a file says beside its tensors. Raises ValueError, naming the file, for one that is not whole."""
    found = _open(file)[2].get("__metadata__", {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{file}: the header is damaged: __metadata__ is to be an object of strings")
    return found


def _open(file: Path) -> tuple[NDArray[np.uint8], int, dict[str, Any]]:
    """Give the file's bytes, where its data starts, and its header."""
    refuse_pointer(file)
    size = file.stat().st_size
    memory = np.memmap(file, np.uint8, "r") if size else np.empty(0, np.uint8)
    start = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    if start > size or size < 8:
        raise ValueError(f"{file} has {size} bytes, and its header would end at {start}: the file is not whole")
    try:
        header = json.loads(memory[8:start].tobytes())
    except ValueError as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{file}: the header is damaged: it is to be a JSON object")
    return memory, start, header
