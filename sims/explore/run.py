"""One run of a scenario, from the first submission to the verdict."""

import asyncio
import gc
import random
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from actors import Engine, Tap
from actors.messages import Message
from sims.clock import Deadlock
from sims.explore.clients import Crowd
from sims.explore.coverage import Coverage
from sims.explore.invariants import CONSERVATION, PROGRESS, Violation
from sims.explore.loop import Choose, ExploringLoop
from sims.explore.scenario import Scenario, Strike
from sims.explore.watch import Note, Watch
from sims.faults import faulty_passes, plant

T = TypeVar("T")


class Outcome(NamedTuple):
    """What a run came to; `violation` is None where every law held."""

    violation: Violation | None
    num_messages: int
    num_callbacks: int
    coverage: Coverage


def run(
    scenario: Scenario, log: Tap | None = None, note: Note | None = None, choices: Iterable[int] | None = None
) -> Outcome:
    """Run a scenario in the order that its seed or `choices` give; `log` and `note` see everything that happens."""
    watch = Watch(scenario, log, note)
    choose = choose_by(scenario) if choices is None else _follow(choices)
    violation = run_on(ExploringLoop(choose), scenario, watch)
    return Outcome(violation, watch.num_messages, watch.num_callbacks, watch.coverage)


def run_on(loop: ExploringLoop, scenario: Scenario, watch: Watch) -> Violation | None:
    """Run a scenario on a loop that has not run yet; what was found broken, if anything was."""
    was_collecting = gc.isenabled()
    gc.disable()  # it closes abandoned generators at moments that no seed decides
    loop.look = watch.look
    try:
        loop.run(live(scenario, watch))
    except Violation as violation:
        return violation
    except Deadlock as deadlock:
        return Violation(PROGRESS, _shortened(str(deadlock)))
    finally:
        if was_collecting:
            gc.enable()
    return None


def choose_by(scenario: Scenario) -> Choose:
    """Give the order in which a scenario's callbacks run."""
    if scenario.order is None:
        return lambda _: 0
    rng, haste = random.Random(scenario.order), scenario.haste

    def choose(num_ready: int) -> int:
        if haste and rng.random() < haste:
            return num_ready - 1
        return rng.randrange(num_ready)

    return choose


def _follow(choices: Iterable[int]) -> Choose:
    left = iter(choices)
    return lambda _: next(left, 0)


async def live(scenario: Scenario, watch: Watch) -> None:
    """Live through a scenario. Raises Violation for what is left at the end."""

    async def run_pass(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
        del num_tokens, num_layers
        await asyncio.sleep(scenario.pass_s / 2)
        result = work()
        if scenario.pass_s:
            await asyncio.sleep(scenario.pass_s / 2)
        return result

    passes = watch.watched_passes(faulty_passes(run_pass, watch.agenda, scenario.late_s))
    engine = Engine(
        scenario.model(),
        scenario.engine,
        proposer=scenario.proposer(),
        tap=watch,
        run_pass=passes,
        pass_cost=scenario.pass_cost,
    )
    plant(engine, watch.agenda)
    watch.attach(engine)
    crowd = Crowd(scenario, engine, watch)
    async with engine:
        clients = scenario.clients
        strikes = [asyncio.create_task(_strike(scenario, watch, strike), name="strike") for strike in scenario.strikes]
        visits = [asyncio.create_task(crowd.visit(i, client), name=f"client-{i}") for i, client in enumerate(clients)]
        going = [visit for visit, client in zip(visits, clients, strict=True) if client.reads is None]
        if scenario.is_closed_early:
            await _time_to_close(scenario, watch, going)
        elif going:
            await asyncio.gather(*going)
        if all(visit.done() for visit in visits):
            await _rest(scenario, watch)
            watch.is_at_rest = True
        crowd.is_closing = True
    crowd.is_over.set()
    await asyncio.gather(*visits)
    for strike in strikes:
        strike.cancel()
    _check_leftovers(watch, but="messages undelivered")
    for kind, count in watch.agenda.struck.items():
        watch.coverage.count(watch.coverage.faults, kind, by=count)


async def _strike(scenario: Scenario, watch: Watch, strike: Strike) -> None:
    """Cancel a task of the engine: within a pass every stream has ended and every block is back."""
    if strike.at_message:
        await _message_number(watch, strike.at_message)
    if strike.delay_s:
        await asyncio.sleep(strike.delay_s)
    watch.strike(strike.task)
    await asyncio.sleep(scenario.pass_s + 1e-6)
    try:
        _check_leftovers(watch, but="messages undelivered")
    except Violation as violation:
        watch.found(violation)


async def _message_number(watch: Watch, number: int) -> None:
    has_come = asyncio.Event()

    def listen(message: Message, seqs: tuple[int, ...]) -> None:
        del message, seqs
        if watch.num_messages == number:
            has_come.set()

    watch.listeners.append(listen)
    await has_come.wait()


async def _time_to_close(scenario: Scenario, watch: Watch, going: list[asyncio.Task[None]]) -> None:
    """Wait until it is time to close the engine, whoever is there, or until those who go have gone."""
    if scenario.close_at_s is not None:
        await asyncio.sleep(scenario.close_at_s)
        return
    assert scenario.close_at_message is not None
    coming = asyncio.create_task(_message_number(watch, scenario.close_at_message), name="closing time")
    asyncio.gather(*going).add_done_callback(lambda _: coming.cancel())
    await asyncio.wait([coming])


async def _rest(scenario: Scenario, watch: Watch) -> None:
    """Everyone has gone: a moment later the engine holds and remembers nothing."""
    await asyncio.sleep(scenario.late_s + 10 * scenario.pass_s + 1e-6)  # time passes only when nothing is ready
    if watch.insides.engine.failure is None:
        _check_leftovers(watch)


def _check_leftovers(watch: Watch, but: str | None = None) -> None:
    left = {name: count for name, count in watch.insides.leftovers.items() if count and name != but}
    if left:
        raise Violation(PROGRESS, f"everyone has gone, and there are {left}")
    held = watch.insides.pool.stats().held
    if held:
        raise Violation(CONSERVATION, f"everyone has gone, and {held} blocks are held")


def _shortened(text: str, most: int = 600) -> str:
    text = re.sub(r"/\S*/(?=\w+\.py)", "", text)  # where the files are says nothing
    return text if len(text) <= most else text[:most] + " ..."
