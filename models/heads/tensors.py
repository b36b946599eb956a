"""The tensors of a file of heads: taken by name and shape, and written."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.heads.weights import BLOCK_INPUTS, Affine, join_bytes, split_bytes
from models.loading.assembly import Stored
from models.protocol import Ints
from models.weights import F32, Matrix

_SCALE = "_scale"  # of 8-bit weights, behind their name
_NAMES = {"f2": "F16", "f4": "F32", "i1": "I8", "i8": "I64", "b1": "BOOL"}


class Tensors:
    """Takes tensors one by one; what nobody took is refused in the end. All it raises is ValueError with the name."""

    def __init__(self, source: str, stored: Mapping[str, Stored]) -> None:
        self.source = source
        self._left = dict(stored)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def with_prefix(self, *prefixes: str) -> str:
        """Give the first prefix that any name has, or nothing."""
        return next((p for p in prefixes if any(name.startswith(p) for name in self._left)), "")

    def shape(self, name: str) -> tuple[int, ...]:
        """Give the shape of a tensor that is yet to be taken."""
        if name not in self._left:
            raise ValueError(f"{self.source}: {name} is missing")
        return self._left[name].shape

    def matrix(self, name: str, *shape: int) -> Matrix:
        """Take a matrix of floats, or of bytes with a scale for every 32 inputs."""
        found = self._take(name, shape)
        data = found.data
        if data.dtype != np.int8:
            return self._floats(name, found)
        num_outputs, num_inputs = shape
        scales = self._take(name + _SCALE, (num_outputs, num_inputs // BLOCK_INPUTS)).data
        if scales.dtype != np.float16 or num_inputs % BLOCK_INPUTS:
            raise ValueError(f"{self.source}: {name} is 8 bits wide: a scale in F16 for every {BLOCK_INPUTS} inputs")
        return join_bytes(data, scales)

    def vector(self, name: str, size: int) -> F32:
        """Take a vector."""
        return self._floats(name, self._take(name, (size,))).dense()

    def affine(self, name: str, *shape: int) -> Affine:
        """Take `name.weight` and, where there is one, `name.bias`."""
        weight = self.matrix(f"{name}.weight", *shape)
        return Affine(weight, self.vector(f"{name}.bias", shape[0]) if f"{name}.bias" in self else None)

    def ids(self, vocab_size: int) -> Ints | None:
        """Take `d2t`, by which word `i` of the draft vocabulary is id `i + d2t[i]`, and `t2d`, which marks these."""
        if "d2t" not in self:
            return None
        (size,) = self.shape("d2t")[:1]
        ids: Ints = np.arange(size) + self._integers("d2t", (size,))
        if (wrong := ids[(ids < 0) | (ids >= vocab_size)]).size or not size:
            found = f"the id {wrong[0]}" if size else "no id"
            raise ValueError(f"{self.source}: d2t gives {found}: the target's are in [0, {vocab_size})")
        if len(np.unique(ids)) < size:
            raise ValueError(f"{self.source}: d2t gives an id twice")
        if "t2d" in self:
            marked = np.flatnonzero(self._take("t2d", (vocab_size,)).data)
            if not np.array_equal(marked, np.sort(ids)):
                raise ValueError(f"{self.source}: t2d marks {len(marked)} ids, and they are not the {size} of d2t")
        return ids

    def finish(self) -> None:
        """Refuse what is left."""
        if self._left:
            names = sorted(self._left)
            raise ValueError(f"{self.source}: no use is known here for {len(names)} tensors: {', '.join(names[:5])}")

    def _take(self, name: str, shape: tuple[int, ...]) -> Matrix:
        if self.shape(name) != shape:
            raise ValueError(f"{self.source}: {name} is {self.shape(name)}, but the other sizes make it {shape}")
        return self._left.pop(name).matrix

    def _floats(self, name: str, matrix: Matrix) -> Matrix:
        if matrix.decode is None and matrix.data.dtype.kind != "f":
            raise ValueError(f"{self.source}: {name} is {_NAMES[matrix.data.dtype.str[1:]]}: must be floats")
        return matrix

    def _integers(self, name: str, shape: tuple[int, ...]) -> Ints:
        data = self._take(name, shape).data
        if data.dtype.kind != "i":
            raise ValueError(f"{self.source}: {name} holds no integers")
        return data.astype(np.intp)


def named(name: str, affine: Affine) -> dict[str, Matrix | NDArray[Any]]:
    """Name the tensors of an affine map."""
    bias = {} if affine.bias is None else {f"{name}.bias": affine.bias}
    return {f"{name}.weight": affine.weight, **bias}


def named_ids(ids: Ints | None, vocab_size: int) -> dict[str, Matrix | NDArray[Any]]:
    """Name the tensors of a draft vocabulary."""
    if ids is None:
        return {}
    marks = np.zeros(vocab_size, np.bool_)
    marks[ids] = True
    return {"d2t": (ids - np.arange(len(ids))).astype(np.int64), "t2d": marks}


def write_tensors(file: Path, tensors: Mapping[str, Matrix | NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file: F16 and F32 as they are, 8-bit matrices as I8 with scales, other floats as F32."""
    flat: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, Matrix) and tensor.blocks == "Q8_0":
            flat[name], flat[name + _SCALE] = split_bytes(tensor.data)
        elif isinstance(tensor, Matrix):
            flat[name] = tensor.data if tensor.data.dtype == np.float16 else tensor.dense()
        else:
            flat[name] = tensor
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, data in flat.items():
        kind = _NAMES[data.dtype.str[1:]]
        header[name] = {"dtype": kind, "shape": data.shape, "data_offsets": [at, at := at + data.nbytes]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 64)
    with file.open("wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        for data in flat.values():
            out.write(np.ascontiguousarray(data).tobytes())


def as_matrices(tensors: Sequence[tuple[str, Matrix | None]]) -> dict[str, Matrix | NDArray[Any]]:
    """Name the matrices that are there."""
    return {name: matrix for name, matrix in tensors if matrix is not None}
