"""Scenarios small enough for every order of theirs to be explored. Time stands still in them."""

from scheduler import EngineConfig, Request
from sims.explore.scenario import Client, Fault, Leave, Scenario
from spec import SamplingParams, SpecConfig

_GREEDY = SamplingParams(temperature=0.0)
_SAMPLED = SamplingParams(temperature=1.0)
_AT_ANY_TIME = Leave(delay_s=0.0)


def _engine(
    num_blocks: int = 6, k: int = 2, max_batch_tokens: int = 16, stream_tokens: int = 16, *, prefix_cache: bool = True
) -> EngineConfig:
    return EngineConfig(
        num_blocks=num_blocks,
        block_tokens=2,
        max_batch_tokens=max_batch_tokens,
        max_running=4,
        max_model_len=12,
        speculative=SpecConfig.parse("prompt_lookup", k),
        prefix_cache=prefix_cache,
        stream_tokens=stream_tokens,
        audit_every=1,
    )


def _request(prompt: list[int], max_tokens: int, params: SamplingParams = _GREEDY) -> Request:
    return Request(prompt=prompt, params=params, max_tokens=max_tokens, logprobs=False)


def _scenario(engine: EngineConfig, clients: list[Client], faults: tuple[Fault, ...] = ()) -> Scenario:
    return Scenario(engine=engine, clients=clients, faults=list(faults), vocab=2, sharp=4.0, pass_s=0.0, late_s=0.0)


_LOOPS = [1, 0, 1]  # a prompt that the drafter finds something in

TINY: dict[str, Scenario] = {
    "alone": _scenario(_engine(), [Client(request=_request(_LOOPS, 3))]),
    "leaves": _scenario(_engine(), [Client(request=_request(_LOOPS, 3), leave=_AT_ANY_TIME)]),
    "leaves-sampled": _scenario(_engine(), [Client(request=_request(_LOOPS, 3, _SAMPLED), leave=_AT_ANY_TIME)]),
    "comes-again": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 2), leave=_AT_ANY_TIME, again=_request(_LOOPS, 1))]
    ),
    "pauses": _scenario(_engine(k=1, stream_tokens=2), [Client(request=_request(_LOOPS, 4), leave=_AT_ANY_TIME)]),
    "two-one-leaves": _scenario(
        _engine(),
        [Client(request=_request(_LOOPS, 2), leave=_AT_ANY_TIME), Client(request=_request([0, 0, 1], 2))],
    ),
    "same-prompt": _scenario(
        _engine(),
        [Client(request=_request([1, 0, 1], 1), leave=_AT_ANY_TIME), Client(request=_request([1, 0, 1], 1))],
    ),
    "preempts": _scenario(
        _engine(num_blocks=3, k=1),
        [Client(request=_request([1, 0], 3), leave=_AT_ANY_TIME), Client(request=_request([0], 3))],
    ),
    "model-raises": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 2), leave=_AT_ANY_TIME)], (Fault("raise", 1),)
    ),
    "runner-dies": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 2), leave=_AT_ANY_TIME)], (Fault("die_runner", 2),)
    ),
    "scheduler-dies": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 2), leave=_AT_ANY_TIME)], (Fault("die_scheduler", 3),)
    ),
}
