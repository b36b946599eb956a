"""Laws over a part of the vocabulary grow the trees that they would grow as whole ones, and are verified by as such."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import BestFirst, Chain, DraftVocabulary, Dynamic, Expansion, Pcg32, Sequoia, grow

FIXED = [Chain(4), Expansion((2, 2, 1)), Sequoia((0.6, 0.2), 7, 4)]
CASES = [(shape, children) for shape in FIXED for children in ("top", "iid", "distinct")]
CASES += [(shape, "top") for shape in (Chain(4, 0.2), Dynamic(6, 3, 3), BestFirst(5, 0.01))]
VOCAB_SIZE = 30


def drafted(shape, children, vocabulary, law):
    growth = grow(shape, children, 5, Pcg32(3), vocabulary)
    while growth.frontier:
        growth.feed(np.array([law(growth.tokens, growth.parents, node) for node in growth.frontier]))
    return growth.result()


@pytest.mark.parametrize(("shape", "children"), CASES)
@given(
    ids=st.sets(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=8).map(sorted),
    seed=st.integers(0, 99),
    num_levels=st.integers(1, 9),
)
def test_a_tree_over_some_words_is_that_over_all(shape, children, ids, seed, num_levels):
    vocabulary = DraftVocabulary(np.array(ids), VOCAB_SIZE)

    def narrow(tokens, parents, node):
        path = [seed]
        while node >= 0:
            path.append(tokens[node])
            node = parents[node]
        weights = np.random.default_rng(path).integers(0, num_levels, len(ids)) + 1.0  # there may be ties
        return weights / weights.sum()

    found = drafted(shape, children, vocabulary, narrow)
    whole = drafted(shape, children, None, lambda *asked: vocabulary.widen(narrow(*asked)))
    assert (found.tree.tokens, found.tree.parents, found.values) == (
        whole.tree.tokens,
        whole.tree.parents,
        whole.values,
    )
    assert all(type(token) is int for token in found.tree.tokens)
    assert (found.draft_probs is None) == (whole.draft_probs is None)
    for law, other in zip(found.draft_probs or (), whole.draft_probs or (), strict=True):
        np.testing.assert_array_equal(law, other)
