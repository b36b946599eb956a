"""The drafts of `spec.drafts` from an index kept as tokens arrive: a round costs the same in any context."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from spec.config import Draft, SpecConfig
from spec.errors import refuse
from spec.lookup_index import LookupIndex
from spec.ngram_index import NgramIndex


class Index(Protocol):
    """What finds drafts in a context that it shares with its drafter, and keeps up with it."""

    strength: int
    """Tokens of context that the last proposal's first token was found by; 0 where there was none."""

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context and to the index."""

    def propose(self, k: int) -> list[int]:
        """Draft at most `k >= 1` tokens; leave context and index as they were."""

    def truncate(self, length: int) -> None:
        """Cut the context, and the index, to their first `length` tokens."""


INDEXES: dict[Draft, Callable[["array[int]", SpecConfig], Index]] = {
    Draft.PROMPT_LOOKUP: lambda ctx, cfg: LookupIndex(ctx, cfg.max_ngram, cfg.min_ngram),
    Draft.NGRAM: lambda ctx, cfg: NgramIndex(ctx, cfg.max_ngram),
}
"""How each kind of draft finds its drafts; a kind without an index proposes none."""


class Drafter:
    """Proposes drafts for one sequence; the drafts are those of `propose(cfg, context, k)`.

    `append` what the sequence has gained, `truncate` it to a shorter length; `propose` leaves no trace.
    """

    __slots__ = ("_ctx", "_index")

    def __init__(self, cfg: SpecConfig, tokens: Iterable[int] = ()) -> None:
        self._ctx = array("i")
        make = INDEXES.get(cfg.draft)
        self._index = None if make is None else make(self._ctx, cfg)
        self.append(list(tokens))

    def __len__(self) -> int:
        return len(self._ctx)

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the end of the context. Amortised cost: one dictionary entry per token and n.

        Raises SpecError, with nothing added, for an id that is no 32-bit integer.
        """
        try:
            ids = array("i", tokens)
        except (OverflowError, TypeError):
            bad = next(t for t in tokens if not isinstance(t, int) or not -(2**31) <= t < 2**31)
            raise refuse("tokens", bad, "32-bit token ids") from None
        if self._index is None:
            self._ctx.extend(ids)
        else:
            self._index.append(ids)

    @property
    def strength(self) -> int:
        """Tokens of context that the last proposal's first token was found by; 0 where there was none."""
        return 0 if self._index is None else self._index.strength

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens for the context as it stands."""
        return [] if self._index is None or k <= 0 else self._index.propose(k)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens; SpecError unless `0 <= length <= len(self)`."""
        if not 0 <= length <= len(self._ctx):
            raise refuse("length", length, f"an integer in [0, {len(self._ctx)}]")
        if self._index is None:
            del self._ctx[length:]
        else:
            self._index.truncate(length)
