"""A stream is bounded and has one reader: who reads slowly, or not at all, makes nobody wait but itself."""

import asyncio

import pytest

from spec import SamplingParams
from tests.actors.harness import (
    GREEDY,
    SAMPLED,
    assert_all_back,
    engine,
    expected,
    lasting,
    lookup,
    read,
    read_all,
    request,
    run,
    some_requests,
    until,
    wholes,
)

LONG = request(max_tokens=100, params=SamplingParams(), seed=3)


@pytest.mark.parametrize("num_read", [0, 1, 7])
def test_a_client_that_does_not_read_pauses_its_own_sequence_and_no_other(num_read):
    async def main():
        async with engine(stream_tokens=8, speculative=lookup(3)) as running:
            slow = running.submit(LONG)
            tokens = aiter(slow)
            seen = [(await anext(tokens)).id for _ in range(num_read)]
            for _ in range(3):
                assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
            stats = running.stats()
            assert (stats.num_paused, slow.finish_reason) == (1, None)
            assert 8 - 3 <= slow.num_unread <= 8
            num_steps = stats.counters.num_steps
            await asyncio.sleep(10)
            assert running.stats().counters.num_steps == num_steps, "it is not computed for"
            seen += [token.id async for token in tokens]
            assert (seen, slow.finish_reason) == (expected(LONG, running.config).tokens, "length")
            assert running.stats().num_paused == 0
            assert_all_back(running)

    run(main())


@pytest.mark.parametrize(("num_slow", "changes"), [(4, {"num_blocks": 20}), (3, {"max_running": 3}), (6, {})])
def test_those_who_do_not_read_hold_no_place_that_others_wait_for(num_slow, changes):
    """Neither a block, nor a running place, nor a share of the token budget."""

    async def main():
        async with engine(stream_tokens=4, speculative=lookup(3), max_batch_tokens=6, **changes) as running:
            slow_ones = [request(prompt_of(i), max_tokens=40, params=SamplingParams(), seed=i) for i in range(num_slow)]
            slow = [running.submit(slow_one) for slow_one in slow_ones]
            await asyncio.sleep(1)
            assert running.stats().num_paused == num_slow
            large = request([1, 2, 3, 4] * 5, max_tokens=40)
            assert await read(running.submit(large)) == expected(large, running.config)
            assert await read_all(slow) == [expected(slow_one, running.config) for slow_one in slow_ones]
            assert_all_back(running)

    run(main())


def prompt_of(i):
    return [i, 1, 2, i, 3]


def test_a_paused_client_may_leave():
    async def main():
        async with engine(stream_tokens=4, speculative=lookup(3), max_running=1) as running:
            running_one, parked = running.submit(LONG), None
            await asyncio.sleep(1)
            assert running.stats().num_paused == 1
            parked = running_one
            other = running.submit(LONG)  # takes its place
            await asyncio.sleep(1)
            assert running.stats().num_paused == 2
            await parked.cancel()
            await other.cancel()
            assert_all_back(running)
            assert running.stats().counters.cancels_by_phase == {"preempted": 1, "decode": 1}

    run(main())


def test_a_stream_has_one_reader():
    async def main():
        async with engine(run_pass=lasting) as running:
            stream = running.submit(request())
            reader = asyncio.create_task(read(stream))
            for at_s in (0.0, 0.5, 1.0, 1.0):
                await asyncio.sleep(at_s)
                with pytest.raises(RuntimeError, match="has a reader already"):
                    await anext(aiter(stream))
            assert await reader == expected(request(), running.config), "a reader that is refused troubles no other"
            assert [token async for token in stream] == []

    run(main())


def test_a_reader_that_holds_its_place_between_two_tokens_is_the_one():
    async def main():
        async with engine() as running:
            stream = running.submit(request())
            first = aiter(stream)
            seen = [(await anext(first)).id]
            with pytest.raises(RuntimeError, match="has a reader already"):
                await anext(aiter(stream))
            seen += [token.id async for token in first]
            assert seen == expected(request(), running.config).tokens

    run(main())


@pytest.mark.parametrize("num_read", [0, 1, 3])
def test_a_loop_that_another_task_ends_leaves_the_reason(num_read):
    async def main():
        async with engine(run_pass=lasting) as running:
            stream, seen = running.submit(LONG), []

            async def reads():
                async for token in stream:
                    seen.append(token)
                return stream.finish_reason

            reader = asyncio.create_task(reads())
            await until(lambda: len(seen) >= num_read)
            await asyncio.sleep(0.5)
            stream.leave()
            assert await reader == "cancelled"
            assert_all_back(running)

    run(main())


