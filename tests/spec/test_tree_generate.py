"""Whole generations with draft trees: the text of none, exact caches, and what is refused before it begins."""

from itertools import product

import numpy as np
import pytest

from spec import (
    BestFirst,
    Chain,
    DraftTree,
    Dynamic,
    Expansion,
    SamplingParams,
    Sequoia,
    SpecConfig,
    SpecError,
    Static,
    compaction,
    generate,
    generate_stream,
)
from spec.sequoia import nodes_that_pay
from tests.spec.proposers import LawProposer, grown, law_of
from tests.spec.targets import ReferenceTreeTarget, config_of, fake_target

TARGET = {"seed": 4, "vocab": 8, "order": 1, "sharp": 4.0}
TOY = {"kind": "toy", "seed": 9, "order": 2, "sharp": 4.0, "mix": 0.8, "temperature": 1.0, "top_k": 0}
PROMPT = [3, 1, 2]
SHAPES = [
    Chain(3),
    Chain(5, p_min=0.3),
    Expansion((3, 2)),
    Static(((0,), (1,), (0, 0), (1, 0), (0, 0, 0))),
    Sequoia((0.6, 0.2, 0.1), 9, 4),
    Dynamic(8, 3, 3),
    BestFirst(8, 0.02),
]


def run(cfg, params, seed=1, max_new=24, eos=(), **options):
    target = fake_target(**TARGET, make=ReferenceTreeTarget)
    proposer = LawProposer(law_of({"target": TARGET, "proposer": TOY})) if cfg.draft.needs_proposer else None
    options = {"proposer": proposer, **options}
    return generate(target, cfg, PROMPT, params, seed, max_new, list(eos), **options), target


PARAMS = {
    "greedy": SamplingParams(temperature=0),
    "greedy, penalised": SamplingParams(temperature=0, frequency_penalty=1.0, presence_penalty=0.5),
    "plain": SamplingParams(),
    "cut": SamplingParams(temperature=0.9, top_k=5, top_p=0.9),
    "penalised": SamplingParams(repetition_penalty=1.2, frequency_penalty=0.8),
    "late stop": SamplingParams(min_tokens=9, stop_token_ids=(1, 6)),
}


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_match_gives_the_text_of_plain_sampling(params, shape):
    accepted = 0
    for seed in range(3):
        plain, _ = run(config_of("none", 0), params, seed)
        matched, target = run(SpecConfig("fake", shape=shape, rule="match"), params, seed)
        assert matched.tokens == plain.tokens
        assert matched.logprobs == pytest.approx(plain.logprobs, rel=1e-9)
        assert matched.finish_reason == plain.finish_reason
        assert target.ctx == PROMPT + plain.tokens[:-1]
        accepted += matched.stats.accepted
    assert accepted > 0


@pytest.mark.parametrize(("children", "rule"), list(product(["iid", "distinct"], ["resample", "traversal"])))
def test_at_temperature_0_whatever_is_configured_gives_the_text_of_none(children, rule):
    for params in (PARAMS["greedy"], PARAMS["greedy, penalised"]):
        plain, _ = run(config_of("none", 0), params)
        for shape in (Chain(3), Expansion((3, 2)), Sequoia((0.6, 0.2), 6, 3)):
            drafted, _ = run(SpecConfig("fake", shape=shape, children=children, rule=rule), params)
            top, _ = run(SpecConfig("fake", shape=shape), params)
            assert drafted.tokens == plain.tokens
            assert drafted.stats == top.stats


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_what_was_counted_adds_up(shape):
    drafted, target = run(SpecConfig("fake", shape=shape, rule="match"), SamplingParams(temperature=0), max_new=40)
    stats = drafted.stats
    assert stats.accepted == sum(stats.accepted_by_depth) == 40 - stats.rounds
    assert stats.accepted_by_depth == sorted(stats.accepted_by_depth, reverse=True)
    assert stats.acceptance_length == pytest.approx(40 / stats.rounds)
    assert len(stats.accepted_by_depth) <= shape.max_depth
    assert stats.rounds == stats.target_calls == target.num_calls


@pytest.mark.parametrize("max_new", range(1, 6))
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_no_node_is_deeper_than_the_request(shape, max_new):
    drafted, target = run(SpecConfig("fake", shape=shape), SamplingParams(temperature=0), max_new=max_new)
    assert len(drafted.tokens) == max_new
    assert target.longest <= len(PROMPT) + max_new - 1


