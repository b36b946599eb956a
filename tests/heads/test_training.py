"""Linear heads fitted to a tiny target: better with training, the same for the same seed, and judged two ways alike."""

import numpy as np
import pytest

from models.heads import Affine, LinearHeads, Words, build_heads, eight_bit
from models.heads.features import Features, Text, collect
from models.heads.fitting import Batch, NormalEquations, Refinement, accuracy, cross_entropy, softmax
from models.heads.judging import Judgement, judge
from models.heads.linear_training import LinearTraining
from models.llama import Llama
from models.protocol import Chunk
from models.weights import Matrix
from spec import SamplingParams, sample
from tests.heads.tiny import CONFIG, target_weights

TAPS = (2, 5, 8)
IDS = np.arange(97)


@pytest.fixture(scope="module")
def model():
    return Llama(CONFIG, target_weights()).with_taps(TAPS)


@pytest.fixture(scope="module")
def texts(model):
    """Greedy answers, so that what the text says is what the target would choose; prompts of three tokens."""
    made = []
    for i in range(40):
        ids = [i * 2 % 97, i * 7 % 97, i * 3 % 97]
        model.bind(20, 4)
        rows = model.forward([Chunk(ids, 0, list(range(20)), 1)])
        while len(ids) < 60:
            ids.append(sample(rows[-1], SamplingParams(temperature=0), (), (), None))
            rows = model.forward([Chunk(ids[-1:], len(ids) - 1, list(range(20)), 1)])
        made.append(Text(ids, 3, is_held_out=i % 5 == 0, kind="even" if i % 2 == 0 else "odd"))
    return made


@pytest.fixture(scope="module")
def features(model, texts):
    gathered = Features(TAPS, CONFIG.dim, 10_000)
    collect(model, texts, gathered)
    return gathered


def fit(features, epochs, seed=0):
    stages = []
    training = LinearTraining(features, CONFIG, target_weights(), IDS, np.random.default_rng(seed))
    return training.run(epochs, stages.append), stages


