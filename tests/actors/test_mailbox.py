"""A mailbox loses nothing, adds nothing, keeps each lane's order, and lets control overtake."""

import asyncio
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.mailbox import Envelope, Mailbox
from actors.messages import Cancel
from tests.actors.harness import run


def envelope(number):
    return Envelope("test", Cancel(number))


def number_of(envelope):
    return envelope.message.seq


def drained(mailbox):
    taken = []
    while (found := mailbox.take()) is not None:
        taken.append(number_of(found))
    return taken


def test_control_overtakes_work_and_each_lane_keeps_its_order():
    mailbox = Mailbox()
    for number in (1, 2, 3):
        mailbox.post_work(envelope(number))
        mailbox.post(envelope(10 * number))
    assert len(mailbox) == 6
    assert number_of(mailbox.take_control()) == 10
    assert drained(mailbox) == [20, 30, 1, 2, 3]
    assert mailbox.take() is None
    assert mailbox.take_control() is None


def test_take_control_leaves_work_alone():
    mailbox = Mailbox()
    mailbox.post_work(envelope(1))
    assert mailbox.take_control() is None
    assert drained(mailbox) == [1]


def test_a_full_lane_makes_the_sender_wait_and_control_does_not():
    async def main():
        mailbox = Mailbox(capacity=2)
        senders = [asyncio.create_task(mailbox.put(envelope(number))) for number in range(5)]
        await asyncio.sleep(1)
        assert [sender.done() for sender in senders] == [True, True, False, False, False]
        mailbox.post(envelope(99))
        assert number_of(mailbox.take()) == 99
        await asyncio.sleep(1)
        assert len(mailbox) == 2, "control made no room in the work lane"
        taken = []
        while len(taken) < 5:
            taken.append(number_of(mailbox.take()))
            await asyncio.sleep(1)
            assert len(mailbox) <= 2
        assert taken == [0, 1, 2, 3, 4]
        await asyncio.gather(*senders)

    run(main())


def test_work_that_may_not_wait_goes_in_over_a_full_lane():
    async def main():
        mailbox = Mailbox(capacity=1)
        await mailbox.put(envelope(1))
        mailbox.post_work(envelope(2))
        sender = asyncio.create_task(mailbox.put(envelope(3)))
        await asyncio.sleep(1)
        assert not sender.done()
        assert number_of(mailbox.take()) == 1
        await asyncio.sleep(1)
        assert not sender.done(), "one too many is still in the lane"
        assert number_of(mailbox.take()) == 2
        await sender
        assert drained(mailbox) == [3]

    run(main())


def test_a_reader_that_is_cancelled_at_the_moment_of_delivery_loses_nothing():
    async def main():
        mailbox = Mailbox()
        reader = asyncio.create_task(mailbox.wait())
        await asyncio.sleep(1)
        mailbox.post_work(envelope(1))
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await mailbox.wait()
        assert drained(mailbox) == [1]

    run(main())


def test_a_sender_cancelled_while_it_waits_adds_nothing():
    async def main():
        mailbox = Mailbox(capacity=1)
        await mailbox.put(envelope(1))
        senders = [asyncio.create_task(mailbox.put(envelope(number))) for number in (2, 3)]
        await asyncio.sleep(1)
        senders[0].cancel()
        await asyncio.sleep(1)
        assert number_of(mailbox.take()) == 1
        await asyncio.sleep(1)
        assert drained(mailbox) == [3]
        assert [sender.cancelled() for sender in senders] == [True, False]

    run(main())


def test_a_sender_cancelled_on_its_turn_passes_the_turn_on():
    async def main():
        mailbox = Mailbox(capacity=1)
        await mailbox.put(envelope(1))
        senders = [asyncio.create_task(mailbox.put(envelope(number))) for number in (2, 3)]
        await asyncio.sleep(1)
        mailbox.take()  # sender 2 has the turn,
        senders[0].cancel()  # and leaves before it takes it
        await asyncio.sleep(1)
        assert drained(mailbox) == [3]
        assert senders[0].cancelled()

    run(main())


def test_a_sender_cancelled_just_before_a_message_is_taken_is_cancelled_and_nothing_else():
    async def main():
        mailbox = Mailbox(capacity=1)
        await mailbox.put(envelope(1))
        sender = asyncio.create_task(mailbox.put(envelope(2)))
        await asyncio.sleep(1)
        sender.cancel()
        mailbox.take()
        with pytest.raises(asyncio.CancelledError):
            await sender
        assert len(mailbox) == 0

    run(main())


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3), st.integers(0, 2**16))
def test_whatever_the_interleaving_what_was_sent_is_taken_once_and_in_order(data, capacity, seed):
    """Senders of both lanes, some cancelled at some point, against one reader that is cancelled now and then."""
    num_senders = data.draw(st.integers(1, 4))
    leaves_at = data.draw(st.lists(st.integers(0, 12), max_size=3))
    reader_breaks = data.draw(st.lists(st.integers(0, 12), max_size=3))

    async def main():
        mailbox = Mailbox(capacity)
        sent: dict[int, list[int]] = {i: [] for i in range(num_senders)}
        controls: list[int] = []
        taken: list[int] = []

        async def send(i):
            for j in range(4):
                number = 100 * i + j
                if j == 2:
                    controls.append(10_000 + number)
                    mailbox.post(envelope(10_000 + number))
                await mailbox.put(envelope(number))
                sent[i].append(number)
                await asyncio.sleep(0)

        async def receive():
            while True:
                while (found := mailbox.take()) is not None:
                    taken.append(number_of(found))
                    await asyncio.sleep(0)
                await mailbox.wait()

        senders = [asyncio.create_task(send(i)) for i in range(num_senders)]
        reader = asyncio.create_task(receive())
        for turn in range(13):
            for i in (j for j, at in enumerate(leaves_at) if at == turn and j < num_senders):
                senders[i].cancel()
            if turn in reader_breaks:
                reader.cancel()
                await asyncio.wait([reader])
                reader = asyncio.create_task(receive())
            await asyncio.sleep(0)
        results = await asyncio.gather(*senders, return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
        await asyncio.sleep(1)
        reader.cancel()
        await asyncio.wait([reader])
        assert len(mailbox) == 0
        work = [number for number in taken if number < 10_000]
        assert sorted(taken) == sorted([*controls, *(n for numbers in sent.values() for n in numbers)])
        for i, numbers in sent.items():
            assert [number for number in work if number // 100 == i] == numbers
        assert deque(number for number in taken if number >= 10_000) == deque(controls)

    run(main(), seed)