def test_the_length_limit_bounds_depth_and_not_nodes():
    target = fake_target(**TARGET, max_model_len=len(PROMPT) + 3, make=ReferenceTreeTarget)
    cfg = SpecConfig("fake", shape=Expansion((4, 4, 1)), rule="match")
    proposer = LawProposer(law_of({"target": TARGET, "proposer": TOY}))
    generated = generate(target, cfg, PROMPT, PARAMS["greedy"], 1, 50, [], proposer=proposer)
    assert len(generated.tokens) == 4
    assert generated.finish_reason == "length"
    assert target.longest == len(PROMPT) + 3


def test_an_eos_inside_an_accepted_path_ends_the_text():
    plain, _ = run(config_of("none", 0), PARAMS["greedy"])
    for shape, eos in product(SHAPES, set(plain.tokens)):
        drafted, target = run(SpecConfig("fake", shape=shape), PARAMS["greedy"], eos=[eos])
        end = plain.tokens.index(eos) + 1
        assert (drafted.tokens, drafted.finish_reason) == (plain.tokens[:end], "stop")
        assert target.ctx == PROMPT + plain.tokens[: end - 1]


def test_nothing_stays_cached_that_was_not_kept():
    target = fake_target(**TARGET, make=ReferenceTreeTarget)
    cfg = SpecConfig("fake", shape=Expansion((3, 2)), rule="match")
    heard = []

    def listen(token, _logprob):
        heard.append(token)
        if len(heard) == 8:
            raise ZeroDivisionError
        return True

    with pytest.raises(ZeroDivisionError):
        generate_stream(
            target,
            cfg,
            PROMPT,
            PARAMS["greedy"],
            1,
            24,
            [],
            listen,
            proposer=LawProposer(law_of({"target": TARGET, "proposer": TOY})),
        )
    assert target.ctx == PROMPT + heard[:-1]


def test_drafts_have_a_stream_of_their_own():
    """However much a draft draws, the target's draws are those of the same rule over the same trees."""
    cfg = SpecConfig("fake", shape=Expansion((2, 2)), children="iid")
    one, other = (run(cfg, SamplingParams(), seed=7, choice=choice)[0].tokens for choice in (0, 1))
    assert one != other
    assert one == run(cfg, SamplingParams(), seed=7)[0].tokens


def test_a_proposer_has_the_parameters_of_the_request():
    proposer = LawProposer(law_of({"target": TARGET, "proposer": TOY}))
    run(SpecConfig("fake", 2), SamplingParams(temperature=0, top_k=3), eos=[6], proposer=proposer)
    assert proposer.params == SamplingParams(top_k=3, stop_token_ids=(6,))


class ChainTarget:
    """A target that knows chains only."""

    def cached(self):
        return 0

    def extend(self, ids):
        raise AssertionError("refused before")

    def truncate(self, length):
        raise AssertionError("refused before")


PROPOSER = LawProposer(lambda _: np.ones(8) / 8)


