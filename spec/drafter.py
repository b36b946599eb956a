"""The drafts of `spec.drafts` from an index kept as tokens arrive: a round costs the same in any context."""

from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from spec.config import Draft, SpecConfig
from spec.errors import refuse
from spec.finished import FinishedRequests
from spec.growth import Drafted
from spec.lookup_index import LookupIndex
from spec.ngram_index import NgramIndex
from spec.suffix import SuffixDrafts, SuffixRules
from spec.tree import NO_DRAFT, DraftTree


class Index(Protocol):
    """A context, and what finds chains in it."""

    strength: int
    """Tokens of context that the last proposal's first token was found by; 0 where there was none."""

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""

    def propose(self, k: int) -> list[int]:
        """Draft at most `k >= 1` tokens; leave the context as it was."""


def _index_for(cfg: SpecConfig) -> Index | None:
    """Make the index that finds the configured chains; None where there are none to find."""
    if cfg.draft.looks_up:
        return LookupIndex(cfg.max_ngram, cfg.min_ngram, is_earliest=cfg.occurrence == "earliest")
    if cfg.draft is Draft.NGRAM:
        return NgramIndex(cfg.max_ngram)
    return None


class Drafter:
    """Makes the drafts of text for one sequence: those of `spec.drafts` for its context.

    `append` what the sequence has gained, in pieces as small as suits: a long prompt can be taken in as it is
    prefilled, and `len` says how far that has come. `draft` leaves no trace. Suffix drafts look at what `finished`
    requests of the same `salt` have said too, where they are given.
    """

    __slots__ = ("_finished", "_index", "_num_tokens", "_salt", "_suffix", "strength")

    strength: int
    """Tokens of context that the last draft's first token was found by; 0 where there was none."""

    def __init__(
        self,
        cfg: SpecConfig,
        tokens: Iterable[int] = (),
        finished: FinishedRequests | None = None,
        salt: Hashable = None,
    ) -> None:
        self._index = _index_for(cfg)
        self._suffix = SuffixDrafts(SuffixRules.of(cfg)) if cfg.draft is Draft.SUFFIX else None
        self._finished = finished
        self._salt = salt
        self._num_tokens = 0
        self.strength = 0
        self.append(list(tokens))

    def __len__(self) -> int:
        return self._num_tokens

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the end of the context: up to some microseconds and some 250 bytes each.

        Raises SpecError, with nothing added, for an id that is no 32-bit integer.
        """
        try:
            ids = array("i", tokens)
        except (OverflowError, TypeError):
            bad = next(t for t in tokens if not isinstance(t, int) or not -(2**31) <= t < 2**31)
            raise refuse("tokens", bad, "32-bit token ids") from None
        if self._index is not None:
            self._index.append(ids)
        elif self._suffix is not None:
            self._suffix.append(ids)
        self._num_tokens += len(ids)

    def draft(self, num_nodes: int, depth: int) -> Drafted:
        """Draft at most `num_nodes` tokens, none deeper than `depth`, for the context as it stands.

        What a lookup or an n-gram model copies has no values.
        """
        if self._suffix is None:
            return Drafted(DraftTree.chain(self.propose(min(num_nodes, depth))), None, None)
        self.strength = 0
        of_others = None if self._finished is None else self._finished.index(self._salt)
        found = self._suffix.draft(num_nodes, depth, of_others) if min(num_nodes, depth) > 0 else None
        if found is None:
            return Drafted(NO_DRAFT, None, [])
        self.strength = found.match_len
        return Drafted(DraftTree(found.tokens, found.parents), None, found.values)

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens of a chain."""
        if self._suffix is not None:
            drafted = self.draft(k, k)
            assert drafted.tree.is_chain, "a shape with siblings is drafted by draft()"
            return list(drafted.tree.tokens)
        if self._index is None or k <= 0:
            return []
        draft = self._index.propose(k)
        self.strength = self._index.strength
        return draft
