"""The laws of every kind of heads: the papers' forward pass, the same bits in any company, and no trace of a draft."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from models import Chunk, FakeModel, SlotMove
from models.heads import Words, build_heads
from models.kernel_choice import build_llama
from tests.heads.beside import BLOCK_TOKENS, KERNELS, Beside, path_to, states_of
from tests.heads.reference import law_after
from tests.heads.tiny import CONFIG, KINDS, in_eight_bits, target_weights, tiny_heads

IDS = np.random.default_rng(3).integers(0, 97, 60).tolist()
TREE = ([5, 9, 11, 5, 30, 9], [-1, -1, 0, 0, 1, 1])  # two layers, as deep as three medusa heads go


@pytest.fixture(params=KERNELS, scope="module")
def kernel(request):
    return request.param


@pytest.fixture(scope="module")
def model(kernel):
    return build_llama(CONFIG, target_weights(), kernel, 1)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def beside(kind, kernel, model):
    return Beside(tiny_heads(kind), kernel, model)


@pytest.mark.parametrize("variant", ["whole", "reduced", "own output", "8 bits"])
def test_the_forward_pass_of_the_paper(kind, kernel, model, variant):
    heads = tiny_heads(kind, is_reduced=variant != "whole", has_output=variant in ("own output", "8 bits"))
    heads = in_eight_bits(heads) if variant == "8 bits" else heads
    beside = Beside(heads, kernel, model)
    for length in (1, 2, 3, 6, 40):
        ids = IDS[:length]
        states = states_of(beside.target, ids)
        found = beside.fresh(ids, TREE)
        for node in range(-1, len(TREE[0])):
            expected = law_after(heads, CONFIG, beside.weights, states, ids, path_to(TREE, node))
            np.testing.assert_allclose(found[node + 1], expected, atol=1e-4, err_msg=f"{length}, node {node}")
            assert expected.max() > 1.5 / 97  # no flat law, of which anything is near


def test_laws_do_not_depend_on_company(beside):
    contexts = [(IDS[:13], [3, 0, 7, 1]), (IDS[20:29], [2, 9, 4]), (IDS[30:31], [5]), (IDS[40:60], [6, 8, 10, 11, 12])]
    expected = [beside.fresh(ids, TREE) for ids, _ in contexts]
    beside.prefill(IDS[50:60], [5, 4, 3])  # another sequence had these blocks
    for ids, table in contexts:
        cuts = [0, min(5, len(ids) - 1), len(ids) - 1]
        for first, end in pairwise(cuts):
            if end > first:
                beside.prefill(ids[first:end], table, first)
    beside.begin(*contexts)
    numbered = list(enumerate(contexts))
    for layer in ([-1], [0, 1], [2, 3, 4, 5]):
        end = max(layer) + 1
        tokens, parents = TREE[0][:end], TREE[1][:end]
        asks = [(place, ids, table, tokens, parents, layer) for place, (ids, table) in reversed(numbered)]
        rows = beside.laws(*asks).reshape(len(contexts), len(layer), -1)
        for place, found in zip(reversed(range(len(contexts))), rows, strict=True):
            np.testing.assert_array_equal(found, expected[place][[node + 1 for node in layer]])


def test_places_are_counted_by_the_contexts_that_end(beside):
    """A chunk of prefill in the same call has no place."""
    expected = beside.fresh(IDS[:9], TREE)
    beside.prefill(IDS[:8], [0, 1, 2])
    beside.target.forward([Chunk(IDS[20:23], 0, [5], 0)])
    beside.proposer.feed([Chunk(IDS[20:23], 0, [5], 0), Chunk(IDS[8:9], 8, [0, 1, 2], 1)])
    np.testing.assert_array_equal(beside.layers(0, IDS[:9], [0, 1, 2], TREE), expected)


def test_a_rejected_draft_leaves_no_trace(beside):
    table = [4, 2, 0, 1]
    beside.prefill(IDS[:6], table)
    beside.begin((IDS[:7], table))
    beside.layers(0, IDS[:7], table, ([8, 8, 8, 1], [-1, 0, -1, 2]))
    #   a round: the target runs the last token and the tree, and keeps the second branch's first node
    beside.target.forward([Chunk([IDS[6], 8, 8, IDS[7], 1], 6, table, 1, [-1, 0, 1, 0, 3])])
    beside.target.move_slots([SlotMove(table, 9, 7)])
    beside.proposer.feed([Chunk(IDS[6:9], 6, table, 1)])
    np.testing.assert_array_equal(beside.layers(0, IDS[:9], table, TREE), beside.fresh(IDS[:9], TREE))


def test_blocks_are_shared_by_what_they_hold(beside):
    """Two sequences with the same first block, which the second never feeds."""
    first, second = IDS[:11], IDS[:BLOCK_TOKENS] + IDS[30:36]
    beside.prefill(first[:-1], [0, 1, 2])
    beside.begin((first, [0, 1, 2]))
    beside.layers(0, first, [0, 1, 2], TREE)
    beside.prefill(second[BLOCK_TOKENS:-1], [0, 5, 6], BLOCK_TOKENS)
    beside.begin((second, [0, 5, 6]), (first, [0, 1, 2]))
    np.testing.assert_array_equal(beside.layers(0, second, [0, 5, 6], TREE), beside.fresh(second, TREE))
    np.testing.assert_array_equal(beside.layers(1, first, [0, 1, 2], TREE), beside.fresh(first, TREE))


def test_a_context_fed_again_to_its_end(beside):
    """After an answer that is cut, only the last token is fed, again."""
    beside.prefill(IDS[:9], [0, 1, 2])
    beside.begin((IDS[:9], [0, 1, 2]))
    np.testing.assert_array_equal(beside.layers(0, IDS[:9], [0, 1, 2], TREE), beside.fresh(IDS[:9], TREE))


def test_targets_that_are_not_the_heads_are_refused(kind, kernel, model):
    proposer = build_heads(tiny_heads(kind), CONFIG, target_weights(), kernel)
    untapped = model.with_taps(())
    untapped.bind(2, 4)
    with pytest.raises(ValueError, match=r"the target keeps \(0, 64\) of every slot: the heads read \d states of 64"):
        proposer.bind(2, 4, untapped)
    with pytest.raises(ValueError, match="the heads are for 97 tokens: the target has 98"):
        proposer.bind(2, 4, FakeModel(0, 98, 1, 1.0))
    with pytest.raises(ValueError, match="FakeModel keeps no hidden states: heads draft from them"):
        proposer.bind(2, 4, FakeModel(0, 97, 1, 1.0))


def test_medusa_drafts_as_deep_as_it_has_heads(kernel, model):
    beside = Beside(tiny_heads("medusa"), kernel, model)
    assert beside.proposer.max_depth == 3
    with pytest.raises(ValueError, match="a law is asked for after 3 drafted tokens: 3 heads draft as many"):
        beside.fresh(IDS[:5], ([1, 2, 3], [-1, 0, 1]))


def test_words_in_any_order_are_the_same_words(kind, kernel, model):
    heads = tiny_heads(kind, is_reduced=True, has_output=True)
    ids = heads.ids if kind == "medusa" else heads.words.ids
    order = np.random.default_rng(0).permutation(len(ids))
    if kind == "medusa":
        mixed = replace(heads, ids=ids[order], outputs=tuple(output.reordered(order) for output in heads.outputs))
    else:
        mixed = replace(heads, words=Words(ids[order], heads.words.output.reordered(order)))
    expected, found = (Beside(each, kernel, model).fresh(IDS[:9], TREE) for each in (heads, mixed))
    np.testing.assert_array_equal(found, expected)
