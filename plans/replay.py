"""Recordings replayed: how many tokens each round of each method would have drafted and delivered.

For a deterministic draft the recorded tokens are the target's choices at any temperature, so a round is known without
the target: it accepts the draft as far as the recording goes on with it, and gives one token more.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plans.logs import Recording
from plans.lookup import lookup_drafts
from plans.methods import BEST, MAX_SIZE, ORACLE, Config, Method
from spec import Draft, Drafter, DraftTree
from spec.finished import FinishedRequests
from spec.suffix import SuffixDrafts, SuffixRules

NUM_LENGTHS = MAX_SIZE + 1
"""A round drafts or accepts 0, 1, ... MAX_SIZE tokens."""

Rounds = NDArray[np.int64]
"""`[configs, 2, NUM_LENGTHS]`: rounds of a request by the number of tokens drafted, and by the number accepted."""


class _Chains(NamedTuple):
    """What a method of chains drafts at each position: cut to `k`, `min(k, .)` of both."""

    drafted: list[int]
    accepted: list[int]


class Replay:
    """Replays recordings in the order in which they come, for all methods and sizes at once."""

    def __init__(self, methods: Sequence[Method], sizes: Sequence[int]) -> None:
        self.methods = list(methods)
        self.sizes = list(sizes)
        self.configs = [Config(method.name, size) for method in methods for size in sizes]
        self.configs += [Config(f"{method.name}, {ORACLE}", 0) for method in methods]
        self.configs += [Config(BEST, 0)] if len(methods) > 1 else []
        self._finished = FinishedRequests() if any(method.has_finished for method in methods) else None

    def rounds(self, recording: Recording) -> Rounds:
        """Replay one; what it has said may serve those that come after it."""
        completion = recording.tokens[recording.num_prompt :].tolist()
        found = np.zeros((len(self.configs), 2, NUM_LENGTHS), np.int64)
        chains = {}
        for method in self.methods:
            if method.draft.draft is not Draft.SUFFIX:
                chains[method.name] = self._chains(method, recording)
        suffixes = [
            _SuffixAt(method, recording, self._finished if method.has_finished else None)
            for method in self.methods
            if method.draft.draft is Draft.SUFFIX
        ]
        num_methods, num_sizes = len(self.methods), len(self.sizes)
        for i, method in enumerate(self.methods):
            drafts = chains.get(method.name)
            if drafts is None:
                continue
            for j, size in enumerate(self.sizes):
                count_rounds(drafts.drafted, drafts.accepted, size, found[i * num_sizes + j])
            count_rounds(drafts.accepted, drafts.accepted, self.sizes[-1], found[num_methods * num_sizes + i])
        if suffixes or num_methods > 1:
            self._walk(chains, suffixes, len(completion), found)
        if self._finished is not None:
            self._finished.add(None, completion)
            self._finished.take_in(len(completion))
        return found

    def _chains(self, method: Method, recording: Recording) -> _Chains:
        of, size = method.draft, self.sizes[-1]
        if of.draft is Draft.PROMPT_LOOKUP:
            drafts = lookup_drafts(
                recording.tokens, recording.num_prompt, size, of.max_ngram, of.min_ngram, of.occurrence
            )
            return _Chains(drafts.drafted.tolist(), drafts.accepted.tolist())
        #   an n-gram model drafts token by token: a shorter draft is the beginning of a longer one
        tokens = recording.tokens.tolist()
        drafter = Drafter(of, tokens[: recording.num_prompt])
        drafted, accepted = [], []
        for at in range(recording.num_prompt, len(tokens)):
            draft = drafter.propose(size)
            drafted.append(len(draft))
            accepted.append(num_alike(draft, tokens, at))
            drafter.append(tokens[at : at + 1])
        return _Chains(drafted, accepted)

    def _walk(self, chains: dict[str, _Chains], suffixes: "list[_SuffixAt]", num_tokens: int, found: Rounds) -> None:
        """Go through the positions once; of those who draft by suffix, ask each whose round begins there."""
        size, num_sizes = self.sizes[-1], len(self.sizes)
        first_oracle = len(self.methods) * num_sizes
        walkers = []  # per suffix method: the next round of each size, then that of its oracle
        for suffix in suffixes:
            at = [method.name for method in self.methods].index(suffix.method.name)
            rows = [*range(at * num_sizes, (at + 1) * num_sizes), first_oracle + at]
            walkers.append((suffix, rows, [0] * (num_sizes + 1)))
        best_next = 0 if len(self.methods) > 1 else num_tokens
        for t in range(num_tokens):
            is_best = best_next == t
            most = max([drafts.accepted[t] for drafts in chains.values()], default=0) if is_best else 0
            for suffix, rows, nexts in walkers:
                for j, row in enumerate(rows):
                    if nexts[j] == t:
                        drafted, accepted = suffix.draft(t, self.sizes[j] if j < num_sizes else size)
                        found[row, 0, drafted if j < num_sizes else accepted] += 1
                        found[row, 1, accepted] += 1
                        nexts[j] = t + accepted + 1
                if is_best:
                    most = max(most, suffix.draft(t, size)[1])
            if is_best:
                found[-1, :, most] += 1
                best_next = t + most + 1


class _SuffixAt:
    """Suffix drafts at rising positions of one recording."""

    def __init__(self, method: Method, recording: Recording, finished: FinishedRequests | None) -> None:
        self.method = method
        self._completion: list[int] = recording.tokens[recording.num_prompt :].tolist()
        self._drafts = SuffixDrafts(SuffixRules.of(method.draft))
        self._drafts.append(recording.tokens[: recording.num_prompt].tolist())
        self._of_others = None if finished is None else finished.index(None)
        self._at = 0
        self._known: dict[int, tuple[int, int]] = {}

    def draft(self, at: int, size: int) -> tuple[int, int]:
        """Say how many nodes a draft at this position has, and how many of them are accepted."""
        if at > self._at:
            self._drafts.append(self._completion[self._at : at])
            self._at = at
            self._known.clear()
        if size not in self._known:
            draft = self._drafts.draft(size, size, self._of_others)
            self._known[size] = (0, 0) if draft is None else (
                len(draft.tokens),
                depth_alike(DraftTree(draft.tokens, draft.parents), self._completion, at),
            )  # fmt: skip
        return self._known[size]


def count_rounds(drafted: Sequence[int], accepted: Sequence[int], size: int, into: NDArray[np.int64]) -> None:
    """Replay a completion whose round at token `t` would draft `drafted[t]` tokens and have `accepted[t]` accepted.

    Drafts are cut to `size`. A round delivers what it accepts and one token more, as far as the completion goes.
    """
    by_drafted, by_accepted = [0] * NUM_LENGTHS, [0] * NUM_LENGTHS
    t, n = 0, len(drafted)
    while t < n:
        num_drafted, num_accepted = drafted[t], accepted[t]
        by_drafted[min(num_drafted, size)] += 1
        num_accepted = min(num_accepted, size)
        by_accepted[num_accepted] += 1
        t += num_accepted + 1
    into[0] += by_drafted
    into[1] += by_accepted


def num_alike(draft: Sequence[int], text: Sequence[int], at: int) -> int:
    """Count the tokens of a chain that the text goes on with from `at`."""
    num = 0
    for token in draft:
        if at + num == len(text) or token != text[at + num]:
            break
        num += 1
    return num


def depth_alike(tree: DraftTree, text: Sequence[int], at: int) -> int:
    """Count the layers of a tree that the text goes down from `at`."""
    node, depth = -1, 0
    for i, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        #   a node's children come after it
        if parent == node and at + depth < len(text) and token == text[at + depth]:
            node = i
            depth += 1
    return depth
