"""Every vector about trees: nodes, tokens, paths and generators equal, floats to 1e-9."""

import msgspec
import numpy as np
import pytest

import spec
from kvpool import blocks_for
from spec.children import take_children
from spec.layout import layout
from spec.sequoia import chance, sequoia_nodes
from tests import reference as ref
from tests.spec.proposers import LawProposer, grown, law_of
from tests.spec.targets import ReferenceTreeTarget, fake_target, params_of
from tests.spec.vectors import close, each


def shape_of(fields):
    """A shape from its fields as JSON has them; a suffix's chain has its own floor, which is no part of it."""
    shape = {name: value for name, value in fields.items() if (fields["kind"], name) != ("chain", "min_prob")}
    return msgspec.convert(shape, spec.Shape)


@each("tree_shapes", "chain", "expansion", "static", "sequoia")
def test_fixed_shapes(case):
    if "error" in case:
        with pytest.raises(msgspec.ValidationError):
            shape_of({"kind": case["kind"], **case["args"]})
        return
    shape = shape_of({"kind": case["kind"], **case["args"]})
    plan = layout(shape, 64)
    tree = spec.DraftTree(plan.ranks, plan.parents)  # the ranks stand in for tokens
    if "sum" in case:
        chances = [chance(shape.acceptance, tree.tokens_to(node)) for node in range(len(tree))]
        assert sum(chances) == close(case["sum"])
        assert len(tree) <= case["args"]["nodes"]
        assert max(tree.depths, default=0) <= case["args"]["depth"]
    if not case.get("any_tree"):
        assert (plan.parents, plan.ranks, tree.depths) == (case["parents"], case["ranks"], case["depths"])
        if "ancestors" in case:
            assert [tree.path_to(node) for node in range(len(tree))] == case["ancestors"]
        assert len(tree) <= shape.max_nodes
        assert max(tree.depths, default=0) <= shape.max_depth


@each("tree_shapes", "sequoia_auto")
def test_how_many_nodes_pay(case):
    paying = sequoia_nodes(**case["args"])
    assert paying.nodes == case["nodes"]
    assert paying.rate == close(case["rate"])


@each("tree_shapes", "dynamic", "best_first", "chain_p_min")
def test_shapes_made_by_the_law(case):
    kind = "chain" if case["kind"] == "chain_p_min" else case["kind"]
    drafted = grown(shape_of({"kind": kind, **case["args"]}), law_of(case), case["ctx"])
    tree = drafted.tree
    assert drafted.draft_probs is None
    if kind == "best_first":
        expected = spec.DraftTree(case["tokens"], case["parents"])
        values = {tuple(tree.tokens_to(node)): drafted.values[node] for node in range(len(tree))}
        nodes = range(len(expected))
        assert values == close({tuple(expected.tokens_to(node)): case["values"][node] for node in nodes})
    else:
        assert (list(tree.tokens), list(tree.parents)) == (case["tokens"], case["parents"])
        if "values" in case:
            assert drafted.values == close(case["values"])


@each("tree_shapes", "combination")
def test_combinations(case):
    def make():
        return spec.SpecConfig("fake", shape=shape_of(case["shape"]), children=case["children"], rule=case["rule"])

    if case["refused"]:
        with pytest.raises(spec.SpecError):
            make()
    else:
        make()


@each("tree_shapes", "compaction")
def test_compaction(case):
    args = case["args"]
    end = args["cached"] + args["pending"] + args["nodes"]
    moves, cached = spec.compaction(args["cached"], args["pending"], args["path"], args["kept"])
    assert ([list(move) for move in moves], cached) == (case["moves"], case["cached"])
    assert blocks_for(end, args["block_tokens"]) == case["blocks_in_pass"]
    assert blocks_for(cached, args["block_tokens"]) == case["blocks_after"]
    slots = list(range(end))
    for source, destination in moves:
        slots[destination] = slots[source]
    first = args["cached"] + args["pending"]
    assert slots[:cached] == [*range(first), *(first + node for node in args["path"][: cached - first])]


@each("tree_children", "node")
def test_children_of_a_node(case):
    rng = spec.Pcg32(case["initstate"], case["initseq"])
    assert take_children(np.array(case["q"]), case["k"], case["children"], rng) == case["tokens"]
    assert rng.next_u32() == case["next_u32"]


@each("tree_children", "tree")
def test_children_of_a_tree(case):
    rng = spec.Pcg32(case["initstate"], case["initseq"])
    max_depth = 64 if case["max_depth"] is None else case["max_depth"]
    drafted = grown(shape_of(case["shape"]), law_of(case), case["ctx"], case["children"], max_depth, rng)
    assert (list(drafted.tree.tokens), list(drafted.tree.parents)) == (case["tokens"], case["parents"])
    assert rng.next_u32() == case["next_u32"]
    if case["draft_probs"] is None:
        assert drafted.draft_probs is None
    else:
        assert np.array(drafted.draft_probs).tolist() == [close(law) for law in laws_of(case["draft_probs"])]


