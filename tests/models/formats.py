"""Matrices in every format that the compiled products read, and what their numbers are."""

import numpy as np

from models.weights import Matrix

# scales of a block, bits of a weight, what is taken off a weight before it is scaled
FORMATS = {"Q8_0": (1, 8, 0), "Q4_0": (1, 4, 8), "Q4_1": (2, 4, 0)}


def decode_rows(rows, blocks):
    """Blocks of 32 weights to floats, written from the definition of the formats."""
    num_scales, bits, taken_off = FORMATS[blocks]
    each = rows.reshape(len(rows), -1, 2 * num_scales + 4 * bits)
    scales = np.ascontiguousarray(each[..., : 2 * num_scales]).view(np.float16).astype(np.float32)
    codes = each[..., 2 * num_scales :]
    codes = codes.view(np.int8) if bits == 8 else np.concatenate([codes & 15, codes >> 4], axis=-1)
    floats = scales[..., :1] * (codes.astype(np.float32) - taken_off)
    return (floats + scales[..., 1:] if num_scales == 2 else floats).reshape(len(rows), -1)


def random_matrix(generator, num_outputs, num_inputs, blocks):
    if blocks in ("F32", "F16"):
        scale = 1.5 / np.sqrt(num_inputs)
        dtype = {"F32": np.float32, "F16": np.float16}[blocks]
        return Matrix((generator.standard_normal((num_outputs, num_inputs)) * scale).astype(dtype))
    num_scales, bits, _ = FORMATS[blocks]
    shape = (num_outputs, num_inputs // 32)
    spread = 1.5 / np.sqrt(num_inputs) / (2**bits / np.sqrt(12))
    scales = (generator.uniform(0.5, 1.5, (*shape, num_scales)) * spread).astype(np.float16)
    if num_scales == 2:
        scales[..., 1] *= -7.5
    codes = generator.integers(0, 256, (*shape, 4 * bits), np.uint8)
    data = np.concatenate([scales.view(np.uint8), codes], axis=-1).reshape(num_outputs, -1)
    return Matrix(data, blocks, lambda rows: decode_rows(rows, blocks))