@pytest.mark.parametrize(
    ("cfg", "options", "told"),
    [
        (SpecConfig("fake", 2), {}, "draft is 'fake'"),
        (SpecConfig("ngram", 2), {"proposer": PROPOSER}, "draft is 'ngram'"),
        (SpecConfig("fake", shape=Sequoia((0.5,), "auto", 2)), {"proposer": PROPOSER}, "nodes is 'auto'"),
        (SpecConfig("fake", shape=Dynamic("auto", 2, 2)), {"proposer": PROPOSER}, "nodes is 'auto'"),
        (SpecConfig("fake", shape=Expansion((2,))), {"proposer": PROPOSER}, "shape is 'expansion'"),
        (SpecConfig("fake", 2, children="iid"), {"proposer": PROPOSER, "verify": "match"}, "rule is 'match'"),
        (SpecConfig("fake", 2), {"proposer": PROPOSER, "verify": "traversal"}, "rule is 'traversal'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_cached(cfg, options, told):
    with pytest.raises(SpecError, match=told):
        generate(ChainTarget(), cfg, PROMPT, SamplingParams(), 1, 4, [], **options)


@pytest.mark.parametrize(
    ("tokens", "parents"), [([1], []), ([1, 2], [-1, 1]), ([1], [-2]), ([1, 2], [1, -1]), ([1] * 65, [-1] * 65)]
)
def test_what_is_no_tree_is_refused(tokens, parents):
    with pytest.raises(SpecError):
        DraftTree(tokens, parents)


def test_a_tree_knows_its_paths():
    tree = DraftTree([5, 6, 7, 8], [-1, -1, 0, 2])
    assert (tree.depths, tree.path_to(3), tree.tokens_to(3), tree.path_to(-1)) == (
        [1, 1, 2, 3],
        [0, 2, 3],
        [5, 7, 8],
        [],
    )
    assert tree.children() == [[2], [], [3], [], [0, 1]]
    assert not tree.is_chain
    assert DraftTree.chain([5, 6, 7]).is_chain
    assert list(DraftTree.chain([5, 6, 7]).parents) == [-1, 0, 1]


@pytest.mark.parametrize("num_pending", [1, 3])
def test_a_pass_is_fed_the_pending_tokens_and_then_the_tree(num_pending):
    tree = DraftTree([5, 6, 7], [-1, -1, 0])
    assert tree.fed_after(num_pending)[:num_pending] == list(range(-1, num_pending - 1))
    end = num_pending - 1
    assert tree.fed_after(num_pending)[num_pending:] == [end, end, num_pending]


def test_nothing_is_moved_for_a_path_at_the_front():
    assert compaction(10, 1, [0, 1, 2], 4) == ([], 14)
    assert compaction(10, 1, [0, 2, 5], 4) == ([(13, 12), (16, 13)], 14)
    assert compaction(10, 1, [0, 2, 5], 2) == ([], 12)


def test_auto_is_a_number_by_the_time_that_a_tree_grows():
    for shape in (Sequoia((0.5,), "auto", 2), Dynamic("auto", 2, 2)):
        with pytest.raises(SpecError, match="auto"):
            grown(shape, lambda _: np.ones(2) / 2, [])


def test_a_tree_that_draws_may_not_depend_on_what_it_drew():
    for shape in (Dynamic(4, 2, 2), BestFirst(4), Chain(3, p_min=0.1), Static(((0,), (2,)))):
        with pytest.raises(SpecError, match="children"):
            grown(shape, lambda _: np.ones(2) / 2, [], "iid")


def test_values_are_those_of_the_path_and_absent_where_nodes_were_drawn():
    law = law_of({"target": TARGET, "proposer": TOY})
    for shape in SHAPES:
        drafted = grown(shape, law, PROMPT)
        for node in range(len(drafted.tree)):
            value, ctx = 1.0, list(PROMPT)
            for token in drafted.tree.tokens_to(node):
                value *= law(ctx)[token]
                ctx.append(token)
            assert drafted.values[node] == pytest.approx(value, rel=1e-12)
    assert grown(Expansion((2, 2)), law, PROMPT, "distinct").values is None


def test_equal_values_go_to_the_shallower_and_then_to_what_was_opened_first():
    drafted = grown(BestFirst(5, 0.125), lambda _: np.array([0.5, 0.5, 0.0]), [])
    assert (drafted.tree.tokens, drafted.tree.parents) == ([0, 1, 0, 1, 0], [-1, -1, 0, 0, 1])
    drafted = grown(Dynamic(4, 2, 2), lambda _: np.array([0.5, 0.5, 0.0]), [])
    assert (drafted.tree.tokens, drafted.tree.parents) == ([0, 1, 0, 1], [-1, -1, 0, 0])


def test_nodes_pay_while_they_bring_more_than_they_cost():
    """One token and what is accepted, over a pass with a row more than nodes and the layers of the proposer."""
    sums, layers, pass_cost = [0.5, 0.75, 0.875], [1, 2, 2], [0.0, 1.0, 1.0, 1.0, 1.25]
    assert nodes_that_pay(sums, layers, pass_cost, 0.0) == (2, 1.75)
    assert nodes_that_pay(sums, layers, pass_cost, 0.5) == (1, 1.0)
    with pytest.raises(SpecError, match="pass_cost"):
        nodes_that_pay(sums, layers, pass_cost[:-1], 0.0)
