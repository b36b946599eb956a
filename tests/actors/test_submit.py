"""What is refused at the door, with its field named; a refusal leaves no trace."""

import pytest

from actors import EngineConfig, EngineFull, Request, RequestError
from spec import SamplingParams, SpecConfig, SpecError
from tests.actors.harness import VOCAB, assert_all_back, engine, expected, lookup, read, request, run

REFUSED = {
    "prompt, empty": (request([]), r"prompt is \[\]: at least one token"),
    "prompt, negative id": (request([1, -1]), r"prompt is -1: int ids in \[0, 8\)"),
    "prompt, id past the vocabulary": (request([1, VOCAB]), r"prompt is 8: int ids in \[0, 8\)"),
    "prompt, not an id": (request([1, "2"]), r"prompt is '2': int ids in \[0, 8\)"),
    "prompt, too long": (request([1] * 201), r"prompt is '201 tokens': at most max_model_len \(200\)"),
    "max_tokens, none": (request(max_tokens=0), r"max_tokens is 0: an integer >= 1"),
    "max_tokens, never fits": (request([1] * 100, max_tokens=101), r"max_tokens is 101: .* 100 .* 40 blocks"),
    "eos": (request(eos=(3, VOCAB)), r"eos is 8: int ids in \[0, 8\)"),
    "verify": (request(verify="maybe"), r"verify is 'maybe': 'resample' or 'match'"),
    "seed, negative": (request(seed=-1), r"seed is -1"),
    "seed, too large": (request(seed=2**64), r"seed is 18446744073709551616"),
    "choice": (request(choice=-1), r"choice is -1"),
    "logit_bias": (request(params=SamplingParams(logit_bias={VOCAB: 1.0})), r"logit_bias is 8"),
    "stop_token_ids": (request(params=SamplingParams(stop_token_ids=(VOCAB,))), r"stop_token_ids is 8"),
    "speculative, past a pass": (
        request(speculative=lookup(16)),
        r"speculative.k is 16: less than max_batch_tokens \(16\)",
    ),
    "eos, not an id": (request(eos=("a",)), r"eos is 'a': int ids"),
    "max_tokens, not whole": (request(max_tokens=1.5), r"max_tokens is 1.5: an integer"),
    "priority": (request(priority="high"), r"priority is 'high': an integer"),
    "seed, not whole": (request(seed=0.5), r"seed is 0.5: an integer"),
    "choice, not whole": (request(choice=None), r"choice is None: an integer"),
    "id": (request(id="taken"), r"id is 'taken': one that no open request has"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_never_be_served_is_refused_by_name(name):
    refused, message = REFUSED[name]

    async def main():
        async with engine(num_blocks=40, max_batch_tokens=16) as running:
            taken = running.submit(request(id="taken"))
            before = running.stats()
            with pytest.raises(RequestError, match=message):
                running.submit(refused)
            assert running.stats() == before
            assert (await read(taken)).reason == "length"
            assert_all_back(running)

    run(main())


def test_the_stream_must_hold_a_whole_round():
    async def main():
        async with engine(stream_tokens=5) as running:
            with pytest.raises(RequestError, match=r"speculative.k is \d+: less than stream_tokens \(5\)"):
                running.submit(request(speculative=lookup(5)))

    run(main())


def test_the_largest_request_that_fits_is_served_and_one_token_more_is_not():
    """40 blocks of 4 hold 160 positions; the last token of 61 is never fed."""

    async def main():
        async with engine(num_blocks=40) as running:
            with pytest.raises(RequestError, match="max_tokens is 62"):
                running.submit(request([1, 2] * 50, max_tokens=62))
            assert len((await read(running.submit(request([1, 2] * 50, max_tokens=61)))).tokens) == 61
            assert_all_back(running)

    run(main())


def test_requests_in_excess_of_those_that_may_wait_are_turned_away():
    async def main():
        async with engine(max_waiting=1, max_running=1) as running:
            streams = [running.submit(request()) for _ in range(2)]
            with pytest.raises(EngineFull, match="2 requests are open"):
                running.submit(request())
            assert [(await read(stream)).reason for stream in streams] == ["length", "length"]
            assert (await read(running.submit(request()))).reason == "length"

    run(main())


def test_a_prompt_may_be_changed_once_it_is_submitted():
    async def main():
        async with engine() as running:
            prompt, wanted, streams = [1], [], []
            for token in (2, 3, 2, 3):
                prompt.append(token)
                streams.append(running.submit(Request(prompt=prompt, params=request().params)))
                wanted.append(expected(request(prompt, max_tokens=16), running.config))
            prompt.append(VOCAB)
            assert [await read(stream) for stream in streams] == wanted

    run(main())


def test_an_engine_that_does_not_run_takes_no_request():
    async def main():
        running = engine()
        with pytest.raises(RuntimeError, match="not running"):
            running.submit(request())
        async with running:
            await read(running.submit(request()))
        with pytest.raises(RuntimeError, match="not running"):
            running.submit(request())

    run(main())


def test_an_id_is_taken_until_its_request_has_ended():
    async def main():
        async with engine() as running:
            first = running.submit(request(id="a"))
            with pytest.raises(RequestError, match="id is 'a'"):
                running.submit(request(id="a"))
            await read(first)
            again = running.submit(request(id="a"))
            assert again.id == "a"
            assert (await read(again)).reason == "length"
            unnamed = [running.submit(request()) for _ in range(3)]
            assert len({stream.id for stream in unnamed}) == 3

    run(main())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({field: 0}, rf"{field} is 0: an integer >= 1") for field in ("num_blocks", "block_tokens", "max_running")),
        *(({field: 0}, rf"{field} is 0: an integer >= 1") for field in ("max_batch_tokens", "max_model_len")),
        ({"audit_every": 0}, "audit_every is 0"),
        ({"max_waiting": -1}, "max_waiting is -1"),
        ({"pass_timeout_s": 0}, "pass_timeout_s is 0"),
        ({"max_restarts": -1}, "max_restarts"),
        ({"restart_period_s": 0}, "max_restarts"),
        ({"speculative": lookup(8), "max_batch_tokens": 8}, r"k is 8: less than max_batch_tokens \(8\)"),
        ({"speculative": lookup(8), "stream_tokens": 8}, r"k is 8: less than stream_tokens \(8\)"),
    ],
)
def test_measures_that_make_no_engine_are_refused_by_name(changes, message):
    with pytest.raises(RequestError, match=message):
        EngineConfig(**changes)


def test_a_draft_is_refused_where_it_is_made():
    with pytest.raises(SpecError, match="k is 0"):
        Request(prompt=[1], speculative=SpecConfig.parse("ngram", 0))


def test_a_name_that_a_client_took_is_not_given_to_another():
    async def main():
        async with engine() as running:
            taken = running.submit(request(id="request-1"))
            named = running.submit(request())
            assert (taken.id, named.id) == ("request-1", "request-1-")

    run(main())


def test_without_a_queue_there_are_as_many_requests_as_places():
    async def main():
        async with engine(max_waiting=0, max_running=2) as running:
            streams = [running.submit(request()) for _ in range(2)]
            with pytest.raises(EngineFull, match="2 requests are open"):
                running.submit(request())
            await streams[0].cancel()
            running.submit(request())

    run(main())
