"""A target that recites: for each recorded prompt, the recorded completion is what greedy decoding emits."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.checked_kv import CheckedModel, chained, checksum
from models.protocol import Chunk
from spec import Round, SpecError

_OFF_RECORD = 0  # what comes after a context that no record has


class Recited(NamedTuple):
    """What a round emits; every token was certain."""

    tokens: list[int]
    logprobs: list[float]
    path: Sequence[int]


class ReplayModel(CheckedModel):
    """Recorded prompts and completions, found by the checksum of the context; `eos` follows a completion's end.

    Verification needs no logits: it compares drafted tokens with the recorded ones, so a pass is cheap at any
    vocabulary. `forward` gives one-hot rows (0 and -inf) for those who want rows. Greedy without penalties only.
    """

    def __init__(
        self,
        records: Sequence[tuple[Sequence[int], Sequence[int]]],
        vocab_size: int,
        eos: int,
        max_model_len: int = 1 << 20,
    ) -> None:
        super().__init__(vocab_size, max_model_len)
        following: dict[int, int] = {}
        for i, (prompt, completion) in enumerate(records):
            h = checksum(prompt)
            for token in (*completion, eos):
                if not 0 <= token < vocab_size:
                    raise ValueError(f"record {i}: token {token} is not in [0, {vocab_size})")
                if following.setdefault(h, token) != token:
                    raise ValueError(f"record {i}: another record continues the same tokens differently")
                h = chained(h, token)
        self._sums = np.array(sorted(following), np.uint64)
        self._next = np.array([following[h] for h in sorted(following)], np.intp)

    def forward(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Write the fed ids; one-hot rows float32 `[sum(num_rows), vocab_size]`."""
        best = self._best(chunks)
        rows = np.full((len(best), self._vocab_size), -np.inf, np.float32)
        rows[np.arange(len(best)), best] = 0.0
        return rows

    def forward_and_verify(self, chunks: Sequence[Chunk], rounds: Sequence[Round]) -> list[Recited | SpecError]:
        """Do a pass and verify its rounds, one for each chunk that wants rows, without making the rows.

        A round that is not plain greedy gets an error in place of tokens.
        """
        best: list[int] = self._best(chunks).tolist()
        recited: list[Recited | SpecError] = []
        at = 0
        for round_ in rounds:
            params = round_.params
            if params.is_greedy and params.leaves_logits_alone and round_.draft_probs is None:
                recited.append(_recite(round_.draft, round_.parents, best[at : at + len(round_.draft) + 1]))
            else:
                recited.append(SpecError(f"a recording knows temperature 0 without penalties only, not {params}"))
            at += len(round_.draft) + 1
        return recited

    def _best(self, chunks: Sequence[Chunk]) -> NDArray[np.intp]:
        sums = self._memory.sums_at(self._memory.extend(chunks))
        at = np.minimum(np.searchsorted(self._sums, sums), len(self._sums) - 1)
        return np.where(self._sums[at] == sums, self._next[at], _OFF_RECORD)


def _recite(draft: Sequence[int], parents: Sequence[int] | None, best: list[int]) -> Recited:
    """Follow a draft as long as it recites: `best` is what comes after the root and then after each drafted token."""
    if parents is None:
        num_accepted = 0
        if draft == best[:-1]:
            num_accepted = len(draft)
        else:
            for drafted, token in zip(draft, best, strict=False):
                if drafted != token:
                    break
                num_accepted += 1
        return Recited(best[: num_accepted + 1], [0.0] * (num_accepted + 1), range(num_accepted))
    tokens = best[:1]
    path: list[int] = []
    for node, drafted in enumerate(draft):
        if parents[node] == (path[-1] if path else -1) and drafted == tokens[-1]:
            path.append(node)
            tokens.append(best[node + 1])
    return Recited(tokens, [0.0] * len(tokens), path)
