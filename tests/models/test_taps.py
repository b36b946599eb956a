"""Hidden states kept beside the KV: of every slot, in any company, and moved with what they belong to."""

import numpy as np
import pytest

from models.llama import Llama, rms_norm
from models.protocol import Chunk, SlotMove, TappedModel
from models.weights import tiny_llama

BLOCK_TOKENS = 4
TAPS = (0, 2, 1)
IDS = np.random.default_rng(2).integers(0, 97, 23).tolist()
TABLE = [3, 0, 5, 1, 4, 2]


def kernels():
    yield Llama
    try:
        from models.fast_llama import FastLlama  # an extra
    except ImportError:
        return
    yield FastLlama


@pytest.fixture(params=kernels(), ids=lambda kind: kind.__name__)
def tapped(request):
    model = request.param(*tiny_llama(4)).with_taps(TAPS)
    model.bind(8, BLOCK_TOKENS)
    return model


def kept(model, table, slots):
    slots = np.array(slots)
    return model.features(np.array(table)[slots // BLOCK_TOKENS], slots % BLOCK_TOKENS)


def fresh(model, ids):
    """What is kept of each id, fed alone after the ones before it."""
    model.bind(8, BLOCK_TOKENS)
    for i, token in enumerate(ids):
        model.forward([Chunk([token], i, TABLE, 0)])
    return kept(model, TABLE, range(len(ids)))


def test_the_first_tap_is_the_embedding_and_the_last_gives_the_logits(tapped):
    assert isinstance(tapped, TappedModel)
    config, weights = tiny_llama(4)
    rows = tapped.forward([Chunk(IDS, 0, TABLE, len(IDS))])
    states = kept(tapped, TABLE, range(len(IDS)))
    assert states.shape == (len(IDS), 3, config.dim)
    np.testing.assert_array_equal(states[:, 0], weights.embedding.rows(np.array(IDS)))
    logits = rms_norm(states[:, 1], weights.norm, config.norm_eps) @ weights.embedding.dense().T
    np.testing.assert_allclose(logits, rows, rtol=1e-4, atol=1e-4)
    assert np.abs(states[:, 2] - states[:, 0]).max() > 0.1 < np.abs(states[:, 2] - states[:, 1]).max()


def test_what_is_kept_does_not_depend_on_company(tapped):
    expected = fresh(tapped, IDS)
    tapped.bind(16, BLOCK_TOKENS)
    other = [9, 10, 11, 12, 13, 14]
    tapped.forward([Chunk(IDS[:9], 0, TABLE, 1), Chunk(IDS[:2], 0, other, 2)])
    tapped.forward([Chunk(IDS[2:], 2, other, 0), Chunk(IDS[9:], 9, TABLE, 3)])
    np.testing.assert_array_equal(kept(tapped, TABLE, range(len(IDS))), expected)
    np.testing.assert_array_equal(kept(tapped, other, range(len(IDS))), expected)


def test_an_accepted_path_takes_its_hidden_states_along(tapped):
    expected = fresh(tapped, IDS[:8])
    tapped.bind(8, BLOCK_TOKENS)
    tapped.forward([Chunk(IDS[:5], 0, TABLE, 0)])
    #   a tree after the fifth token: a wrong sibling first, the path of two in slots 7 and 9
    tree = [IDS[5], (IDS[6] + 1) % 97, IDS[6], (IDS[7] + 1) % 97, IDS[7]]
    tapped.forward([Chunk(tree, 5, TABLE, 5, [-1, 0, 0, 2, 2])])
    tapped.move_slots([SlotMove(TABLE, 7, 6), SlotMove(TABLE, 9, 7)])
    np.testing.assert_array_equal(kept(tapped, TABLE, range(8)), expected)


def test_a_copy_keeps_what_the_original_does_not(tapped):
    original = type(tapped)(*tiny_llama(4))
    copy = original.with_taps([1])
    original.bind(8, BLOCK_TOKENS)
    copy.bind(8, BLOCK_TOKENS)
    chunk = [Chunk(IDS, 0, TABLE, 1)]
    np.testing.assert_array_equal(original.forward(chunk), copy.forward(chunk))
    assert kept(original, TABLE, [0]).shape == (1, 0, 40)
    assert kept(copy, TABLE, [0]).shape == (1, 1, 40)


def test_taps_that_a_model_does_not_have_are_refused(tapped):
    with pytest.raises(ValueError, match=r"tap 3: must be in \[0, 2\], a number of layers"):
        tapped.with_taps([0, 3])
    with pytest.raises(ValueError, match=r"taps \[1, 1\]: each may be there once"):
        tapped.with_taps([1, 1])
