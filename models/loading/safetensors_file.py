"""The tensors of one safetensors file."""

import json
from pathlib import Path

import numpy as np

from models.loading.assembly import Stored, widen_bf16
from models.loading.files import refuse_pointer
from models.weights import Matrix

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_CAN_BE_COMPUTED = ".rotary_emb.inv_freq"  # older files keep a table of RoPE's frequencies


def read_tensors(file: Path) -> dict[str, Stored]:
    """Map the tensors of one file: eight bytes of header length, a JSON header, then the data it points into.

    Raises ValueError, naming the file, for one that is not whole and for a number format other than F32, F16, BF16.
    """
    refuse_pointer(file)
    size = file.stat().st_size
    memory = np.memmap(file, np.uint8, "r") if size else np.empty(0, np.uint8)
    start = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    if start > size or size < 8:
        raise ValueError(f"{file} has {size} bytes, and its header would end at {start}: the file is not whole")
    try:
        header = json.loads(memory[8:start].tobytes())
        header.pop("__metadata__", None)
        places = {
            name: (entry["dtype"], tuple(entry["shape"]), *(start + offset for offset in entry["data_offsets"]))
            for name, entry in header.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from None
    tensors = {}
    for name, (dtype, shape, first, end) in places.items():
        if name.endswith(_CAN_BE_COMPUTED):
            continue
        if dtype not in _DTYPES:
            raise ValueError(f"{file}: {name} is {dtype}; can read {', '.join(_DTYPES)}")
        if end > size:
            raise ValueError(f"{file} has {size} bytes, but {name} ends at {end}: the file is not whole")
        try:
            data = memory[first:end].view(_DTYPES[dtype]).reshape(shape)
        except ValueError as error:
            raise ValueError(f"{file}: {name} {shape} does not fit its {end - first} bytes: {error}") from None
        tensors[name] = Stored(Matrix(data, decode=widen_bf16 if dtype == "BF16" else None), shape)
    return tensors
