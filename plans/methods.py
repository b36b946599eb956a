"""The ways to draft that are replayed, and the sizes of their drafts."""

from collections.abc import Sequence
from typing import NamedTuple

from plans.errors import PlanError
from spec import BestFirst, SpecConfig

MAX_SIZE = 16


class Method(NamedTuple):
    """A way to draft text that is replayed."""

    name: str
    about: str
    draft: SpecConfig
    """For drafts of MAX_SIZE."""
    has_finished: bool = False
    """It drafts from finished requests too: those before it in the log."""
    draft_us: float = 0.0
    """Processor time of one draft of some tokens in Outrider, each sequence of a batch after the other."""

    def config(self, size: int) -> SpecConfig:
        """Give what to configure for drafts of at most so many tokens."""
        of = self.draft
        if isinstance(of.shape, BestFirst):
            return SpecConfig(of.draft, shape=BestFirst(size, of.shape.min_prob), rule="match")
        return SpecConfig(
            of.draft, size, max_ngram=of.max_ngram, min_ngram=of.min_ngram, occurrence=of.occurrence, rule="match"
        )


class Config(NamedTuple):
    """A method with a size, or a limit, whose size is 0 where it has none."""

    method: str
    size: int

    @property
    def name(self) -> str:
        """Say both."""
        return f"{self.method} {self.size}" if self.size else self.method


BEST = "best of all, known beforehand"
"""The limit: in each round the proposer with most tokens accepted, and of its draft those that are."""

ORACLE = "best size known beforehand"
"""The limit of one method: each round feeds of its longest draft what is accepted."""


def methods(max_ngram: int = 3, min_ngram: int = 1) -> dict[str, Method]:
    """Give the methods by name; n-grams of the lookups have so many tokens, the model's at most `max_ngram`."""

    def lookup(occurrence: str) -> SpecConfig:
        return SpecConfig(
            "prompt_lookup",  # type: ignore[arg-type]  # the constructor turns a draft's name into a Draft
            MAX_SIZE,
            max_ngram=max_ngram,
            min_ngram=min_ngram,
            occurrence=occurrence,  # type: ignore[arg-type]
            rule="match",
        )

    ngram = SpecConfig("ngram", MAX_SIZE, max_ngram=max_ngram, rule="match")  # type: ignore[arg-type]
    chain = SpecConfig("suffix", MAX_SIZE, rule="match")  # type: ignore[arg-type]
    tree = SpecConfig("suffix", shape=BestFirst(MAX_SIZE), rule="match")  # type: ignore[arg-type]
    found = (
        Method(
            "lookup",
            "prompt lookup: what came after the last tokens where they stood before, the latest time",
            lookup("latest"),
            draft_us=2,
        ),
        Method("lookup-earliest", "prompt lookup, the earliest time", lookup("earliest"), draft_us=2),
        Method(
            "ngram",
            "n-gram model of the request: token by token what came most often after the last ones",
            ngram,
            draft_us=10,
        ),
        Method(
            "suffix",
            "suffix decoding: what came most often after the longest match in the request, a chain",
            chain,
            draft_us=20,
        ),
        Method("suffix-tree", "suffix decoding, a tree of several continuations", tree, draft_us=30),
        Method(
            "suffix-finished", "suffix decoding from the requests before it in the log too, a chain", chain, True, 30
        ),
        Method(
            "suffix-finished-tree", "suffix decoding from the requests before it in the log too, a tree", tree, True, 50
        ),
    )
    return {method.name: method for method in found}


def choose_methods(names: Sequence[str], known: dict[str, Method]) -> list[Method]:
    """Give the methods of these names, all where none are named. PlanError for an unknown one."""
    for name in names:
        if name not in known:
            raise PlanError(f"method {name!r} is not known: {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())


def check_sizes(sizes: Sequence[int]) -> list[int]:
    """Give sizes in order, each once. PlanError for one that no draft has."""
    for size in sizes:
        if not 1 <= size <= MAX_SIZE:
            raise PlanError(f"size {size}: 1 to {MAX_SIZE} drafted tokens")
    return sorted(set(sizes))
