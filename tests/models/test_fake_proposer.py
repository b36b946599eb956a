"""The proposer without weights: its law is the definition's, and no state but the right one goes unseen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import Ask, Chunk, FakeModel, FakeProposer, KvMismatch, LoneFakeProposer
from spec import SamplingParams
from tests import reference as ref
from tests.models.trees import random_parents

B = 4
TARGET = {"seed": 5, "vocab": 7, "order": 2, "sharp": 5.0}
OTHER = {"seed": 11, "order": 3, "sharp": 4.0}


def proposer_of(mix=0.6, num_blocks=32, **rest):
    proposer = FakeProposer(FakeModel(*TARGET.values()), *OTHER.values(), mix, **rest)
    proposer.bind(num_blocks, B)
    return proposer


def law_of(context, mix=0.6, temperature=1.0, top_k=0):
    """The law from the definition, in plain Python."""
    rows = ref.fake_row(TARGET, context), ref.fake_row({**OTHER, "vocab": TARGET["vocab"]}, context)
    x = [(mix * a + (1 - mix) * b) / temperature for a, b in zip(*rows, strict=True)]
    p = ref.softmax(x)
    best_first = sorted(range(len(p)), key=lambda token: (-x[token], token))
    return ref.keep_only(p, best_first[:top_k] if top_k else best_first)


def table_of(length, first=0):
    return list(range(first, first + math.ceil(length / B)))


def fed(proposer, context, first=0, start=0):
    table = table_of(len(context), first)
    proposer.feed([Chunk(context[start:], start, table, 0)])
    return table


def ask(context, table, tokens=(), parents=(), frontier=(-1,), place=0):
    return Ask(place, table, len(context), tokens, parents, frontier)


CONTEXT = [1, 2, 3, 4, 5, 6]
TREE = [3, 1, 2, 2, 0], [-1, -1, 0, 1, 3]
PATHS = [[3], [1], [3, 2], [1, 2], [1, 2, 0]]


@pytest.mark.parametrize("mix", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.7, 3), (2.0, 1), (1.0, 100)])
@given(context=st.lists(st.integers(0, 6), min_size=1, max_size=11))
def test_laws_are_those_of_the_definition(mix, temperature, top_k, context):
    proposer = proposer_of(mix, temperature=temperature, top_k=top_k)
    laws = proposer.laws([ask(context, fed(proposer, context))])
    assert laws.dtype == np.float64
    np.testing.assert_allclose(laws, [law_of(context, mix, temperature, top_k)], rtol=1e-9)


def test_with_all_weight_on_the_target_the_best_token_is_the_targets():
    proposer, target = proposer_of(1.0), FakeModel(*TARGET.values())
    laws = proposer.laws([ask(CONTEXT, fed(proposer, CONTEXT))])
    assert laws[0].argmax() == target.rows(CONTEXT, 1)[0].argmax()


@given(st.integers(0, 2**32))
def test_trees_of_many_sequences_grow_as_each_would_alone(seed):
    """Layer by layer, over random tables and places, in any company: bit for bit what context and path alone give."""
    generator = np.random.default_rng(seed)
    contexts = [generator.integers(0, 7, generator.integers(1, 13)).tolist() for _ in range(generator.integers(1, 5))]
    blocks = generator.permutation(32).tolist()
    places = generator.permutation(len(contexts)).tolist()
    trees = []
    for _ in contexts:
        parents = random_parents(generator, int(generator.integers(0, 9)))
        trees.append((generator.integers(0, 7, len(parents)).tolist(), parents))
    tables = [blocks[8 * i : 8 * i + math.ceil(len(context) / B)] for i, context in enumerate(contexts)]
    proposer = proposer_of()
    proposer.feed([Chunk(c, 0, table, 0) for c, table in zip(contexts, tables, strict=True)])
    asked = [set() for _ in contexts]
    lone = LoneFakeProposer(proposer)
    while True:
        asks = []
        for i, (tokens, parents) in enumerate(trees):
            ready = [n for n in range(-1, len(tokens)) if n not in asked[i] and (n < 0 or parents[n] in asked[i])]
            if ready and generator.random() < 0.5:
                asks.append((i, Ask(places[i], tables[i], len(contexts[i]), tokens, parents, ready)))
        if not asks and all(len(nodes) == len(tokens) + 1 for nodes, (tokens, _) in zip(asked, trees, strict=True)):
            break
        laws = proposer.laws([each for _, each in asks])
        expected = []
        for i, each in asks:
            asked[i].update(each.frontier)
            lone.begin(contexts[i], [], SamplingParams())
            expected.append(lone.laws(each.tokens, each.parents, each.frontier))
        np.testing.assert_array_equal(laws, np.concatenate([np.empty((0, 7)), *expected]))


def grown(proposer, table, place=0, context=CONTEXT):
    tokens, parents = TREE
    for layer in ([-1], [0, 1], [2, 3], [4]):
        laws = proposer.laws([ask(context, table, tokens, parents, layer, place)])
    return laws


def test_a_node_sees_its_ancestors_and_no_sibling():
    proposer = proposer_of(mix=0.0)
    table = fed(proposer, CONTEXT)
    tokens, parents = TREE
    laws = [proposer.laws([ask(CONTEXT, table, tokens, parents, layer)]) for layer in ([0, 1], [2, 3], [4])]
    for law, path in zip(np.concatenate(laws), PATHS, strict=True):
        np.testing.assert_allclose(law, law_of(CONTEXT + path, mix=0.0), rtol=1e-9)


def test_context_that_was_never_fed_or_is_anothers_is_a_mismatch():
    proposer = proposer_of()
    table = fed(proposer, CONTEXT)
    fed(proposer, [0, *CONTEXT[1:]], first=8)
    for wrong in ([0, 9], [8, 1], [1, 0], [20, 21]):
        with pytest.raises(KvMismatch):
            proposer.laws([ask(CONTEXT, wrong)])
    with pytest.raises(KvMismatch, match="position 6 in block 1"):
        proposer.laws([ask([*CONTEXT, 0], table)])  # emitted, but not fed
    with pytest.raises(KvMismatch):
        proposer.feed([Chunk([1], 7, table, 0)])  # fed with a gap
    proposer.bind(32, B)
    with pytest.raises(KvMismatch):
        proposer.laws([ask(CONTEXT, table)])


def test_state_kept_after_a_rollback_is_another_law_or_a_mismatch():
    proposer = proposer_of(mix=0.0)
    table = fed(proposer, [*CONTEXT, 3, 3])
    short = proposer.laws([ask([*CONTEXT, 3], table)])  # as far as it was kept it still holds
    np.testing.assert_allclose(short, [law_of([*CONTEXT, 3], mix=0.0)], rtol=1e-9)
    proposer.feed([Chunk([1], 6, table, 0)])
    np.testing.assert_allclose(proposer.laws([ask([*CONTEXT, 1], table)]), [law_of([*CONTEXT, 1], mix=0.0)], rtol=1e-9)
    with pytest.raises(KvMismatch):
        proposer.laws([ask([*CONTEXT, 1, 3], table)])


def test_nodes_live_until_tokens_are_fed():
    proposer = proposer_of()
    table = fed(proposer, CONTEXT)
    grown(proposer, table)
    tokens, parents = TREE
    proposer.laws([ask(CONTEXT, table, [*tokens, 5], [*parents, 4], [5])])
    fed(proposer, [*CONTEXT, 3], start=6)
    with pytest.raises(KvMismatch, match="place 0: node 4 hangs on node 3, which has not been asked for"):
        proposer.laws([ask([*CONTEXT, 3], table, tokens, parents, [4])])


def test_nodes_of_another_place_or_context_are_a_mismatch():
    proposer = proposer_of()
    other = [0, *CONTEXT[1:]]
    table, others = table_of(6), table_of(6, first=8)
    proposer.feed([Chunk(CONTEXT, 0, table, 0), Chunk(other, 0, others, 0)])
    grown(proposer, table)
    tokens, parents = TREE
    with pytest.raises(KvMismatch, match="place 1: node 4 hangs on node 3"):
        proposer.laws([ask(CONTEXT, table, tokens, parents, [4], place=1)])
    with pytest.raises(KvMismatch, match="place 0: the ancestors of node 4 grew from another context"):
        proposer.laws([ask(other, others, tokens, parents, [4])])


def test_what_makes_no_sense_is_refused():
    for wrong in ({"mix": 1.5}, {"mix": math.nan}, {"temperature": 0.0}, {"temperature": math.nan}, {"top_k": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
            proposer_of(**wrong)
    with pytest.raises(ValueError, match="chunk 0 has parents"):
        proposer_of().feed([Chunk([1, 2], 0, [0], 0, parents=[-1, -1])])
    assert proposer_of().laws([]).shape == (0, 7)


def test_it_strays_after_the_share_of_contexts_that_it_is_told():
    """Where it does not, its law is the target's own; which contexts those are is theirs alone, whoever asks when."""
    target = FakeModel(1, 16, 1, 4.0)
    own = FakeProposer(target, 2, 3, 4.0, 1.0)
    strays = FakeProposer(target, 2, 3, 4.0, 1.0, strays=0.3)
    contexts = [[a, b, c] for a in range(16) for b in range(16) for c in range(4)]
    is_alike = np.isclose(strays.laws_after(contexts), own.laws_after(contexts)).all(axis=1)
    assert abs((~is_alike).mean() - 0.3) < 0.05
    some = np.isclose(strays.laws_after(contexts[::7]), own.laws_after(contexts[::7])).all(axis=1)
    assert (some == is_alike[::7]).all()
    with pytest.raises(ValueError, match=r"strays is 1\.5"):
        FakeProposer(target, 2, 3, 4.0, 1.0, strays=1.5)
