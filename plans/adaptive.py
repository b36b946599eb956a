"""Recordings replayed with drafts cut as the engine cuts them: by what has come true, against the cost of rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from plans.gain import Cost
from plans.logs import Recording
from plans.methods import Method
from plans.replay import NUM_LENGTHS, Rounds, depth_alike
from scheduler import PassCost, Proposal
from scheduler.adaptive import Acceptance, share_rows
from spec import Drafter, DraftTree
from spec.finished import FinishedRequests


class _Entry(NamedTuple):
    method: Method
    cost: PassCost
    of_all: Acceptance


class AdaptiveReplay:
    """Replays recordings in their order, for each batch with its method.

    What is known of acceptance is learned on the way, as in the engine. A batch's other sequences are taken to draft
    as much as the one that is replayed: a token more for one is a row more for each.
    """

    def __init__(self, entries: Sequence[tuple[int, Method]], size: int, cost: Cost, context: float) -> None:
        rows = np.arange(1.0, NUM_LENGTHS + 1)
        self._size = size
        self._entries = [
            _Entry(
                method,
                PassCost(tuple(range(1, NUM_LENGTHS + 1)), tuple(cost.pass_s(batch * rows, batch, context).tolist())),
                Acceptance(),
            )
            for batch, method in entries
        ]
        has_finished = any(method.has_finished for _, method in entries)
        self._finished = FinishedRequests() if has_finished else None

    def rounds(self, recording: Recording) -> Rounds:
        """Replay one: rounds by tokens fed and accepted, for each entry."""
        tokens = recording.tokens.tolist()
        prompt, completion = tokens[: recording.num_prompt], tokens[recording.num_prompt :]
        found = np.zeros((len(self._entries), 2, NUM_LENGTHS), np.int64)
        drafts: dict[str, _DraftsAt] = {}
        for entry in self._entries:
            name = entry.method.name
            if name not in drafts:
                finished = self._finished if entry.method.has_finished else None
                drafts[name] = _DraftsAt(entry.method, self._size, prompt, completion, finished)
        nexts = [0] * len(self._entries)
        own = [Acceptance(entry.of_all) for entry in self._entries]
        for t in range(len(completion)):
            for i, entry in enumerate(self._entries):
                if nexts[i] != t:
                    continue
                proposal, strength = drafts[entry.method.name].at(t)
                fed, accepted = 0, 0
                if proposal.tokens:
                    chances = own[i].chances(proposal, strength)
                    (nodes,) = share_rows(entry.cost, 1, 1, [chances], self._size)
                    fed = len(nodes)
                    cut = proposal.cut(nodes)
                    parents = range(-1, fed - 1) if cut.parents is None else cut.parents
                    accepted = depth_alike(DraftTree(cut.tokens, parents), completion, t)
                    own[i].learn(proposal, strength, completion[t : t + accepted + 1])
                found[i, 0, fed] += 1
                found[i, 1, accepted] += 1
                nexts[i] = t + accepted + 1
        if self._finished is not None:
            self._finished.add(None, completion)
            self._finished.take_in(len(completion))
        return found


class _DraftsAt:
    """A method's longest drafts at rising positions of one recording."""

    def __init__(
        self, method: Method, size: int, prompt: list[int], completion: list[int], finished: FinishedRequests | None
    ) -> None:
        self._drafter = Drafter(method.config(size), prompt, finished)
        self._size = size
        self._completion = completion
        self._at = -1
        self._num_known = 0
        self._proposal, self._strength = Proposal([]), 0

    def at(self, at: int) -> tuple[Proposal, int]:
        """Give the draft at a position, and the strength of its match."""
        if at != self._at:
            self._drafter.append(self._completion[self._num_known : at])
            self._at = self._num_known = at
            drafted = self._drafter.draft(self._size, self._size)
            self._proposal = Proposal.tree(drafted.tree, drafted.values)
            self._strength = self._drafter.strength
        return self._proposal, self._strength
