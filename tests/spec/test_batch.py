"""Many rounds verified in one call: each as if it were alone, bit for bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import DraftTree, Pcg32, Round, SamplingParams, SpecError, verify_batch, verify_draft, verify_tree
from tests.spec.strategies import TreeCase, one_round, one_tree_round
from tests.spec.targets import params_of

batches = st.integers(2, 5).flatmap(
    lambda vocab: st.lists(one_round(vocab) | one_tree_round(vocab), min_size=1, max_size=6)
)


def round_of(case, seed):
    if isinstance(case, TreeCase):
        return Round(
            case.tokens,
            params_of(case.params),
            case.prompt,
            case.output,
            Pcg32(seed, 5),
            verify=case.rule,
            draft_probs=case.draft_probs,
            parents=case.parents,
            children=case.children,
        )
    return Round(
        case.draft,
        params_of(case.params),
        case.prompt,
        case.output,
        Pcg32(seed, 5),
        verify=case.verify,
        draft_probs=case.draft_probs,
    )


def verify_alone(case, rows, params, rng):
    if isinstance(case, TreeCase):
        tree = DraftTree(case.tokens, case.parents)
        options = {"rule": case.rule, "children": case.children}
        return verify_tree(rows, tree, case.draft_probs, params, case.prompt, case.output, rng, **options)
    return verify_draft(rows, case.draft, case.draft_probs, params, case.prompt, case.output, rng, verify=case.verify)


@settings(max_examples=120)
@given(batches, st.integers(0, 2**60), st.sampled_from([np.float32, np.float64]))
def test_a_batch_equals_its_rounds_alone(cases, seed, dtype):
    rounds = [round_of(case, seed + i) for i, case in enumerate(cases)]
    rows = np.array([row for case in cases for row in case.rows], dtype)
    batch = verify_batch(rows, rounds)
    assert len(batch) == len(cases)
    for i, (case, round_, verified) in enumerate(zip(cases, rounds, batch, strict=True)):
        rng = Pcg32(seed + i, 5)
        alone = verify_alone(case, np.array(case.rows, dtype), round_.params, rng)
        assert list(verified.tokens) == list(alone.tokens)
        assert (verified.n_accepted, list(verified.path)) == (alone.n_accepted, list(alone.path))
        assert list(verified.logprobs) == list(alone.logprobs)
        assert round_.rng.state == rng.state


def plain_rounds(num_rounds, vocab, m):
    """Wide plain rounds, in which the sampled and the greedy ones of a batch go together."""
    dice = np.random.default_rng(11)
    rows = (3 * dice.normal(size=(num_rounds * (m + 1), vocab))).astype(np.float32)
    rounds = []
    for i in range(num_rounds):
        draft = rows[i * (m + 1) : i * (m + 1) + m].argmax(axis=1).tolist()
        params = SamplingParams(temperature=(0, 1.0, 0.6, 0.1)[i % 4])
        rounds.append(Round(draft, params, [1], [], Pcg32(i, 2), verify=("resample", "match")[i % 2]))
    return rows, rounds


def test_a_wide_batch_equals_its_rounds_alone():
    vocab, m = 513, 3
    rows, rounds = plain_rounds(24, vocab, m)
    batch = verify_batch(rows, rounds)
    for i, (round_, verified) in enumerate(zip(rounds, batch, strict=True)):
        rng = Pcg32(i, 2)
        own = rows[i * (m + 1) : (i + 1) * (m + 1)]
        alone = verify_draft(own, round_.draft, None, round_.params, [1], [], rng, verify=round_.verify)
        assert (list(verified.tokens), list(verified.logprobs)) == (list(alone.tokens), list(alone.logprobs))
        assert round_.rng.state == rng.state
    assert {verified.n_accepted for verified in batch} == {0, 1, 2, 3}


def test_a_batch_of_rows_further_apart_than_a_float64_goes():
    rows = np.array([[1.7e308, -1.7e308, 0.0], [1.0, 2.0, 3.0], [1e300, 1.7e308, -1.7e308], [0.5, 0.0, 0.0]])
    temperatures = (1e308, 1.0, 0.5, 2e307)
    for seed in range(40):
        rounds = [Round([], SamplingParams(temperature=t), [1], [], Pcg32(seed, i)) for i, t in enumerate(temperatures)]
        batch = [list(verified.tokens) for verified in verify_batch(rows, rounds)]
        for i, temperature in enumerate(temperatures):
            rng = Pcg32(seed, i)
            params = SamplingParams(temperature=temperature)
            assert list(verify_draft(rows[i : i + 1], [], None, params, [1], [], rng).tokens) == batch[i]
            assert rounds[i].rng.state == rng.state


@pytest.mark.parametrize("layout", ["columns first", "every other row"])
def test_the_layout_of_the_rows_does_not_matter(layout):
    vocab, m = 65, 3
    rows, _ = plain_rounds(16, vocab, m)
    laid_out = np.asfortranarray(rows) if layout == "columns first" else np.repeat(rows, 2, axis=0)[::2]
    results = []
    for array in (rows, laid_out):
        rounds = plain_rounds(16, vocab, m)[1]
        verified = verify_batch(array, rounds)
        results.append([(list(v.tokens), list(v.logprobs), r.rng.state) for v, r in zip(verified, rounds, strict=True)])
        rounds = plain_rounds(16, vocab, m)[1]
        alone = [
            verify_draft(array[4 * i : 4 * i + 4], r.draft, None, r.params, [1], [], r.rng, verify=r.verify)
            for i, r in enumerate(rounds)
        ]
        results.append([(list(v.tokens), list(v.logprobs), r.rng.state) for v, r in zip(alone, rounds, strict=True)])
    assert results[0] == results[1] == results[2] == results[3]


def test_neighbours_do_not_matter():
    rows, rounds = plain_rounds(8, 64, 2)
    together = [list(verified.tokens) for verified in verify_batch(rows, rounds)]
    rows, rounds = plain_rounds(8, 64, 2)
    backwards = np.concatenate([rows[3 * i : 3 * i + 3] for i in reversed(range(8))])
    assert [list(verified.tokens) for verified in verify_batch(backwards, rounds[::-1])] == together[::-1]


def test_greedy_trees_together_equal_each_alone():
    dice = np.random.default_rng(4)
    trees, rows = [], []
    for _ in range(16):
        parents = [int(dice.integers(-1, node)) for node in range(12)]
        tree = DraftTree(range(12), parents)  # siblings differ
        own = dice.normal(size=(13, 64)).astype(np.float32)
        for node, parent in enumerate(parents):
            own[parent + 1, node] += 3 * dice.random()  # some child or other is the best
        trees.append(tree)
        rows.append(own)
    params = SamplingParams(temperature=0)
    rounds = [Round(tree.tokens, params, [1], [], Pcg32(1), parents=tree.parents) for tree in trees]
    batch = verify_batch(np.concatenate(rows), rounds)
    for own, tree, verified in zip(rows, trees, batch, strict=True):
        alone = verify_tree(own, tree, None, params, [1], [], Pcg32(1))
        assert (verified.tokens, list(verified.path)) == (alone.tokens, list(alone.path))
        assert verified.logprobs == alone.logprobs
    assert {len(verified.path) for verified in batch} >= {0, 1, 2}


@pytest.mark.parametrize("node", [-1, 0])
def test_a_bad_row_on_a_path_is_found(node):
    rows = np.zeros((3, 8), np.float32)
    rows[:, 5] = 1
    rows[node + 1] = np.nan
    rounds = [Round([5, 2], SamplingParams(temperature=0), [1], [], Pcg32(1), parents=[-1, -1])] * 2
    with pytest.raises(SpecError):
        verify_batch(np.concatenate([np.ones((3, 8), np.float32), rows]), rounds)


def test_no_rounds_is_an_empty_batch():
    assert verify_batch(np.zeros((0, 4), np.float32), []) == []


def bad_batches():
    rows, rounds = plain_rounds(6, 8, 2)
    yield "a row too many", np.concatenate([rows, rows[:1]]), rounds
    yield "a row too few", rows[:-1], rounds
    for i, value in ((2, math.nan), (3, math.inf), (6, math.nan), (10, math.nan), (15, math.nan)):  # all looked at
        spoilt = rows.copy()
        spoilt[i] = value
        yield f"{value} in row {i}", spoilt, rounds
    apart = [Round([1, 2], SamplingParams(top_k=3), [1], [], Pcg32(3)), *rounds[1:]]  # it is verified before the others
    yield "nan in row 15, a round verified", np.where(np.arange(len(rows))[:, None] == 15, math.nan, rows), apart
    for i in (0, 1, 5):
        spoilt = list(rounds)
        spoilt[i] = Round([1, 8], rounds[i].params, [1], [], rounds[i].rng)
        yield f"a draft id out of the vocabulary in round {i}", rows, spoilt
        spoilt[i] = Round([1, 2], rounds[i].params, [1], [], rounds[i].rng, draft_probs=[[0.5] * 8] * 2)
        yield f"a law that sums to 4 in round {i}", rows, spoilt
        spoilt[i] = Round([1, 2], rounds[i].params, [1], [], rounds[i].rng, parents=[-1, 1])
        yield f"no tree in round {i}", rows, spoilt
        spoilt[i] = Round([1, 1], rounds[i].params, [1], [], rounds[i].rng, parents=[-1, -1])
        yield f"equal siblings in round {i}", rows, spoilt
        spoilt[i] = Round([1, 2], rounds[i].params, [1], [], rounds[i].rng, verify="traversal")
        yield f"traversal of what was not drawn in round {i}", rows, spoilt
        spoilt[i] = Round([1, 2], rounds[i].params, [1], [], rounds[i].rng, children="iid")
        yield f"drawn children without laws in round {i}", rows, spoilt
        spoilt[i] = Round([1, 2], SamplingParams(logit_bias={9: 1.0}), [1], [], rounds[i].rng)
        yield f"a bias out of the vocabulary in round {i}", rows, spoilt


BAD = list(bad_batches())


@pytest.mark.parametrize(("rows", "rounds"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_an_error_moves_no_generator(rows, rounds):
    states = [round_.rng.state for round_ in rounds]
    with pytest.raises(SpecError):
        verify_batch(rows, rounds)
    assert [round_.rng.state for round_ in rounds] == states
