"""The drafts of `spec.drafts` from an index kept as tokens arrive: a round costs the same in any context."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

from spec.config import Draft, SpecConfig
from spec.errors import refuse
from spec.lookup_index import GramIndex, LongGramIndex
from spec.ngram_index import NgramIndex

_SHORT = 4  # n-grams of up to so many tokens are indexed one by one


class Index(Protocol):
    """A context, and what finds drafts in it."""

    strength: int
    """Tokens of context that the last proposal's first token was found by; 0 where there was none."""

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""

    def propose(self, k: int) -> list[int]:
        """Draft at most `k >= 1` tokens; leave the context as it was."""


def _index_for(cfg: SpecConfig) -> Index | None:
    """Make the index that finds the configured drafts; None where there are none to find."""
    if cfg.draft is Draft.PROMPT_LOOKUP:
        lookup = GramIndex if cfg.max_ngram <= _SHORT else LongGramIndex
        return lookup(cfg.max_ngram, cfg.min_ngram, is_earliest=False)
    if cfg.draft is Draft.NGRAM:
        return NgramIndex(cfg.max_ngram)
    return None


class Drafter:
    """Proposes drafts for one sequence; the drafts are those of `propose(cfg, context, k)`.

    `append` what the sequence has gained, in pieces as small as suits: a long prompt can be taken in as it is
    prefilled, and `len` says how far that has come. `propose` leaves no trace.
    """

    __slots__ = ("_index", "_num_tokens")

    def __init__(self, cfg: SpecConfig, tokens: Iterable[int] = ()) -> None:
        self._index = _index_for(cfg)
        self._num_tokens = 0
        self.append(list(tokens))

    def __len__(self) -> int:
        return self._num_tokens

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the end of the context: about a microsecond each, and 100 to 500 bytes.

        Raises SpecError, with nothing added, for an id that is no 32-bit integer.
        """
        try:
            ids = array("i", tokens)
        except (OverflowError, TypeError):
            bad = next(t for t in tokens if not isinstance(t, int) or not -(2**31) <= t < 2**31)
            raise refuse("tokens", bad, "32-bit token ids") from None
        if self._index is not None:
            self._index.append(ids)
        self._num_tokens += len(ids)

    @property
    def strength(self) -> int:
        """Tokens of context that the last proposal's first token was found by; 0 where there was none."""
        return 0 if self._index is None else self._index.strength

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens for the context as it stands."""
        return [] if self._index is None or k <= 0 else self._index.propose(k)