def test_features_are_those_of_each_text_alone(model, texts, features):
    assert features.num_tokens == sum(len(text.ids) for text in texts)
    start, text = features.texts[7]
    model.bind(20, 4)
    model.forward([Chunk(text.ids, 0, list(range(20)), 0)])
    slots = np.arange(60)
    alone = model.features(slots // 4, slots % 4)
    alone /= np.sqrt((alone**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(features.states(start + slots), alone, rtol=2e-3, atol=2e-3)
    assert (features.ids[start + slots] == text.ids).all()


def test_rows_are_of_the_texts_asked_for_and_answers_alone_are_judged(texts, features):
    for depth in (1, 2):
        taught = features.rows(held_out=False, depth=depth)
        assert len(taught) == sum(len(text.ids) - depth for text in texts if not text.is_held_out)
    judged = features.rows(held_out=True)
    #   the last token of a prompt is followed by the first of the answer
    assert len(judged) == sum(len(text.ids) - 2 for text in texts if text.is_held_out)
    assert len(features.rows(held_out=True, kind="even")) + len(features.rows(held_out=True, kind="odd")) == len(judged)


def test_features_end_where_there_is_no_more_room(model, texts):
    few = Features(TAPS, CONFIG.dim, 100)
    collect(model, texts, few)
    assert few.num_tokens == 100
    assert few.is_full
    assert len(few.rows(held_out=False)) == 40 - 1


def test_the_closed_form_is_the_least_squares_solution():
    generator = np.random.default_rng(3)
    inputs = generator.standard_normal((200, 6)).astype(np.float32)
    wanted, bias = generator.standard_normal((6, 4)).astype(np.float32), np.float32([1, -2, 0.5, 3])
    equations = NormalEquations(6, 4)
    for part in (slice(0, 80), slice(80, 200)):
        equations.add(Batch(inputs[part], inputs[part] @ wanted + bias))
    solved = equations.solve(0.0)
    np.testing.assert_allclose(solved[:-1], wanted, atol=1e-3)
    np.testing.assert_allclose(solved[-1], bias, atol=1e-3)
    assert np.abs(equations.solve(1e6)[:-1]).max() < 1e-2


def test_steps_lead_to_the_laws_that_are_wanted():
    generator = np.random.default_rng(4)
    output, inputs, hidden = (
        generator.standard_normal(shape).astype(np.float32) for shape in ((12, 5), (64, 7), (7, 5))
    )
    batch = Batch(inputs, inputs @ hidden)
    refinement = Refinement(np.zeros((8, 5), np.float32), output)
    losses = [refinement.step(batch, 0.02) for _ in range(400)]
    wanted = softmax(batch.states @ output.T)
    assert losses[0] == pytest.approx(cross_entropy(np.zeros((64, 12), np.float32), wanted), rel=1e-5)
    least = cross_entropy(batch.states @ output.T, wanted)
    assert losses[-1] - least < 0.01 * (losses[0] - least)


def test_training_goes_on_from_the_closed_form(features):
    """One token in 97 would be right by chance."""
    _, stages = fit(features, 4)
    for name in ("first", "later"):
        closed, *epochs = [stage for stage in stages if stage.name.startswith(name)]
        assert closed.held_out.top_1 > 0.2
        losses = [stage.loss for stage in epochs]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0] - 0.02


def test_the_same_seed_gives_the_same_heads(features):
    one, other = (fit(features, 2)[0] for _ in range(2))
    np.testing.assert_array_equal(one.first.weight.dense(), other.first.weight.dense())
    np.testing.assert_array_equal(one.later.weight.dense(), other.later.weight.dense())


def test_what_the_fitted_heads_draft_is_as_good_as_was_said(model, texts, features):
    """Training judges states in bulk, judging asks the proposer place by place."""
    fitted, stages = fit(features, 3)
    best = max(stage.held_out.top_1 for stage in stages if stage.name.startswith("first"))
    proposer = build_heads(fitted, CONFIG, target_weights(), "numpy")
    judged = judge(proposer, model, [text for text in texts if text.is_held_out], 3)
    assert judged.top(1)[0] == pytest.approx(best, abs=0.03)
    assert judged.top(3)[0] >= judged.top(1)[0]
    assert judged.is_there[:, 0].all()
    assert not judged.is_there[-1, 1:].any()
    small = LinearHeads(
        fitted.taps,
        *(Affine(eight_bit(each.weight), each.bias) for each in (fitted.first, fitted.later)),
        Words(IDS, None),
    )
    rounded = judge(build_heads(small, CONFIG, target_weights(), "numpy"), model, [texts[0]], 2)
    whole = judge(proposer, model, [texts[0]], 2)
    np.testing.assert_allclose(rounded.chances, whole.chances, atol=0.03)


def test_accuracy_counts_the_first_and_the_first_three():
    logits = np.float32([[0, 3, 2, 1], [9, 1, 2, 3], [0, 1, 2, 3]])
    found = accuracy(logits, [11, 11, 40], np.array([10, 11, 12, 40]))
    assert found == (2 / 3, 2 / 3, 3)
    assert accuracy(logits, [12, 12, 99], np.array([10, 11, 12, 40]))[:2] == (0.0, 2 / 3)


def test_what_cannot_be_fitted_is_refused(features):
    other = Features((2, 5), CONFIG.dim, 10)
    with pytest.raises(ValueError, match=r"taps \(2, 5\): the last must be 8, all layers"):
        LinearTraining(other, CONFIG, target_weights(), IDS, np.random.default_rng(0))
    empty = Features(TAPS, CONFIG.dim, 10)
    with pytest.raises(ValueError, match="too little text"):
        LinearTraining(empty, CONFIG, target_weights(), IDS, np.random.default_rng(0)).run(1, print)
    with pytest.raises(ValueError, match="no text has an answer to judge by"):
        judge(None, None, [], 2)
    assert isinstance(fit(features, 0)[0].first.weight, Matrix)


def test_a_chain_goes_on_only_where_all_before_was_right():
    there = np.array([[True, True, True]] * 3 + [[True, True, False], [True, False, False]])
    ranks = np.array([[0, 0, 0], [0, 1, 0], [2, 0, 0], [0, 0, 3], [0, 3, 3]])
    judged = Judgement(ranks, np.ones((5, 3)), there)
    assert judged.top(1) == [4 / 5, 3 / 4, 3 / 3]
    #   at depth 2 three places are there and were right before, of which two are; at depth 3 one of those has a token
    assert judged.chain() == [4 / 5, 2 / 3, 1 / 1]
    halves = [Judgement(*(array[part] for array in judged)) for part in (slice(2), slice(2, 5))]
    assert all((one == other).all() for one, other in zip(Judgement.join(halves), judged, strict=True))
