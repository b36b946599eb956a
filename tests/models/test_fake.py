"""The target without weights: its rows are those of the definition, and no wrong block goes unseen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import Chunk, FakeModel, KvMismatch
from models.checked_kv import chained, checksum
from tests import reference as ref

B = 4


def bound(seed=1, vocab=8, order=2, sharp=4.0, num_blocks=16):
    model = FakeModel(seed, vocab, order, sharp)
    model.bind(num_blocks, B)
    return model


def expected(ctx, seed=1, vocab=8, order=2, sharp=4.0):
    spec = {"seed": seed, "vocab": vocab, "order": order, "sharp": sharp}
    return np.array(ref.fake_row(spec, list(ctx)), np.float32)


def chunk(ids, start=0, table=None, num_rows=None):
    ids = list(ids)
    table = list(range(-(-(start + len(ids)) // B))) if table is None else table
    return Chunk(ids, start, table, len(ids) if num_rows is None else num_rows)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(1, 40),
    st.integers(1, 5),
    st.floats(0, 100),
    st.data(),
)
def test_rows_are_those_of_the_definition(seed, vocab, order, sharp, data):
    ctx = data.draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=12))
    rows = bound(seed, vocab, order, sharp).forward([chunk(ctx)])
    assert rows.dtype == np.float32
    for i, row in enumerate(rows):
        assert (row == expected(ctx[: i + 1], seed, vocab, order, sharp)).all()


@given(st.lists(st.integers(0, 7), min_size=2, max_size=20), st.permutations(range(16)), st.data())
def test_rows_do_not_depend_on_blocks_cuts_or_company(ctx, table, data):
    cut = data.draw(st.integers(1, len(ctx) - 1))
    model = bound(num_blocks=16)
    needed = -(-len(ctx) // B)
    mine, others = table[:needed], table[needed : 2 * needed]
    first = model.forward([chunk(ctx[:cut], 0, mine[: -(-cut // B)], 0), chunk(ctx[::-1], 0, others, 1)])
    assert len(first) == 1
    rows = model.forward([chunk(ctx[cut:], cut, mine)])
    assert (rows == np.array([expected(ctx[: i + 1]) for i in range(cut, len(ctx))])).all()


@pytest.mark.parametrize("num_rows", [0, 1, 3, 6])
def test_rows_are_given_for_the_last_ids_only_and_chunk_after_chunk(num_rows):
    ctx, other = [1, 2, 3, 4, 5, 6], [6, 5]
    rows = bound().forward([chunk(ctx, num_rows=num_rows), chunk(other, table=[9], num_rows=1)])
    wanted = [expected(ctx[: i + 1]) for i in range(6 - num_rows, 6)] + [expected(other)]
    assert (rows == np.array(wanted)).all()


def written(model, ctx, table):
    model.forward([chunk(ctx, 0, table, 0)])
    return model


CTX = [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("table", "start", "at"),
    [
        ([0, 2], 6, "position 4 in block 2"),  # never written
        ([1, 0], 6, "position 0 in block 1"),  # in the wrong order
        ([3, 1], 6, "position 4 in block 1"),  # after another sequence's
        ([0, 4], 6, "position 4 in block 4"),  # the other's second block, whose tokens are the same
        ([0, 1], 7, "position 6 in block 1"),  # a position that was never fed
    ],
)
def test_a_table_that_leads_to_other_memory_is_a_mismatch(table, start, at):
    model = written(written(bound(), CTX, [0, 1]), [0, *CTX[1:]], [3, 4])
    with pytest.raises(KvMismatch, match=at):
        model.forward([chunk([7], start, table)])
    model.forward([chunk([7], 6, [0, 1])])


def test_a_block_that_was_given_to_another_is_a_mismatch():
    model = written(bound(), CTX, [0, 1])
    written(model, [7, 7], [1])
    with pytest.raises(KvMismatch, match=r"chunk 0 \(start 6\): position 4 in block 1 holds token 7 of position 0"):
        model.forward([chunk([7], 6, [0, 1])])


def test_what_a_rejected_draft_wrote_is_overwritten_and_not_read():
    model = written(bound(), [*CTX, 0, 0], [0, 1])
    rows = model.forward([chunk([3], 6, [0, 1])])
    assert (rows[0] == expected([*CTX, 3])).all()
    rows = model.forward([chunk([2], 7, [0, 1])])
    assert (rows[0] == expected([*CTX, 3, 2])).all()


def test_a_table_of_the_wrong_length_is_a_mismatch():
    for table in ([0], [0, 1, 2]):
        with pytest.raises(KvMismatch, match=f"chunk 0: {len(table)} blocks for 6 slots"):
            bound().forward([chunk(CTX, 0, table)])


def test_the_mismatch_names_the_chunk():
    model = written(bound(), CTX, [0, 1])
    with pytest.raises(KvMismatch, match="chunk 1 "):
        model.forward([chunk([7], 6, [0, 1]), chunk([7], 1, [5])])


def test_binding_again_forgets_everything():
    model = written(bound(), CTX, [0, 1])
    model.bind(16, B)
    with pytest.raises(KvMismatch):
        model.forward([chunk([7], 6, [0, 1])])


def test_prefixes_can_be_shared():
    model = written(bound(), CTX, [0, 1])
    rows = model.forward([chunk([5, 0], 4, [0, 2]), chunk([5, 1], 4, [0, 3])])
    assert (rows[[1, 3]] == np.array([expected([*CTX[:4], 5, 0]), expected([*CTX[:4], 5, 1])])).all()


def test_senseless_measures_are_refused():
    for vocab, order in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match=f"vocab is {vocab} and order {order}"):
            FakeModel(1, vocab, order, 1.0)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=8), st.integers(0, 2**31 - 1))
def test_checksums_chain(tokens, token):
    assert chained(checksum(tokens), token) == checksum([*tokens, token])
