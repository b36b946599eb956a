"""What is refused at the door, with its field named; a refusal leaves no trace."""

import math

import numpy as np
import pytest

from actors import EngineConfig, EngineFull, Request, RequestError
from spec import SamplingParams, SpecConfig, SpecError
from tests.actors.harness import VOCAB, assert_all_back, config, engine, expected, lookup, read, request, run

REFUSED = {
    "prompt, empty": (request([]), r"prompt is \[\]: at least one token"),
    "prompt, negative id": (request([1, -1]), r"prompt is -1: int ids in \[0, 8\)"),
    "prompt, id past the vocabulary": (request([1, VOCAB]), r"prompt is 8: int ids in \[0, 8\)"),
    "prompt, not an id": (request([1, "2"]), r"prompt is '2': int ids in \[0, 8\)"),
    "prompt, too long": (request([1] * 201), r"prompt is 201 tokens: at most max_model_len \(200\)"),
    "max_tokens, none": (request(max_tokens=0), r"max_tokens is 0: an integer >= 1"),
    "max_tokens, never fits": (request([1] * 100, max_tokens=101), r"max_tokens is 101: .* 100 .* 40 blocks"),
    "eos": (request(eos=(3, VOCAB)), r"eos is 8: int ids in \[0, 8\)"),
    "verify": (request(verify="maybe"), r"verify is 'maybe': one of 'resample', 'match', 'traversal'"),
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
    **{
        f"{field}, {wrong!r}": (request(**{field: wrong}), rf"{field} is .*: {allowed}")
        for field, wrongs, allowed in (
            ("max_tokens", (True, 3.0, "3", None, np.int64(3), [3]), "an integer"),
            ("max_tokens", (2**63, -(10**400)), "an integer"),
            ("priority", (False, 1.0, np.int32(1), 2**63, -(2**63)), "an integer"),
            ("seed", (True, 1.0, np.uint64(1), 10**400), "an integer"),
            ("choice", (True, 2**62, "0", np.int8(0)), "an integer"),
            ("eos", ((True,), (3.0,), (np.int64(3),), ("3",), (None,), [-1], {VOCAB}), "int ids"),
            ("eos", (3, None, "3", b"3", {3: 1}, range(3), np.array([3])), "a tuple of int ids"),
            ("id", (7, b"a", ("a",), True), "a str, or None"),
            ("cache_salt", ([1], 1, b"salt", {}, ("a",)), "a str, or None"),
            ("params", (None, {"temperature": 0}, "greedy"), "SamplingParams"),
            ("speculative", ("prompt_lookup", 4, {"k": 4}), "a SpecConfig, or None"),
            ("verify", (["resample"], b"match", True), "one of 'resample', 'match', 'traversal', or None"),
            ("logprobs", (1, None, "yes", np.bool_(True)), "True or False"),
        )
        for wrong in wrongs
    },
    **{
        f"prompt, {wrong!r}": (Request(prompt=wrong), rf"prompt is .*: {allowed}")
        for wrong, allowed in (
            ([1, True], "int ids"),
            ([1, 2.0], "int ids"),
            ([np.int64(1)], "int ids"),
            ([1, None], "int ids"),
            ([10**400], "int ids"),
            ([[1, 2]], "int ids"),
            (None, "a list of int ids"),
            ("12", "a list of int ids"),
            (b"12", "a list of int ids"),
            ({1, 2}, "a list of int ids"),
            (np.array([1, 2]), "a list of int ids"),
            (iter([1, 2]), "a list of int ids"),
        )
    },
    "no request at all": ({"prompt": [1]}, r"request is .*: a Request"),
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
            with pytest.raises(RequestError, match=r"layers of speculative is \d+: less than stream_tokens \(5\)"):
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


def test_whatever_a_request_holds_may_be_changed_once_it_is_submitted():
    async def main():
        async with engine() as running:
            bias, eos = {3: 2.0}, [5]
            wants = request(params=SamplingParams(temperature=0, logit_bias=bias), eos=eos, max_tokens=20)
            whole = expected(request(params=SamplingParams(temperature=0, logit_bias={3: 2.0}), eos=(5,)), config())
            stream = running.submit(wants)
            bias[1], bias[2] = 100.0, math.nan
            eos[:] = range(8)
            assert (await read(stream)).tokens[:12] == whole.tokens
            with pytest.raises(RequestError, match=r"logit_bias\[2\] is nan"):
                running.submit(wants)
            assert_all_back(running)

    run(main())


def test_a_refused_value_is_named_however_large():
    with pytest.raises(RequestError, match="num_blocks is an int too long to be written"):
        EngineConfig(num_blocks=10**9999)
    with pytest.raises(SpecError, match=r"temperature is 1000.*000[.]{3}: a number"):
        SamplingParams(temperature=10**400)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *((field, 10**400) for field in ("temperature", "top_k", "top_p", "repetition_penalty", "min_tokens")),
        *((field, "1") for field in ("temperature", "top_k", "presence_penalty")),
        ("logit_bias", None),
        ("logit_bias", [(1, 2.0)]),
        ("logit_bias", {1: 10**400}),
        ("logit_bias", {1: True}),
        ("logit_bias", {"1": 1.0}),
        ("stop_token_ids", None),
        ("stop_token_ids", 3),
        ("stop_token_ids", "ab"),
        ("stop_token_ids", (True,)),
        ("stop_token_ids", (1.0,)),
    ],
)
def test_so_is_what_no_distribution_can_be_made_with(field, wrong):
    with pytest.raises(SpecError, match=field):
        SamplingParams(**{field: wrong})


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
        *(
            ({field: wrong}, f"{field} is .*: an integer")
            for field in ("num_blocks", "block_tokens", "max_batch_tokens", "max_running", "max_model_len")
            for wrong in ("8", 8.0, True, None, np.int64(8), 10**400, 2**31, -1)
        ),
        *(
            ({field: wrong}, f"{field} is .*: an integer")
            for field in ("stream_tokens", "audit_every", "max_waiting", "max_restarts")
            for wrong in ("8", 8.0, True, np.int64(8), 10**400, -1)
        ),
        *(
            ({field: wrong}, f"{field} is .*: seconds > 0")
            for field in ("pass_timeout_s", "restart_period_s")
            for wrong in (math.nan, math.inf, "1", True, -1.0, 10**400, [1.0])
        ),
        *(({field: 1}, f"{field} is 1: True or False") for field in ("adaptive", "prefix_cache")),
        *(({"speculative": wrong}, "speculative is .*: a SpecConfig") for wrong in (None, "ngram", 4)),
        ({"speculative": lookup(8), "max_batch_tokens": 8}, r"k is 8: less than max_batch_tokens \(8\)"),
        ({"speculative": lookup(8), "stream_tokens": 8}, r"is 8: less than stream_tokens \(8\)"),
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
