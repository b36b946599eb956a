"""Drafts are fed where they pay, by the measured cost of rows; and only where the text does not depend on them."""

from itertools import combinations, product

import pytest

from scheduler import NO_PROPOSAL, PassCost, Proposal, RequestError, Scheduler
from scheduler.adaptive import Acceptance, share_rows
from tests.scheduler.rig import SAMPLED, Rig

FREE, DEAR = PassCost.linear(1.0, 0.0), PassCost.linear(0.001, 1.0)


def test_a_cost_is_linear_between_its_points_and_past_the_last():
    cost = PassCost((2, 4, 8), (1.0, 2.0, 6.0))
    assert cost.of(10) == [1.0, 1.0, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert PassCost((1, 2), (2.0, 1.0)).of(4)[2:] == [1.0, 1.0, 1.0], "more rows never cost less, past what is known"


@pytest.mark.parametrize(
    ("num_rows", "seconds"), [((1,), (1.0,)), ((1, 2), (1.0,)), ((2, 2), (1.0, 1.0)), ((1, 2), (0.0, 1.0))]
)
def test_a_senseless_cost_is_refused(num_rows, seconds):
    with pytest.raises(RequestError, match="seconds"):
        PassCost(num_rows, seconds)


def closed(parents):
    """Every set of nodes that holds the parent of each of its nodes."""
    for size in range(len(parents) + 1):
        for nodes in combinations(range(len(parents)), size):
            if all(parents[node] in (-1, *nodes) for node in nodes):
                yield nodes


def best_share(cost, num_rows, num_sure, drafts):
    """By trying them all."""

    def speed(shares):
        expected = num_sure + sum(
            sum(map(chances.__getitem__, nodes)) for (_, chances), nodes in zip(drafts, shares, strict=True)
        )
        return expected / cost.of(num_rows + sum(map(len, shares)))[-1]

    return max(speed(shares) for shares in product(*(closed(parents) for parents, _ in drafts)))


CHAIN = (-1, 0, 1)
TREE = (-1, -1, 0, 0, 1)


@pytest.mark.parametrize("cost", [FREE, DEAR, PassCost.linear(1.0, 0.2), PassCost((1, 4, 5), (1.0, 1.1, 9.0))])
@pytest.mark.parametrize(
    "drafts",
    [
        [],
        [(CHAIN, [0.9, 0.8, 0.1])],
        [(CHAIN[:2], [0.3, 0.2]), (CHAIN, [0.9, 0.5, 0.4]), ((), [])],
        [(CHAIN, [0.5] * 3)] * 3,
        [(TREE, [0.6, 0.3, 0.4, 0.2, 0.3]), (CHAIN, [0.5, 0.5, 0.1])],
        [(TREE, [0.5, 0.5, 0.5, 0.0, 0.5])],
    ],
)
def test_rows_are_shared_so_that_no_other_share_gives_more_tokens_a_second(cost, drafts):
    chances = [of_nodes for _, of_nodes in drafts]
    shares = share_rows(cost, 3, 3, chances, 9)
    assert all(tuple(nodes) in closed(parents) for nodes, (parents, _) in zip(shares, drafts, strict=True))
    expected = 3 + sum(sum(map(draft.__getitem__, nodes)) for draft, nodes in zip(chances, shares, strict=True))
    best, plain = best_share(cost, 3, 3, drafts), 3 / cost.of(3)[-1]
    assert expected / cost.of(3 + sum(map(len, shares)))[-1] == pytest.approx(best if best >= 1.05 * plain else plain)


def test_what_promises_little_is_not_bet_on():
    assert share_rows(PassCost.linear(1.0, 0.1), 1, 1, [[0.14]], 9) == [[]], "1.14 tokens for 1.09 of the time"
    assert share_rows(PassCost.linear(1.0, 0.1), 1, 1, [[0.16]], 9) == [[0]]


def test_where_there_is_room_for_few_rows_the_most_promising_get_it():
    chances = [[0.9, 0.5, 0.1], [0.6, 0.6], [0.05]]
    for cost in (None, FREE):
        shares = [[len(nodes) for nodes in share_rows(cost, 3, 3, chances, most)] for most in (0, 1, 3, 4, 9)]
        assert shares == [[0, 0, 0], [1, 0, 0], [1, 2, 0], [2, 2, 0], [3, 2, 1]]


def chances_of(acceptance, strength, num_tokens=3):
    return acceptance.chances(Proposal.chain(list(range(num_tokens))), strength)


def test_chances_follow_what_came_true_and_stop_at_the_first_mistake():
    of_all = Acceptance()
    own = Acceptance(of_all)
    before = chances_of(own, 2)
    draft = Proposal.chain([1, 2, 3])
    for _ in range(100):
        own.learn(draft, 2, [1, 2, 9])
    first, second, third = chances_of(own, 2)
    assert first > 0.98 > before[0]
    assert second / first == pytest.approx(third / second)
    assert own.later(2) == pytest.approx(0.5, abs=0.05), "one later token was right, and one wrong"
    for _ in range(100):
        own.learn(draft, 2, [9])
    assert own.first(2) < 0.02
    assert own.later(2) == pytest.approx(0.5, abs=0.05), "what lies behind a mistake was never tried"
    assert own.first(3) == Acceptance().first(3), "another strength is another question"
    assert Acceptance(of_all).first(2) == of_all.first(2) < 0.02


def test_what_lies_behind_a_mistake_teaches_nothing():
    """The tokens after a mistake are a continuation of another text, and being equal they tell nothing."""
    own = Acceptance()
    before = own.later(2)
    for _ in range(100):
        own.learn(Proposal.chain([1, 2, 3]), 2, [9, 2, 3])
    assert own.later(2) == before
    for _ in range(100):
        own.learn(Proposal.chain([1, 2, 3, 4]), 2, [1, 9, 3, 4])
    assert own.later(2) < 0.02


def test_what_was_true_long_ago_is_forgotten():
    own = Acceptance()
    for _ in range(1000):
        own.learn(Proposal.chain([1]), 2, [1])
    for _ in range(100):
        own.learn(Proposal.chain([1]), 2, [9])
    assert own.first(2) < 0.05


def test_a_proposer_is_taken_at_its_word_until_it_is_known_better():
    """It says 0.9 of what comes true half of the time, and 0.3 of what always does where the other does not."""
    draft = Proposal([1, 2, 3], [-1, -1, 0], [0.9, 0.3, 0.45], 3)
    own = Acceptance()
    assert own.chances(draft, 0) == pytest.approx([0.9, 0.3, 0.45], abs=0.05)
    for turn in range(200):
        own.learn(draft, 0, [1, 3] if turn % 2 else [2])
    first, second, below = own.chances(draft, 0)
    assert first == pytest.approx(0.5, abs=0.05)
    assert second == pytest.approx(0.5, abs=0.05)
    assert below == pytest.approx(first, abs=0.02), "after the first it has always come true"
    assert below <= first


def test_all_siblings_are_judged_and_only_those_on_the_path():
    draft = Proposal([1, 2, 3, 4], [-1, -1, 0, 1], [0.7, 0.2, 0.1, 0.16], 4)
    own = Acceptance()
    untried = own.later(-1 - int(16 * 0.8))
    for _ in range(100):
        own.learn(draft, 0, [1, 9])
    first, second, below, behind = own.chances(draft, 0)
    assert first > 0.98
    assert second < 0.02
    assert below < 0.02
    assert behind == pytest.approx(second * untried), "what hangs on a rejected node was never tried"


def test_a_tree_is_cut_to_nodes_that_keep_their_parents():
    draft = Proposal([5, 6, 7, 8], [-1, -1, 1, 2], [0.2, 0.6, 0.5, 0.4], 4, rng_state=3)
    assert draft.depth == 3
    assert draft.cut([1, 2]) == Proposal([6, 7], [-1, 0], [0.6, 0.5], 2, 3)
    assert draft.cut([0, 1, 2, 3]) == draft
    chain = Proposal.chain([5, 6, 7])
    assert (chain.cut([0, 1]), chain.cut([]), chain.depth) == (Proposal.chain([5, 6]), NO_PROPOSAL, 3)


def rig(cost, **changes):
    made = Rig(**changes)
    made.core = Scheduler(made.config, cost)
    return made


@pytest.mark.parametrize(("cost", "num_drafted"), [(FREE, 3), (DEAR, 0), (None, 3)])
def test_greedy_and_matched_drafts_are_cut_to_what_pays(cost, num_drafted):
    for changes in ({}, {"params": SAMPLED, "verify": "match"}):
        made = rig(cost)
        made.decoding(2, **changes)
        assert [len(planned.draft.tokens) for planned in made.plan()[0]] == [num_drafted] * 2


def test_a_draft_that_the_text_depends_on_is_never_cut():
    made = rig(DEAR)
    made.decoding(1, params=SAMPLED)
    made.decoding(1)
    of_sampled, of_greedy = (len(planned.draft.tokens) for planned in made.plan()[0])
    assert (of_sampled, of_greedy < 3) == (3, True)


def test_an_engine_may_be_told_not_to_adapt():
    made = rig(DEAR, adaptive=False)
    made.decoding(1)
    assert [len(planned.draft.tokens) for planned in made.plan()[0]] == [3]
