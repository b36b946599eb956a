"""How a model stretches RoPE past the length it was first trained at: by what each frequency is divided."""

import math
from collections.abc import Mapping
from typing import Any

_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_NOT_SCALING = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})


def rope_divisors(scaling: Mapping[str, Any], base: float, head_dim: int) -> tuple[float, ...]:
    """Give a divisor for each of a head's `head_dim / 2` frequencies, or none where RoPE is plain.

    `scaling` is `rope_scaling` of a `config.json`, of the kind `default`, `linear` (Chen et al., 2023) or `llama3`
    (long waves are stretched, short ones are not, and those between in part). Raises ValueError for any other kind,
    and for a value that is missing or unknown.
    """
    if not isinstance(base, int | float) or not base > 0:
        raise ValueError(f"rope_theta is {base!r}: a number > 0")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    needed = {"default": (), "linear": ("factor",), "llama3": _LLAMA3}.get(str(kind))
    if needed is None:
        raise ValueError(f"rope_scaling is {kind}: can run default, linear, llama3")
    if unknown := sorted(scaling.keys() - _NOT_SCALING - set(needed) - {"original_max_position_embeddings"}):
        raise ValueError(f"rope_scaling has {', '.join(unknown)}, which is not known for {kind}")
    for key in needed:
        if not isinstance(scaling.get(key), int | float) or not scaling[key] > 0:
            raise ValueError(f"rope_scaling.{key} is {scaling.get(key)}: a number > 0")
    if kind == "default":
        return ()
    num_pairs = head_dim // 2
    factor = float(scaling["factor"])
    if kind == "linear":
        return (factor,) * num_pairs
    low, high, length = (float(scaling[key]) for key in _LLAMA3[1:])
    if not low < high:
        raise ValueError(f"rope_scaling.low_freq_factor is {low}: must be less than high_freq_factor {high}")

    def divisor(pair: int) -> float:
        turns: float = length / (2 * math.pi * base ** (2 * pair / head_dim))  # in the length of the first training
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        return 1.0 / (kept + (1.0 - kept) / factor)

    return tuple(map(divisor, range(num_pairs)))