def laws_of(draft_probs):
    """An integer stands for the law at that index before."""
    laws = []
    for law in draft_probs:
        laws.append(laws[law] if isinstance(law, int) else [float(mass) for mass in law])
    return laws


NAMED = {None: -np.inf, "inf": np.inf, "nan": np.nan}


def plain(values):
    return [NAMED.get(value, value) if isinstance(value, str | None) else value for value in values]


@each("tree_verify")
def test_verify_tree(case):
    rng = spec.Pcg32(case["initstate"], case["initseq"])
    state = rng.state

    def verify():
        probs = case["draft_probs"]
        return spec.verify_tree(
            [np.array(plain(row), np.float32) for row in case["rows"]],
            spec.DraftTree(case["tokens"], case["parents"]),
            None if probs is None else [np.array(law) for law in laws_of(probs)],
            params_of({**ref.DEFAULT_PARAMS, **case["params"]}),
            case["prompt"],
            case["output"],
            rng,
            rule=case["rule"],
            children=case["children"],
        )

    if "error" in case:
        with pytest.raises(spec.SpecError):
            verify()
        assert rng.state == state
    else:
        verified, expected = verify(), case["expect"]
        assert (verified.tokens, list(verified.path)) == (expected["tokens"], expected["path"])
        assert verified.n_accepted == expected["n_accepted"]
        assert verified.logprobs == close(expected["logprobs"])
    assert rng.next_u32() == case["next_u32"]


def config_for(case):
    """The configuration of a whole generation."""
    proposer, choices = case["proposer"], {"children": case["children"], "rule": case["rule"]}
    shape = shape_of(case["shape"])
    match proposer["kind"]:
        case "toy":
            return spec.SpecConfig("fake", shape=shape, **choices)
        case "text":
            names = {name: proposer[name] for name in ("occurrence", "max_ngram", "min_ngram")}
            return spec.SpecConfig(proposer["method"], shape=shape, **names, **choices)
        case "suffix":
            floor = {"min_prob": case["shape"]["min_prob"]} if case["shape"]["kind"] == "chain" else {}
            names = {name: proposer[name] for name in ("max_depth", "factor")}
            return spec.SpecConfig("suffix", shape=shape, **names, **floor, **choices)
        case _:
            return spec.SpecConfig("none", shape=shape, **choices)


def finished_of(texts):
    finished = spec.FinishedRequests()
    for text in texts:
        finished.add(None, text)
    finished.take_in(sum(map(len, texts)))
    return finished


@each("tree_loop")
def test_generate_with_trees(case, monkeypatch):
    streams = []

    def draft_stream(seed, choice):
        streams.append(spec.draft_stream(seed, choice))
        return streams[-1]

    monkeypatch.setattr("spec.loop.draft_stream", draft_stream)
    cfg = config_for(case)
    target = fake_target(**case["target"], make=ReferenceTreeTarget)
    fed = []
    extend = target.extend

    def record(ids, parents=None):
        fed.append((list(ids), parents))
        return extend(ids, parents)

    target.extend = record
    generated = spec.generate(
        target,
        cfg,
        case["prompt"],
        params_of({**ref.DEFAULT_PARAMS, **case["params"]}),
        case["seed"],
        case["max_new"],
        case["eos"],
        choice=case["choice"],
        proposer=LawProposer(law_of(case)) if cfg.draft.needs_proposer else None,
        finished=finished_of(case["proposer"].get("finished", [])),
    )
    num_pending = [len(case["prompt"])] + [1] * (len(fed) - 1)
    rounds = []
    for (ids, parents), pending in zip(fed, num_pending, strict=True):
        chain = range(-1, len(ids) - 1)
        rounds.append((ids[pending:], [max(-1, parent - pending) for parent in (parents or chain)[pending:]]))
    assert rounds == [(tokens, parents) for tokens, parents, *_ in case["rounds"]]
    assert [list(move) for move in target.moves] == [move for *_, moves in case["rounds"] for move in moves]
    stats = generated.stats
    assert generated.tokens == case["tokens"]
    assert generated.logprobs == close(case["logprobs"])
    assert generated.finish_reason == case["finish_reason"]
    for field in ("drafted", "accepted", "accepted_by_depth", "target_calls"):
        assert getattr(stats, field) == case[field]
    assert (stats.rounds, target.num_calls, target.cached()) == (len(case["rounds"]), len(fed), case["cached"])
    assert streams[0].next_u32() == case["draft_next_u32"]
