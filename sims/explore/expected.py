"""What every client must see: the one-sequence loop's answer for its request."""

from functools import lru_cache

import msgspec

from kvpool import blocks_for
from models import FakeModel, FakeProposer, FakeTarget, LoneFakeProposer
from scheduler import FinishReason, Request
from scheduler.request import most_slots
from sims.explore.scenario import Scenario
from spec import SpecConfig, SpecError, generate_stream


class Expected(msgspec.Struct, frozen=True):
    """Tokens, one log-probability each, and how it ends; "error" where a row leaves no id to choose."""

    tokens: list[int]
    logprobs: list[float]
    finish_reason: FinishReason


class _Question(msgspec.Struct, frozen=True):
    """All that an answer depends on."""

    target: tuple[int, int, int, float, int]
    speculative: SpecConfig
    agreement: float
    request: Request


def expected(scenario: Scenario, request: Request) -> Expected:
    """Generate alone, one sequence at a time, what the engine is asked for among others."""
    target = (
        scenario.target_seed,
        scenario.vocab,
        scenario.context,
        scenario.sharp,
        scenario.engine.max_model_len,
    )
    speculative = request.speculative or scenario.engine.speculative
    bare = msgspec.structs.replace(request, id=None, priority=0, cache_salt=None, speculative=None, logprobs=True)
    return _answer(msgspec.msgpack.encode(_Question(target, speculative, scenario.agreement, bare)))


def fits(scenario: Scenario, request: Request) -> bool:
    """Tell whether a request can be served: by its length, by its blocks, and by a rule that goes with its drafts."""
    engine, length = scenario.engine, len(request.prompt)
    if length > engine.max_model_len:
        return False
    try:
        speculative = (request.speculative or engine.speculative).for_request(request.params, request.verify)
    except SpecError:
        return False
    return blocks_for(most_slots(request, speculative, engine.max_model_len), engine.block_tokens) <= engine.num_blocks


@lru_cache(maxsize=4096)
def _answer(question: bytes) -> Expected:
    asked = msgspec.msgpack.decode(question, type=_Question)
    request = asked.request
    model = FakeModel(*asked.target)
    proposer = None
    if asked.speculative.draft.needs_proposer:
        proposer = LoneFakeProposer(FakeProposer(model, model.seed + 1, 1, model.sharp, asked.agreement))
    tokens: list[int] = []
    logprobs: list[float] = []

    def listen(token: int, logprob: float) -> bool:
        tokens.append(token)
        logprobs.append(logprob)
        return True

    try:
        generated = generate_stream(
            FakeTarget(model),
            asked.speculative,
            request.prompt,
            request.params,
            request.seed,
            request.max_tokens,
            request.eos,
            listen,
            choice=request.choice,
            verify=request.verify,
            proposer=proposer,
        )
    except SpecError:
        return Expected(tokens, logprobs, "error")
    return Expected(tokens, logprobs, generated.finish_reason)
