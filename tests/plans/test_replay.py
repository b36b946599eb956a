"""A replay at all positions at once comes to what a drafter run round by round comes to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans.adaptive import AdaptiveReplay
from plans.errors import PlanError
from plans.logs import Recording
from plans.methods import BEST, ORACLE, Config, check_sizes, choose_methods, methods
from plans.replay import NUM_LENGTHS, Replay, count_rounds
from spec import Drafter
from spec.finished import FinishedRequests

KNOWN = methods()
SIZES = [1, 2, 3, 7, 16]


@st.composite
def recordings(draw):
    token = st.integers(0, draw(st.integers(1, 4)))
    prompt, completion = draw(st.lists(token, max_size=20)), draw(st.lists(token, min_size=1, max_size=40))
    return Recording(np.array(prompt + completion), len(prompt), None)


def round_by_round(method, size, recording, finished):
    tokens = recording.tokens.tolist()
    drafter = Drafter(method.config(size), tokens[: recording.num_prompt], finished)
    by_length = np.zeros((2, NUM_LENGTHS), np.int64)
    at = recording.num_prompt
    while at < len(tokens):
        tree = drafter.draft(size, size).tree
        node, depth = -1, 0
        while at + depth < len(tokens):
            below = [
                i
                for i, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True))
                if parent == node and token == tokens[at + depth]
            ]
            if not below:
                break
            node, depth = below[0], depth + 1
        by_length[0, len(tree)] += 1
        by_length[1, depth] += 1
        drafter.append(tokens[at : at + depth + 1])
        at += depth + 1
    return by_length


@settings(max_examples=60, deadline=None)
@given(st.lists(recordings(), min_size=1, max_size=3))
def test_every_method_and_size_is_that_of_a_drafter_round_by_round(log):
    replay = Replay(list(KNOWN.values()), SIZES)
    finished = FinishedRequests()
    for recording in log:
        found = replay.rounds(recording)
        for i, config in enumerate(replay.configs):
            if config.size:
                method = KNOWN[config.method]
                expected = round_by_round(method, config.size, recording, finished if method.has_finished else None)
                assert (found[i] == expected).all(), config
            assert found[i, 1] @ np.arange(1, NUM_LENGTHS + 1) >= recording.num_completion  # the last round may end it
        completion = recording.tokens[recording.num_prompt :].tolist()
        finished.add(None, completion)
        finished.take_in(len(completion))


@settings(max_examples=60, deadline=None)
@given(recordings())
def test_the_limits_draft_what_is_accepted_and_need_no_more_rounds(recording):
    chosen = [KNOWN["lookup"], KNOWN["ngram"], KNOWN["suffix"]]
    replay = Replay(chosen, SIZES)
    found = dict(zip(replay.configs, replay.rounds(recording), strict=True))
    assert [config for config in replay.configs if not config.size] == [
        *(Config(f"{method.name}, {ORACLE}", 0) for method in chosen),
        Config(BEST, 0),
    ]
    for config, rounds in found.items():
        if not config.size:
            assert (rounds[0] == rounds[1]).all()
    for method in chosen:
        oracle, longest = found[Config(f"{method.name}, {ORACLE}", 0)], found[Config(method.name, 16)]
        assert (oracle[1] == longest[1]).all()


def test_rounds_are_counted_by_hand():
    #            0  1  2  3  4  5
    drafted, accepted = [0, 3, 3, 2, 4, 4], [0, 2, 1, 0, 1, 0]
    into = np.zeros((2, NUM_LENGTHS), np.int64)
    count_rounds(drafted, accepted, 3, into)
    #   rounds at 0 (none drafted), 1 (two of three accepted), 4 (one of four, cut to three)
    assert into[0, :4].tolist() == [1, 0, 0, 2]
    assert into[1, :4].tolist() == [1, 1, 1, 0]
    into[:] = 0
    count_rounds(drafted, accepted, 1, into)
    assert into[0, :2].tolist() == [1, 3]  # at 0, 1, 3, 4
    assert into[1, :2].tolist() == [2, 2]


class Steep:
    """Rows are dear."""

    def pass_s(self, num_rows, batch, context):
        return 1.0 + 5.0 * (num_rows - batch)

    def explain(self):
        return ["steep"]


class Flat(Steep):
    def pass_s(self, num_rows, batch, context):
        return np.ones_like(num_rows)


def test_adaptive_drafts_are_cut_to_nothing_where_rows_are_dear_and_not_at_all_where_they_are_free():
    rng = np.random.default_rng(0)
    text = rng.integers(0, 9, 60)
    recording = Recording(np.concatenate([text, text]), 60, None)
    (dear,) = AdaptiveReplay([(1, KNOWN["lookup"])], 16, Steep(), 100.0).rounds(recording)
    assert dear[0].tolist() == [60] + [0] * 16
    (free,) = AdaptiveReplay([(1, KNOWN["lookup"])], 16, Flat(), 100.0).rounds(recording)
    whole = Replay([KNOWN["lookup"]], [16])
    assert (free == whole.rounds(recording)[0]).all()


def test_names_and_sizes_are_checked():
    assert [method.name for method in choose_methods(["suffix"], KNOWN)] == ["suffix"]
    assert len(choose_methods([], KNOWN)) == len(KNOWN)
    assert check_sizes([3, 1, 3]) == [1, 3]
    with pytest.raises(PlanError, match="method 'medusa' is not known: lookup, "):
        choose_methods(["medusa"], KNOWN)
    with pytest.raises(PlanError, match="size 17: 1 to 16"):
        check_sizes([17])
