"""What the clients saw against the one-sequence loop."""

from collections.abc import Callable, Sequence

from kvpool import blocks_for
from models import FakeModel, FakeProposer, FakeTarget, LoneFakeProposer, Model, RunnerTarget
from scheduler import EngineConfig
from sims.clients import Seen, describe
from spec import Target, generate_stream

_BLOCK_TOKENS = 16


class Comparison:
    """What was compared so far; a client that saw nothing is not."""

    def __init__(self) -> None:
        self.num_compared = 0
        self.differences: list[str] = []
        """Names each request whose client saw something else than the one-sequence loop gives for it."""

    def go_on(
        self,
        seen: Sequence[Seen],
        model: Model,
        proposer: FakeProposer | None,
        config: EngineConfig,
        watch: Callable[..., None] | None,
    ) -> None:
        """Compare what clients saw.

        Of a completed request tokens, log-probabilities and the reason of its end are the same; of one whose client
        left, what it saw is the beginning. The model is bound anew for each.
        """
        seen = [one for one in seen if one.tokens or _is_whole(one)]
        for one in seen:
            difference = _difference(one, model, proposer, config)
            self.num_compared += 1
            if difference is not None:
                self.differences.append(difference)
            if watch is not None:
                watch(self.num_compared, len(seen), None)


def _is_whole(seen: Seen) -> bool:
    return seen.finish_reason in ("stop", "length")


def _difference(seen: Seen, model: Model, proposer: FakeProposer | None, config: EngineConfig) -> str | None:
    is_whole = _is_whole(seen)
    request = seen.client.request
    num_positions = min(len(request.prompt) + request.max_tokens - 1, config.max_model_len, model.max_model_len)
    if isinstance(model, FakeModel):
        target: Target = FakeTarget(model)
    else:
        target = RunnerTarget(model, blocks_for(num_positions, _BLOCK_TOKENS), _BLOCK_TOKENS)
    max_new = min(request.max_tokens, num_positions - len(request.prompt) + 1)
    num_listened = 0

    def listen(_token: int, _logprob: float) -> bool:
        nonlocal num_listened
        num_listened += 1
        return is_whole or num_listened < len(seen.tokens)

    generated = generate_stream(
        target,
        request.speculative or config.speculative,
        request.prompt,
        request.params,
        request.seed,
        max_new,
        request.eos,
        listen,
        choice=request.choice,
        verify=request.verify,
        proposer=None if proposer is None else LoneFakeProposer(proposer),
    )
    if generated.tokens != seen.tokens:
        at = next(
            (i for i, pair in enumerate(zip(seen.tokens, generated.tokens, strict=False)) if pair[0] != pair[1]),
            min(len(seen.tokens), len(generated.tokens)),
        )
        return (
            f"{describe(seen.client)}: token {at} differs: the client saw {seen.tokens[at : at + 4]}, "
            f"the one-sequence loop gives {generated.tokens[at : at + 4]}"
        )
    if generated.logprobs != seen.logprobs:
        return f"{describe(seen.client)}: same tokens, other log-probabilities"
    if is_whole and generated.finish_reason != seen.finish_reason:
        return f"{describe(seen.client)}: ended with {seen.finish_reason!r}, not {generated.finish_reason!r}"
    return None
