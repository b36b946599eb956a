"""What a client asks for, and the checks at the door."""

import msgspec

from kvpool import blocks_for
from scheduler.config import EngineConfig
from scheduler.errors import RequestError, refuse
from spec import Rule, SamplingParams, SpecConfig, SpecError, stream

DEFAULT_PARAMS = SamplingParams()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One completion to generate.

    `id` names it to the client and must not be in use (None: the engine makes one). A lower `priority` goes first.
    Prefixes are shared only between requests of the same `cache_salt`. `speculative` overrides the engine's drafts
    (`SpecConfig.parse("none", 1)` switches them off); `choice` numbers the completions of one prompt and seed.
    Without `logprobs`, tokens carry None for theirs.
    """

    prompt: list[int]
    params: SamplingParams = DEFAULT_PARAMS
    max_tokens: int = 16
    seed: int = 0
    eos: tuple[int, ...] = ()
    id: str | None = None
    priority: int = 0
    cache_salt: str | None = None
    speculative: SpecConfig | None = None
    verify: Rule = "resample"
    choice: int = 0
    logprobs: bool = True


def check_request(request: Request, config: EngineConfig, vocab_size: int, max_model_len: int) -> None:
    """Refuse with RequestError what could never be served, naming the field."""
    for field in ("max_tokens", "seed", "priority", "choice"):
        value = getattr(request, field)
        if not isinstance(value, int) or isinstance(value, bool):
            raise refuse(field, value, "an integer")
    prompt = request.prompt
    if not prompt:
        raise refuse("prompt", prompt, "at least one token")
    if not all(map(int.__instancecheck__, prompt)) or min(prompt) < 0 or max(prompt) >= vocab_size:
        bad = next(t for t in prompt if not isinstance(t, int) or not 0 <= t < vocab_size)
        raise refuse("prompt", bad, f"int ids in [0, {vocab_size})")
    if len(prompt) > max_model_len:
        raise refuse("prompt", f"{len(prompt)} tokens", f"at most max_model_len ({max_model_len})")
    if request.max_tokens < 1:
        raise refuse("max_tokens", request.max_tokens, "an integer >= 1")
    for token in request.eos:
        if not isinstance(token, int) or not 0 <= token < vocab_size:
            raise refuse("eos", token, f"int ids in [0, {vocab_size})")
    if request.verify not in ("resample", "match"):
        raise refuse("verify", request.verify, "'resample' or 'match'")
    try:
        request.params.check_vocabulary(vocab_size)
        stream(request.seed, request.choice)
    except SpecError as error:
        raise RequestError(str(error)) from None
    if request.speculative is not None:
        config.check_draft("speculative", request.speculative)
    # The last token is emitted and never fed; a draft never runs past it.
    num_positions = len(prompt) + num_new_tokens(request, max_model_len) - 1
    if blocks_for(num_positions, config.block_tokens) > config.num_blocks:
        raise refuse(
            "max_tokens",
            request.max_tokens,
            f"with a prompt of {len(prompt)} at most {config.num_blocks} blocks of {config.block_tokens} positions",
        )


def num_new_tokens(request: Request, max_model_len: int) -> int:
    """Tokens the request can get: its own bound, or what the cache leaves room for."""
    return min(request.max_tokens, max_model_len - len(request.prompt) + 1)
