"""Drafts from what followed the same suffixes before, here and in finished requests.

Suffix decoding after Oliaro et al. 2024: the longest matches are trusted deepest.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from spec.config import SpecConfig
from spec.shapes import BestFirst
from spec.suffix_index import SuffixIndex


class SuffixDraft(NamedTuple):
    """A draft of tokens that followed a suffix of the context: a tree, each node's parent before it, -1 the context."""

    tokens: list[int]
    parents: Sequence[int]
    values: list[float]
    """Of each node: occurrences of the match with the path to it, over those of the match."""
    score: float
    """Sum of the values, as one division."""
    match_len: int
    """Tokens of the context that were matched."""
    is_own: bool
    """Whether it comes from this context, and not from finished requests."""


class SuffixRules(NamedTuple):
    """What a draft may be: a chain of the most frequent tokens, or with `is_tree` the most frequent nodes of all.

    A draft has at most `factor` times as many nodes as the match that it continues; match and path together have at
    most `max_depth` tokens, and no node is worth less than `min_prob`.
    """

    max_depth: int = 24
    factor: float = 1.0
    min_prob: float = 0.1
    is_tree: bool = False

    @classmethod
    def of(cls, cfg: SpecConfig) -> Self:
        """Read the fields that are for suffix drafts."""
        is_tree = isinstance(cfg.shape, BestFirst)
        min_prob = cfg.shape.min_prob if isinstance(cfg.shape, BestFirst) else cfg.min_prob
        return cls(cfg.max_depth, cfg.factor, min_prob, is_tree)


class SuffixDrafts:
    """Drafts for one context: from its own index, and from one of finished requests.

    A draft scores at most what it would if all that ever followed its match were on one path: matches are followed in
    the order of what they can reach, and most of them never are.
    """

    __slots__ = ("_most_nodes", "_own", "_rules")

    def __init__(self, rules: SuffixRules) -> None:
        self._rules = rules
        self._own = SuffixIndex(rules.max_depth)
        self._most_nodes = [math.floor(rules.factor * m) for m in range(rules.max_depth)]

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""
        self._own.append(tokens)

    def draft(self, num_nodes: int, room: int, finished: SuffixIndex | None = None) -> SuffixDraft | None:
        """Draft at most `num_nodes` tokens, none deeper than `room`; None where no draft is worth it.

        Of all matches, and of the context against the finished requests, it is the draft with the highest score; ties
        go to the longer match, then to the context.
        """
        own, longest = self._own, self._rules.max_depth - 1
        count = own.count
        path = list(own.suffixes())
        for state in path:  # the occurrence at the end counts too, while the draft is made
            count[state] += 1
        matches: list[tuple[float, int, bool, int]] = []
        self._add_matches(matches, own, path, longest, num_nodes, room, is_own=True)
        if finished is not None:
            state, num_matched = finished.match(own.text[-longest:])
            self._add_matches(
                matches, finished, finished.suffixes_of(state), num_matched, num_nodes, room, is_own=False
            )
        matches.sort(reverse=True)
        best: tuple[float, int, bool] = (0.0, 0, False)
        chosen: tuple[SuffixIndex, int, list[int], Sequence[int]] | None = None
        for reach, match_len, is_own, state in matches:
            if (reach, match_len, is_own) <= best:
                break
            index = own if is_own or finished is None else finished
            nodes, parents = self._follow(index, state, match_len, num_nodes, room)
            score = sum([index.count[node] for node in nodes]) / index.count[state]
            if nodes and (chosen is None or (score, match_len, is_own) > best):
                best = (score, match_len, is_own)
                chosen = (index, state, nodes, parents)
        draft = None
        if chosen is not None:
            index, state, nodes, parents = chosen
            values = [index.count[node] / index.count[state] for node in nodes]
            draft = SuffixDraft([index.token_of(node) for node in nodes], parents, values, *best)
        for state in path:
            count[state] -= 1
        return draft

    def _add_matches(
        self,
        matches: list[tuple[float, int, bool, int]],
        index: SuffixIndex,
        states: Iterable[int],
        longest: int,
        num_nodes: int,
        room: int,
        *,
        is_own: bool,
    ) -> None:
        """List what can be followed: the score it can reach, its length, whether it is own, and its state."""
        count, length, link, best = index.count, index.length, index.link, index.best
        max_depth, most_nodes, is_tree = self._rules.max_depth, self._most_nodes, self._rules.is_tree
        for state in states:
            first = best[state]
            if not first:  # nothing has followed it
                continue
            total = count[state]
            num_first = count[first]
            num_followed = total - is_own
            for m in range(length[link[state]] + 1, min(length[state], longest) + 1):
                depth = min(max_depth - m, room)
                most = min(most_nodes[m], num_nodes)
                #   no node has more occurrences than the best first one, no layer more than all that followed
                reach = min(most * num_first, depth * num_followed) if is_tree else min(most, depth) * num_first
                if reach > 0:
                    matches.append((reach / total, m, is_own, state))

    def _follow(
        self, index: SuffixIndex, state: int, match_len: int, num_nodes: int, room: int
    ) -> tuple[list[int], Sequence[int]]:
        """Give the states of the draft after a match, and the parents."""
        rules = self._rules
        num_nodes = min(num_nodes, self._most_nodes[match_len])
        depth = min(room, rules.max_depth - match_len)
        if rules.is_tree:
            return _best_nodes(index, state, num_nodes, depth, rules.min_prob)
        nodes = _chain(index, state, min(num_nodes, depth), rules.min_prob)
        return nodes, range(-1, len(nodes) - 1)


def _chain(index: SuffixIndex, state: int, num_nodes: int, min_prob: float) -> list[int]:
    """Give the states that the most frequent tokens lead to, one after the other."""
    count, best, total = index.count, index.best, index.count[state]
    nodes: list[int] = []
    while len(nodes) < num_nodes:
        state = best[state]
        if not state or count[state] / total < min_prob:
            break
        nodes.append(state)
    return nodes


def _best_nodes(
    index: SuffixIndex, state: int, num_nodes: int, depth: int, min_prob: float
) -> tuple[list[int], list[int]]:
    """Give the states of the most frequent nodes, each after its parent, and their parents."""
    count, total = index.count, index.count[state]
    least = math.ceil(min_prob * total)  # and a division decides where rounding may
    while least and (least - 1) / total >= min_prob:
        least -= 1
    while least / total < min_prob:
        least += 1
    nodes: list[int] = []
    parents: list[int] = []
    num_pushed = at = 0  # `at`: the depth of the node that is followed next
    heap: list[tuple[int, int, int, int, int]] = []  # less the count, the depth, the order of pushing, state, parent
    while len(nodes) < num_nodes:
        if at < depth:
            for follower in index.followers(state, least):
                if count[follower] < least:
                    break
                heapq.heappush(heap, (-count[follower], at + 1, num_pushed, follower, len(nodes) - 1))
                num_pushed += 1
        if not heap:
            break
        _, at, _, state, parent = heapq.heappop(heap)
        nodes.append(state)
        parents.append(parent)
    return nodes, parents
