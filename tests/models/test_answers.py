"""What a model gives is looked at once, where it comes in: rows and tokens that are not those asked for are refused."""

from typing import NamedTuple

import numpy as np
import pytest

from models import Chunk, FakeModel, ModelError, ReplayModel, RunnerTarget, execute
from spec import Pcg32, Round, SamplingParams, SpecError
from tests.actors.harness import assert_all_back, engine, expected, read, read_all, request, run

VOCAB = 8


class Wrong(FakeModel):
    """Gives its rows changed."""

    def __init__(self, change):
        super().__init__(1, VOCAB, 1, 4.0)
        self.change = change

    def forward(self, chunks):
        return self.change(super().forward(chunks), chunks)


WRONG_ROWS = {
    "a row per fed id": lambda rows, chunks: np.zeros((sum(len(chunk.ids) for chunk in chunks), VOCAB), np.float32),
    "a row too few": lambda rows, chunks: rows[:-1],
    "a row too many": lambda rows, chunks: np.concatenate([rows, rows[:1]]),
    "more columns than ids": lambda rows, chunks: np.concatenate([rows, rows], axis=1),
    "fewer columns than ids": lambda rows, chunks: rows[:, :-1],
    "float64": lambda rows, chunks: rows.astype(np.float64),
    "float16": lambda rows, chunks: rows.astype(np.float16),
    "integers": lambda rows, chunks: rows.astype(np.int32),
    "one long row": lambda rows, chunks: rows.reshape(-1),
    "a batch of rows": lambda rows, chunks: rows[None],
    "a list": lambda rows, chunks: rows.tolist(),
    "nothing": lambda rows, chunks: None,
}


GREEDY = SamplingParams(temperature=0)


def a_round(draft, params=GREEDY):
    return Round(draft, params, (), (), Pcg32(1), "match")


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_rows_that_were_not_asked_for_are_refused(name):
    chunks = [Chunk([1, 2, 3], 0, [0], 2), Chunk([4, 5], 0, [1], 0), Chunk([6, 7], 0, [2], 1)]
    model = Wrong(WRONG_ROWS[name])
    model.bind(4, 4)
    with pytest.raises(ModelError, match=r"forward gave .*"):
        execute(model, chunks, [a_round([3]), a_round([])])
    if name != "a row per fed id":
        with pytest.raises(ModelError, match="forward gave"):
            RunnerTarget(model, 4, 4).extend([1, 2, 3])


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_request_ends_with_what_was_wrong_about_its_rows(name):
    async def main():
        async with engine(Wrong(WRONG_ROWS[name])) as running:
            stream = running.submit(request())
            assert (await read(stream)).reason == "error"
            assert "ModelError: forward gave" in stream.error
            assert_all_back(running)

    run(main())


class Given(NamedTuple):
    tokens: list
    logprobs: list
    path: object


class Verifying(ReplayModel):
    """Answers a prompt that begins with the last id as it is told."""

    def __init__(self, answer):
        super().__init__([([1, 2], [3, 4, 5]), ([7, 2, 1, 2, 1, 2, 1], [2] * 12)], VOCAB, 0)
        self.answer = answer

    def forward_and_verify(self, chunks, rounds):
        told = super().forward_and_verify(chunks, rounds)
        asking = [chunk for chunk in chunks if chunk.num_rows]
        return [
            self.answer(round_.draft, given) if VOCAB - 1 in chunk.ids else given
            for chunk, round_, given in zip(asking, rounds, told, strict=True)
        ]


WRONG_ANSWERS = {
    "no token": lambda draft, given: Given([], [], range(0)),
    "too many tokens": lambda draft, given: Given([*draft, 1, 1], [0.0] * (len(draft) + 2), range(len(draft) + 1)),
    "other tokens than were drafted": lambda draft, given: Given([6, 6], [0.0] * 2, range(1)),
    "a token past the vocabulary": lambda draft, given: Given([VOCAB], [0.0], range(0)),
    "a token below it": lambda draft, given: Given([-1], [0.0], range(0)),
    "numpy's integers": lambda draft, given: Given([np.int64(2)], [0.0], range(0)),
    "no integer": lambda draft, given: Given([2.0], [0.0], range(0)),
    "a flag": lambda draft, given: Given([True], [0.0], range(0)),
    "more accepted nodes than tokens": lambda draft, given: Given([2], [0.0], range(1)),
    "fewer accepted nodes than tokens": lambda draft, given: Given([draft[0], 2], [0.0] * 2, range(0)),
    "a node that is not there": lambda draft, given: Given([draft[0], 2], [0.0] * 2, [len(draft)]),
    "nodes out of their order": lambda draft, given: Given([draft[1], 2], [0.0] * 2, [1]),
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_an_answer_that_is_no_path_of_the_draft_fails_its_own_request_and_no_other(name):
    async def main():
        async with engine(Verifying(WRONG_ANSWERS[name])) as running:
            bad = running.submit(request([7, 2, 1, 2, 1, 2, 1], max_tokens=20, eos=(0,)))
            good = running.submit(request([1, 2], eos=(0,)))
            seen = await read_all([bad, good])
            assert [s.reason for s in seen] == ["error", "stop"]
            assert seen[1].tokens == [3, 4, 5, 0]
            assert "the model verified a round wrongly" in bad.error
            counters = running.stats().counters
            assert counters.num_accepted <= counters.num_drafted
            assert (counters.num_restarts, sum(counters.rounds_by_accepted)) == (0, counters.num_rounds)
            assert_all_back(running)

    run(main())


def test_answers_are_one_for_each_round():
    class Silent(Verifying):
        def forward_and_verify(self, chunks, rounds):
            return super().forward_and_verify(chunks, rounds)[1:]

    model = Silent(None)
    model.bind(2, 4)
    with pytest.raises(ModelError, match="gave 0 answers for 1 rounds"):
        execute(model, [Chunk([1, 2], 0, [0], 1)], [a_round([])])


def test_there_is_a_log_probability_for_each_token():
    async def main():
        model = Verifying(lambda draft, given: given._replace(logprobs=[]))
        async with engine(model) as running:
            bad = running.submit(request([7, 2, 1, 2, 1, 2, 1], eos=(0,)))
            assert (await read(bad)).reason == "error"
            assert "0 log-probabilities were given" in bad.error

    run(main())


def test_what_is_right_is_let_through():
    model = Verifying(lambda draft, given: given)
    model.bind(8, 4)
    chunks = [Chunk([7, 2, 1, 2, 1, 2, 1, 2, 2, 3], 0, [0, 1, 2], 4), Chunk([1, 2], 0, [3], 1)]
    results = execute(model, chunks, [a_round([2, 2, 3]), a_round([], SamplingParams())])
    assert results[0].tokens == [2, 2, 2]
    assert isinstance(results[1], SpecError)

    async def main():
        async with engine() as running:
            assert await read(running.submit(request())) == expected(request(), running.config)

    run(main())
