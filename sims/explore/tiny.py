"""Scenarios small enough for every order of theirs to be explored. Time stands still in them."""

from scheduler import EngineConfig, Request
from sims.explore.scenario import Client, Fault, Leave, Scenario, Strike
from spec import Draft, SamplingParams, SpecConfig, Static

_GREEDY = SamplingParams(temperature=0.0)
_SAMPLED = SamplingParams(temperature=1.0)
_AT_ANY_TIME = Leave(delay_s=0.0)


_TREE = SpecConfig(Draft.FAKE, shape=Static(((0,), (1,), (0, 0))), rule="match")
_DRAWN_TREE = SpecConfig(Draft.FAKE, shape=Static(((0,), (1,), (0, 0))), children="distinct")


def _engine(
    k: int = 2, stream_tokens: int = 16, max_running: int = 4, speculative: SpecConfig | None = None
) -> EngineConfig:
    return EngineConfig(
        num_blocks=6,
        block_tokens=2,
        max_batch_tokens=16,
        max_running=max_running,
        max_model_len=12,
        speculative=speculative or SpecConfig.parse("prompt_lookup", k),
        stream_tokens=stream_tokens,
        audit_every=1,
    )


def _request(prompt: list[int], max_tokens: int, params: SamplingParams = _GREEDY) -> Request:
    return Request(prompt=prompt, params=params, max_tokens=max_tokens, logprobs=False)


def _scenario(
    engine: EngineConfig, clients: list[Client], faults: tuple[Fault, ...] = (), strikes: tuple[Strike, ...] = ()
) -> Scenario:
    return Scenario(
        engine=engine,
        clients=clients,
        faults=list(faults),
        strikes=list(strikes),
        vocab=2,
        sharp=4.0,
        pass_s=0.0,
        late_s=0.0,
    )


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
        [Client(request=_request(_LOOPS, 3), leave=_AT_ANY_TIME), Client(request=_request([0, 0, 1], 1))],
    ),
    "same-prompt": _scenario(
        _engine(),
        [Client(request=_request([1, 0, 1], 1), leave=_AT_ANY_TIME), Client(request=_request([1, 0, 1], 1))],
    ),
    "parks": _scenario(  # who has not read makes room for the other
        _engine(k=1, stream_tokens=2, max_running=1),
        [Client(request=_request([0], 3)), Client(request=_request([1], 1))],
    ),
    "tree": _scenario(_engine(speculative=_TREE), [Client(request=_request([1, 0], 3, _SAMPLED), leave=_AT_ANY_TIME)]),
    "drawn-tree": _scenario(
        _engine(speculative=_DRAWN_TREE), [Client(request=_request([1, 0], 3, _SAMPLED), leave=_AT_ANY_TIME)]
    ),
    "two-trees": _scenario(
        _engine(speculative=_TREE),
        [Client(request=_request([1, 0], 2), leave=_AT_ANY_TIME), Client(request=_request([1, 0], 1))],
    ),
    "tree-runner-dies": _scenario(
        _engine(speculative=_DRAWN_TREE), [Client(request=_request([1, 0], 3, _SAMPLED))], (Fault("die_runner", 2),)
    ),
    "model-raises": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 3), leave=_AT_ANY_TIME)], (Fault("raise", 1),)
    ),
    "runner-dies": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 3), leave=_AT_ANY_TIME)], (Fault("die_runner", 2),)
    ),
    "scheduler-dies": _scenario(
        _engine(), [Client(request=_request(_LOOPS, 3), leave=_AT_ANY_TIME)], (Fault("die_scheduler", 3),)
    ),
    **{
        f"{task}-cancelled": _scenario(_engine(), [Client(request=_request(_LOOPS, 3))], strikes=(Strike(task=task),))
        for task in ("scheduler", "blocks", "runner")
    },
    "two-cancelled": _scenario(
        _engine(),
        [Client(request=_request(_LOOPS, 1))],
        strikes=(Strike(task="scheduler"), Strike(task="runner")),
    ),
}
