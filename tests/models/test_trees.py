"""Token trees: a row is that of its root path, whatever lies beside it, and what is accepted goes on as a chain."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import Chunk, FakeModel, FakeTarget, KvMismatch, ReplayModel, RunnerTarget, SlotMove, execute
from models.llama import Llama
from models.weights import tiny_llama
from spec import DraftTree, Pcg32, Round, SamplingParams, compaction, verify_round
from tests import reference as ref
from tests.models.trees import (
    assert_trees_are_their_paths,
    greedy_draft,
    random_pass,
    rows_of_chain,
    write_contexts,
)

GREEDY = SamplingParams(temperature=0)
FAKE = {"seed": 7, "vocab": 9, "order": 3, "sharp": 4.0}


@pytest.mark.parametrize("order", [1, 3, 30])
@given(seed=st.integers(0, 2**32), block_tokens=st.integers(1, 9), num_sequences=st.integers(1, 5))
def test_rows_of_the_fake_target_are_those_of_the_paths(order, seed, block_tokens, num_sequences):
    spec = {**FAKE, "order": order}
    generator = np.random.default_rng(seed)
    num_blocks, sequences = random_pass(generator, 9, block_tokens, num_sequences=num_sequences)
    model = FakeModel(*spec.values())
    model.bind(num_blocks, block_tokens)
    write_contexts(model, sequences, block_tokens)
    rows = model.forward([chunk for _, chunk, _ in sequences])
    wanted = [path for _, chunk, paths in sequences for path in paths[len(paths) - chunk.num_rows :]]
    assert rows.tolist() == [ref.fake_row(spec, path) for path in wanted]


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_the_numpy_llama_are_those_of_the_paths(seed):
    assert_trees_are_their_paths(Llama(*tiny_llama(0)), seed, 1 + seed % 7)


@pytest.fixture(scope="module")
def fast():
    if importlib.util.find_spec("numba") is None:
        pytest.skip("the compiled kernels need numba (outrider[fast])")
    from models.fast_llama import FastLlama

    return FastLlama(*tiny_llama(0), num_threads=2)


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_the_fast_llama_are_those_of_the_paths(fast, seed):
    assert_trees_are_their_paths(fast, seed, 1 + seed % 7)


def rows_after_of(spec):
    return lambda tokens: ref.fake_row(spec, tokens)


def fed_tree(context, num_pending, tokens, parents, table, size):
    """A context of which all but the last `num_pending` are cached, and a tree after it."""
    cached = len(context) - num_pending
    ids = context[cached:] + tokens
    table = table[: -(-(cached + len(ids)) // size)]
    tree = DraftTree(tokens, parents).fed_after(num_pending)
    return Chunk(ids, cached, table, len(tokens) + 1, tree)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 9))
def test_what_is_accepted_of_a_tree_goes_on_as_a_chain(seed, size):
    """Round upon round, beside another sequence: the accepted path is moved together and nothing else is seen."""
    generator = np.random.default_rng(seed)
    model = FakeModel(*FAKE.values())
    model.bind(200, size)
    blocks = generator.permutation(200).tolist()
    sequences = [(generator.integers(0, 9, generator.integers(1, 9)).tolist(), blocks[:100]), ([1, 2, 3], blocks[100:])]
    pending = [len(context) for context, _ in sequences]
    for _ in range(4):
        chunks, rounds, paths = [], [], []
        for (context, table), num_pending in zip(sequences, pending, strict=True):
            num_nodes = int(generator.integers(0, 9))
            tokens, parents, path = greedy_draft(rows_after_of(FAKE), context, generator, num_nodes, 9)
            chunks.append(fed_tree(context, num_pending, tokens, parents, table, size))
            rounds.append(Round(tokens, GREEDY, (), (), Pcg32(1), parents=parents))
            paths.append(path)
        for i, result in enumerate(execute(model, chunks, rounds)):
            assert list(result.path) == paths[i]
            sequences[i][0].extend(result.tokens)
            context = sequences[i][0]
            assert result.tokens[-1] == int(np.argmax(ref.fake_row(FAKE, context[:-1])))
            #   the engine may keep less, and gives the room behind that back
            kept = int(generator.integers(1, len(result.tokens) + 1))
            del context[len(context) - len(result.tokens) + kept :]
            pending[i] = 1


TREE = [4, 5, 6, 7], [-1, -1, 1, 2]
PATH = [1, 2, 3]
CONTEXT = [1, 2, 3]


def model_with_tree(parents=TREE[1], size=4):
    model = FakeModel(*FAKE.values())
    model.bind(8, size)
    rows = model.forward([fed_tree(CONTEXT, 3, TREE[0], parents, [0, 1], size)])
    return model, rows


def moves(*pairs, table=(0, 1)):
    return [SlotMove(table, source, destination) for source, destination in pairs]


def test_a_path_that_was_moved_together_is_a_context():
    model, _ = model_with_tree()
    model.move_slots(moves((4, 3), (5, 4), (6, 5)))
    rows = model.forward([Chunk([8], 6, [0, 1], 1)])
    assert rows[0].tolist() == ref.fake_row(FAKE, [1, 2, 3, 5, 6, 7, 8])


@pytest.mark.parametrize(
    ("made", "at"),
    [
        ([], (4, 4)),
        ([(4, 3), (5, 4)], (5, 5)),
        ([(5, 3), (6, 4)], (4, 3)),  # the seams of blocks are looked at first
        ([(4, 3), (6, 4), (5, 5)], (4, 4)),
        ([(3, 3), (5, 4), (6, 5)], (4, 4)),
        ([(6, 5), (5, 4)], (4, 4)),
    ],
    ids=["nothing", "not all", "one too far", "crossed", "the sibling stayed", "the first stayed"],
)
@pytest.mark.parametrize("size", [4, 16])
def test_a_path_that_was_not_moved_together_is_a_mismatch(made, at, size):
    model, _ = model_with_tree(size=size)
    model.move_slots(moves(*made))
    position = at[size == 16]
    with pytest.raises(KvMismatch, match=f"position {position} in block {position // size} "):
        model.forward([Chunk([8], 6, [0, 1][: -(-7 // size)], 1)])


def test_a_move_into_what_had_been_checked_is_checked_again():
    model = FakeModel(*FAKE.values())
    model.bind(2, 8)
    model.forward([Chunk([1, 2, 3, 4, 5, 6], 0, [0], 1)])
    model.forward([Chunk([7], 6, [0], 1)])
    model.move_slots(moves((5, 2), table=(0,)))
    with pytest.raises(KvMismatch, match="position 2 in block 0 holds token 6 of position 5"):
        model.forward([Chunk([7], 6, [0], 1)])


def test_a_row_that_saw_a_sibling_is_another_row():
    _, right = model_with_tree()
    _, wrong = model_with_tree([-1, 0, 1, 2])
    assert (right[:2] == wrong[:2]).all()
    assert (right[2:4] != wrong[2:4]).any(axis=1).all()  # the last one's `order` tokens are on its own path


def test_moving_into_a_block_that_another_holds_is_found_by_the_other():
    model, _ = model_with_tree()
    rows = model.forward([Chunk([4, 8], 3, [0, 2], 2)])  # shares block 0, of which it has the sibling in slot 3
    assert rows[1].tolist() == ref.fake_row(FAKE, [1, 2, 3, 4, 8])
    model.move_slots(moves((4, 3)))
    with pytest.raises(KvMismatch, match="position 4 in block 2"):
        model.forward([Chunk([8], 5, [0, 2], 1)])


def test_all_sources_are_read_before_any_destination_is_written():
    model, _ = model_with_tree()
    model.move_slots(moves((5, 4), (4, 3), (6, 5)))
    model.forward([Chunk([8], 6, [0, 1], 1)])
    model.move_slots([])


@pytest.mark.parametrize(("block", "slot"), [(0, 3), (1, 0), (1, 1)])
def test_a_position_that_is_the_place_among_the_ids_is_found_where_the_node_is_to_serve(block, slot):
    model, _ = model_with_tree()
    model.move_slots(moves((4, 3), (5, 4), (6, 5)))
    model._memory._words[block, slot] += np.uint64(2**32)  # as if the node had been turned for the place it was fed at
    with pytest.raises(KvMismatch, match=f"position {4 * block + slot} in block {block} holds token"):
        model.forward([Chunk([8], 6, [0, 1], 1)])


@pytest.mark.parametrize("parents", [[0], [-2], [1], [-1, -1], []])
def test_parents_that_make_no_tree_are_refused_and_nothing_is_written(parents):
    model, _ = model_with_tree()
    with pytest.raises(ValueError, match="chunk 1: "):
        model.forward([Chunk([3], 3, [0], 1), Chunk([1], 0, [2], 1, parents)])
    model.move_slots(moves((4, 3), (5, 4), (6, 5)))
    model.forward([Chunk([8], 6, [0, 1], 1)])


def test_a_recording_follows_a_tree_with_rows_and_without():
    completion = [4, 5, 6, 7, 8]
    model = ReplayModel([([1, 2, 3], completion)], 12, 11)
    draft, parents = [5, 4, 5, 5, 6, 6], [-1, -1, 0, 1, 2, 3]  # right tokens in wrong places too
    model.bind(8, 4)
    chunk = fed_tree([1, 2, 3], 3, draft, parents, [0, 1, 2], 4)
    round_ = Round(draft, GREEDY, (), (), Pcg32(1), parents=parents)
    (recited,) = execute(model, [chunk], [round_])
    assert (recited.tokens, recited.path) == ([4, 5, 6, 7], [1, 3, 5])
    again = Chunk([7, 8], 6, [0, 1], 2)
    assert model.forward([again]).argmax(axis=1).tolist() == [8, 11]  # what it accepted has been moved together
    model.bind(8, 4)
    verified = verify_round(model.forward([chunk]), round_)
    assert (verified.tokens, list(verified.path)) == (recited.tokens, recited.path)
    with pytest.raises(KvMismatch):
        model.forward([again])


def llamas():
    yield Llama(*tiny_llama(0))
    if importlib.util.find_spec("numba"):
        from models.fast_llama import FastLlama

        yield FastLlama(*tiny_llama(0), num_threads=2)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_accepted_nodes_serve_a_llama_like_a_chain(size):
    context, tokens, parents, path = [9, 8, 7, 6, 5], [3, 1, 2, 4, 5, 6], [-1, -1, 1, 1, 3, 2], [1, 3, 4]
    whole = [*context, *(tokens[node] for node in path), 50]
    for model in llamas():
        model.bind(20, size)
        table = list(range(19, 0, -1))[: -(-20 // size)]
        model.forward([fed_tree(context, 5, tokens, parents, table, size)])
        made, length = compaction(0, 5, path, len(path) + 1)
        model.move_slots([SlotMove(table, source, destination) for source, destination in made])
        row = model.forward([Chunk([50], length, table, 1)])
        np.testing.assert_array_equal(row[0], rows_of_chain(model, whole, size))


def test_depth_and_not_the_number_of_nodes_must_fit_the_model():
    for model in llamas():
        model.bind(70, 4)
        ids = [7] * 12
        wide, deep = [-1] * 12, list(range(-1, 11))
        model.forward([Chunk(ids, 250, list(range(66)), 0, wide)])
        with pytest.raises(ValueError, match=r"position 261 does not fit in \[0, 256\)"):
            model.forward([Chunk(ids, 250, list(range(66)), 0, deep)])


@pytest.mark.parametrize(
    "make", [lambda: FakeTarget(FakeModel(*FAKE.values())), lambda: RunnerTarget(FakeModel(*FAKE.values()), 4, 4)]
)
def test_the_one_sequence_targets_take_trees(make):
    target = make()
    target.extend([1, 2])
    tokens, parents = [4, 5, 6, 7], [-1, -1, 1, 2]
    rows = target.extend([3, *tokens], DraftTree(tokens, parents).fed_after(1))
    paths = [[3], [3, 4], [3, 5], [3, 5, 6], [3, 5, 6, 7]]
    assert rows.tolist() == [ref.fake_row(FAKE, [1, 2, *path]) for path in paths]
    made, length = compaction(2, 1, [1, 2, 3], 4)
    target.move_slots(made)
    target.truncate(length)
    assert target.cached() == 6
    assert target.extend([8])[0].tolist() == ref.fake_row(FAKE, [1, 2, 3, 5, 6, 7, 8])


def test_a_tree_may_need_more_slots_than_a_runner_target_has_positions():
    target = RunnerTarget(FakeModel(*FAKE.values()), 2, 4)
    target.extend([1] * 7)
    assert target.extend([2] * 60, [-1] * 60).shape == (60, 9)
    target.truncate(8)
    with pytest.raises(ValueError, match="9 positions: the cache holds max_model_len 8"):
        target.extend([1])
