import asyncio

import pytest

from sims.clock import Deadlock, run


def test_time_jumps_to_exactly_the_timers():
    async def main():
        loop = asyncio.get_running_loop()
        seen = []
        for delay_s in (3600.0, 0.1, 0.1 + 1e-9):
            loop.call_later(delay_s, lambda: seen.append(loop.time()))
        await asyncio.sleep(7200)
        return seen, loop.time()

    seen, end = run(main())
    assert seen == [0.1, 0.1 + 1e-9, 3600.0]
    assert end == 7200.0


def test_sleepers_add_up_without_drift_at_large_times():
    async def main():
        await asyncio.sleep(1e9)
        for _ in range(100):
            await asyncio.sleep(1e-7)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(1e9 + 1e-5, abs=2e-5)


def test_timeouts_and_task_groups_work_in_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            for i in range(3):
                group.create_task(asyncio.sleep(i))
        return asyncio.get_running_loop().time()

    assert run(main()) == 3.5


def test_a_deadlock_names_the_tasks_that_wait():
    async def wait_for_ever():
        await asyncio.get_running_loop().create_future()

    async def main():
        asyncio.create_task(wait_for_ever(), name="the lost one")  # noqa: RUF006  # it hangs, that is the point
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"these wait \(2\): .*the lost one at .*test_clock\.py"):
        run(main())


def test_the_first_of_two_deadlocks_is_told():
    async def stubborn():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(stubborn(), name="stubborn")
        await task

    with pytest.raises(Deadlock, match=r"these wait \(2\)"):
        run(main())


def test_async_generators_are_closed_at_the_end():
    closed = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append(True)

    async def main():
        kept = numbers()
        main.kept = kept  # survives the main task
        return await anext(kept)

    assert run(main()) == 1
    assert closed == [True]


def order_of_three(seed):
    async def main():
        seen = []

        async def worker(name):
            for step in range(3):
                seen.append(f"{name}{step}")
                await asyncio.sleep(0)

        await asyncio.gather(*(worker(name) for name in "abc"))
        return "".join(seen)

    return run(main(), seed)


def test_a_seed_picks_an_interleaving_and_always_the_same_one():
    orders = [order_of_three(seed) for seed in range(20)]
    assert orders == [order_of_three(seed) for seed in range(20)]
    assert len(set(orders)) > 15
    assert order_of_three(None) == "a0b0c0a1b1c1a2b2c2"


def test_shuffled_or_not_each_callback_runs_once():
    async def main():
        seen = []
        for i in range(50):
            asyncio.get_running_loop().call_soon(seen.append, i)
        await asyncio.sleep(1)
        return seen

    assert run(main()) == list(range(50))
    shuffled = run(main(), seed=1)
    assert shuffled != list(range(50))
    assert sorted(shuffled) == list(range(50))