def test_a_paused_sequence_goes_on_when_half_is_read():
    async def main():
        async with engine(stream_tokens=16, speculative=lookup(3)) as running:
            stream = running.submit(LONG)
            tokens = aiter(stream)
            await asyncio.sleep(1)
            assert running.stats().num_paused == 1
            while running.stats().num_paused:
                await anext(tokens)
                await asyncio.sleep(0)
            assert 5 < stream.num_unread <= 8, "not before half is read, and not only when all is"
            await asyncio.sleep(1)
            assert stream.num_unread > 8

    run(main())


def test_what_speculation_did_follows_the_tokens_that_are_given_out():
    async def main():
        async with engine() as running:
            stream = running.submit(request([1, 2, 3] * 4, max_tokens=40))
            await until(lambda: stream.num_emitted)
            assert stream.speculation(0) == (0, 0, [])
            tokens = [token async for token in stream]
            whole = stream.speculation()
            assert whole == stream.speculation(40)
            assert whole == (stream.num_rounds, stream.num_drafted, stream.accepted_by_draft)
            assert sum(whole.accepted_by_draft) > 20
            for num_tokens in range(41):
                part = stream.speculation(num_tokens)
                assert sum(part.accepted_by_draft) == sum(token.is_accepted for token in tokens[:num_tokens])
                assert part.num_drafted <= whole.num_drafted
                assert (part.num_rounds == whole.num_rounds) <= (num_tokens > 40 - 5)

    run(main())


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_tokens_say_their_place_and_whether_they_were_drafted(params):
    async def main():
        async with engine() as running:
            stream = running.submit(request([1, 2, 3] * 4, max_tokens=40, params=params, logprobs=False))
            tokens = [token async for token in stream]
            assert [token.index for token in tokens] == list(range(40)) == list(range(stream.num_emitted))
            assert {token.logprob for token in tokens} == {None}
            counters = running.stats().counters
            num_accepted = sum(token.is_accepted for token in tokens)
            assert 0 < num_accepted == sum(stream.accepted_by_draft) == counters.num_accepted
            assert stream.num_drafted == counters.num_drafted
            assert num_accepted + stream.num_rounds >= 40

    run(main())


@pytest.mark.parametrize("logprobs", [True, False])
def test_rounds_are_the_tokens_of_the_stream(logprobs):
    async def main():
        async with engine() as running:
            wanted = request([1, 2, 3] * 4, max_tokens=40, logprobs=logprobs)
            tokens = [token async for token in running.submit(wanted)]
            stream = running.submit(wanted)
            rounds = [emitted async for emitted in stream.rounds()]
            assert [emitted.token(i) for emitted in rounds for i in range(len(emitted.ids))] == tokens
            assert (len(rounds), stream.finish_reason) == (stream.num_rounds, "length")
            assert max(len(emitted.ids) for emitted in rounds) > 2

    run(main())


def test_who_reads_rounds_is_paused_and_leaves_like_who_reads_tokens():
    async def main():
        async with engine(stream_tokens=8, speculative=lookup(3)) as running:
            stream = running.submit(LONG)
            ids = []
            async for emitted in stream.rounds():
                ids += emitted.ids
                await asyncio.sleep(1)
                assert stream.num_unread <= 8
                if len(ids) < 60:
                    assert running.stats().num_paused == (stream.num_unread > 4)
                else:
                    break
            assert ids == expected(LONG, running.config).tokens[: len(ids)]
            await stream.cancel()
            assert (stream.finish_reason, stream.num_unread) == ("cancelled", 0)
            assert_all_back(running)

    run(main())


def test_rounds_go_on_where_a_reader_of_tokens_has_stopped():
    """Of a stream that has ended, another reader gets what is left, the rest of a round too."""

    async def main():
        async with engine() as running:
            wanted = request([1, 2, 3] * 4, max_tokens=40, logprobs=True)
            whole = [token async for token in running.submit(wanted)]
            for num_read in range(1, 40):
                stream = running.submit(wanted)
                await until(lambda: stream.finish_reason)  # noqa: B023
                one_by_one = aiter(stream)
                tokens = [await anext(one_by_one) for _ in range(num_read)]
                assert stream.num_unread == 40 - num_read
                async for emitted in stream.rounds():
                    tokens += [emitted.token(i) for i in range(len(emitted.ids))]
                assert (tokens, stream.num_unread) == (whole, 0)
                await one_by_one.aclose()

    run(main())


def test_numbers_read_earlier_do_not_change():
    async def main():
        async with engine() as running:
            before = running.stats()
            assert before.counters.num_submitted == 0
            await read(running.submit(request()))
            assert (before.counters.num_submitted, before.counters.num_finished["length"]) == (0, 0)
            assert sum(before.counters.rounds_by_drafted) == 0
            assert running.stats().counters.num_finished == {"stop": 0, "length": 1}

    run(main())
