"""Make a scenario that breaks a law smaller, as long as it still breaks the same one."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from scheduler import EngineConfig, Request, RequestError
from sims.errors import SimError
from sims.explore.run import Outcome, run
from sims.explore.scenario import Client, Scenario
from spec import Chain, Expansion, SamplingParams, SpecConfig

_PLAIN = {
    "poison": None,
    "close_at_s": None,
    "close_at_message": None,
    "order": None,
    "haste": 0.0,
    "per_row_s": None,
    "context": 1,
}
_ORDERS = 4  # other orders tried for each smaller scenario: it may need another to fail


def shrink(scenario: Scenario, law: str, run: Callable[[Scenario], Outcome] = run, most_runs: int = 600) -> Scenario:
    """Give the smallest scenario found that breaks `law`; no single step makes it smaller, unless runs ran out."""
    num_runs = 0

    def fails(candidate: Scenario) -> bool:
        nonlocal num_runs
        num_runs += 1
        violation = run(candidate).violation
        return violation is not None and violation.law == law

    is_smaller = True
    while is_smaller and num_runs < most_runs:
        is_smaller = False
        for candidate in _smaller(scenario):
            if num_runs >= most_runs:
                break
            found = next(filter(fails, _in_other_orders(candidate)), None)
            if found is not None:
                scenario, is_smaller = found, True
                break
    return scenario


def _in_other_orders(scenario: Scenario) -> Iterator[Scenario]:
    yield scenario
    if scenario.order is not None:
        rng = random.Random(scenario.order)
        for _ in range(_ORDERS):
            yield msgspec.structs.replace(scenario, order=rng.randrange(1000))


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Give smaller scenarios, those that save most first."""
    with_fields = msgspec.structs.replace
    clients = scenario.clients
    for size in (len(clients) // 2, 1):
        for start in range(0, len(clients) if size else 0, max(1, size)):
            rest = clients[:start] + clients[start + size :]
            if rest:
                yield with_fields(scenario, clients=rest)
    for field in ("faults", "strikes", "bad_rows", "bad_proposals"):
        items = getattr(scenario, field)
        for i in range(len(items)):
            yield with_fields(scenario, **{field: items[:i] + items[i + 1 :]})
    yield from _plainer(scenario, _PLAIN)
    for engine in _smaller_engines(scenario.engine):
        yield from _allowed(partial(with_fields, scenario, engine=engine))
    for i, client in enumerate(clients):
        for smaller in _smaller_clients(client):
            yield with_fields(scenario, clients=[*clients[:i], smaller, *clients[i + 1 :]])
    for i, fault in enumerate(scenario.faults):
        if fault.nth:
            earlier = with_fields(fault, nth=fault.nth // 2)
            yield with_fields(scenario, faults=[*scenario.faults[:i], earlier, *scenario.faults[i + 1 :]])


def _plainer(struct: Any, plain: dict[str, Any]) -> Iterator[Any]:
    """Give copies with one field as plain as it can be."""
    for field, value in plain.items():
        if getattr(struct, field) != value:
            yield from _allowed(partial(msgspec.structs.replace, struct, **{field: value}))


def _allowed(make: Callable[[], Any]) -> Iterator[Any]:
    try:
        yield make()
    except (RequestError, SimError):
        return


def _smaller_engines(engine: EngineConfig) -> Iterator[EngineConfig]:
    no_drafts = SpecConfig.parse("none", 1)
    plain = {
        "speculative": no_drafts,
        "prefix_cache": False,
        "max_waiting": None,
        "max_running": 256,
        "max_batch_tokens": 256,
        "stream_tokens": 256,
        "pass_timeout_s": None,
        "max_restarts": 3,
        "restart_period_s": 5.0,
        "audit_every": 64,
        "num_blocks": engine.num_blocks // 2 or 1,
        "max_model_len": engine.max_model_len // 2 or 1,
    }
    yield from _plainer(engine, plain)
    if engine.speculative.shape is None and engine.speculative.k > 1:
        smaller = msgspec.structs.replace(engine.speculative, k=engine.speculative.k - 1)
        yield msgspec.structs.replace(engine, speculative=smaller)
    if engine.speculative.shape is not None:
        for shape in (Chain(1), Expansion((2,)), Chain(2)):
            if shape.max_nodes < engine.speculative.k:
                smaller = msgspec.structs.replace(engine.speculative, k=0, shape=shape)
                yield msgspec.structs.replace(engine, speculative=smaller)


def _smaller_clients(client: Client) -> Iterator[Client]:
    yield from _plainer(client, {"again": None, "leave": None, "reads": None, "delay_s": 0.0, "at_s": 0.0})
    for field in ("request", "again"):
        request = getattr(client, field)
        for smaller in () if request is None else _smaller_requests(request):
            yield msgspec.structs.replace(client, **{field: smaller})
    leave = client.leave
    if leave is not None:
        if leave.nth:
            yield msgspec.structs.replace(client, leave=msgspec.structs.replace(leave, nth=leave.nth // 2))
        if leave.num_tokens is not None and leave.num_tokens > 1:
            fewer = msgspec.structs.replace(leave, num_tokens=leave.num_tokens // 2)
            yield msgspec.structs.replace(client, leave=fewer)
        if leave.way != "cancel":
            yield msgspec.structs.replace(client, leave=msgspec.structs.replace(leave, way="cancel"))


def _smaller_requests(request: Request) -> Iterator[Request]:
    greedy = SamplingParams(temperature=0.0)
    plain = {
        "params": greedy,
        "speculative": None,
        "eos": (),
        "cache_salt": None,
        "priority": 0,
        "choice": 0,
        "verify": None,
        "seed": 0,
    }
    yield from _plainer(request, plain)
    length, most = len(request.prompt), request.max_tokens
    for shorter in {length // 2, length - 1} - {0, length}:
        yield msgspec.structs.replace(request, prompt=request.prompt[:shorter])
    for fewer in {most // 2, most - 1} - {0, most}:
        yield msgspec.structs.replace(request, max_tokens=fewer)
