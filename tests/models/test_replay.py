"""The target that recites: greedy decoding gives the recorded completion, with rows and without."""

import numpy as np
import pytest

from models import Chunk, FakeModel, ReplayModel, RunnerTarget, execute
from spec import Pcg32, Round, SamplingParams, SpecConfig, SpecError, generate, verify_draft

GREEDY = SamplingParams(temperature=0)
VOCAB, EOS = 50, 49
RECORDS = [([1, 2, 3], [4, 5, 6, 4, 5, 6, 4, 5]), ([1, 2], [9, 8, 7]), ([1, 2, 3, 3], [])]


def recording(records=RECORDS):
    return ReplayModel(records, VOCAB, EOS)


@pytest.mark.parametrize("draft", ["none", "ngram", "prompt_lookup"])
@pytest.mark.parametrize(("prompt", "completion"), RECORDS)
def test_greedy_decoding_gives_the_recorded_completion(draft, prompt, completion):
    cfg = SpecConfig.parse(draft, 4)
    generated = generate(RunnerTarget(recording(), 16, 4), cfg, prompt, GREEDY, 0, 20, [EOS])
    assert generated.tokens == [*completion, EOS]
    assert generated.finish_reason == "stop"
    assert generated.logprobs == [0.0] * len(generated.tokens)


def test_off_the_record_it_says_zero():
    cfg = SpecConfig.parse("none", 1)
    for prompt in ([7], [1, 2, 3, 4, 6], [3, 2, 1]):
        assert generate(RunnerTarget(recording(), 16, 4), cfg, prompt, GREEDY, 0, 3, [EOS]).tokens == [0, 0, 0]


def chunks_and_rounds():
    prompt = [1, 2, 3]
    drafts = [[], [4], [4, 5, 6], [4, 9, 5, 6], [9], [4, 5, 6, 4, 5, 6, 4, 5, EOS]]
    chunks = [Chunk([7, 7], 0, [0], 0)]
    for i, draft in enumerate(drafts, 1):
        ids = prompt + draft
        table = list(range(4 * i, 4 * i + -(-len(ids) // 4)))
        chunks.append(Chunk(ids, 0, table, len(draft) + 1))
    return chunks, [Round(draft, GREEDY, (), (), Pcg32(1)) for draft in drafts]


def test_verification_without_rows_is_verification_with_rows():
    chunks, rounds = chunks_and_rounds()
    model = recording()
    model.bind(64, 4)
    recited = execute(model, chunks, rounds)
    rows = model.forward(chunks)
    assert rows.dtype == np.float32
    at = 0
    for round_, emission in zip(rounds, recited, strict=True):
        own = rows[at : at + len(round_.draft) + 1]
        at += len(own)
        verified = verify_draft(own, round_.draft, None, GREEDY, [], [], Pcg32(1))
        assert (emission.tokens, emission.logprobs) == (verified.tokens, list(verified.logprobs))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0, frequency_penalty=1.0),
        SamplingParams(temperature=0, logit_bias={1: 1.0}),
    ],
)
def test_a_round_that_a_recording_cannot_verify_gets_an_error_and_the_others_their_tokens(params):
    chunks, rounds = chunks_and_rounds()
    model = recording()
    model.bind(64, 4)
    rounds[2] = Round(rounds[2].draft, params, (), (), Pcg32(1))
    results = execute(model, chunks, rounds)
    assert isinstance(results[2], SpecError)
    assert [result.tokens for i, result in enumerate(results) if i != 2] == [
        [4],
        [4, 5],
        [4, 5],
        [4],
        [4, 5, 6, 4, 5, 6, 4, 5, EOS, 0],
    ]


def test_records_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="record 1: another record continues the same tokens differently"):
        recording([([1], [2, 3]), ([1, 2], [4])])
    with pytest.raises(ValueError, match="record 1"):
        recording([([1], [2]), ([1], [2, 3])])
    recording([([1], [2, 3]), ([1, 2], [3])])


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_tokens_out_of_the_vocabulary_are_refused(token):
    with pytest.raises(ValueError, match=f"record 0: token {token} is not in"):
        recording([([1], [2, token])])


class Nonsense(FakeModel):
    def forward(self, chunks):
        rows = super().forward(chunks)
        rows[2] = np.nan
        return rows


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(), SamplingParams(top_k=3)])
def test_a_round_over_a_row_of_nonsense_fails_alone_and_draws_nothing(params):
    def rounds():
        return [Round(draft, params, [1], [], Pcg32(5, i)) for i, draft in enumerate(([3], [2], []))]

    chunks = [Chunk([1, 3], 0, [0], 2), Chunk([1, 2], 0, [1], 2), Chunk([1], 0, [2], 1)]
    healthy, bad = FakeModel(1, 8, 1, 4.0), Nonsense(1, 8, 1, 4.0)
    healthy.bind(4, 4)
    bad.bind(4, 4)
    in_health, in_trouble = rounds(), rounds()
    wanted, results = execute(healthy, chunks, in_health), execute(bad, chunks, in_trouble)
    assert isinstance(results[1], SpecError)
    assert in_trouble[1].rng.state == Pcg32(5, 1).state
    for i in (0, 2):
        assert (results[i].tokens, list(results[i].logprobs)) == (wanted[i].tokens, list(wanted[i].logprobs))
        assert in_trouble[i].rng.state == in_health[i].rng.state
