"""What a client asks for, and the checks at the door."""

import msgspec

from kvpool import blocks_for
from scheduler.config import EngineConfig
from scheduler.errors import RequestError, refuse
from spec import RULES, Rule, SamplingParams, SpecConfig, SpecError, max_nodes

DEFAULT_PARAMS = SamplingParams()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One completion to generate.

    `id` names it to the client and must not be in use (None: the engine makes one). A lower `priority` goes first.
    Prefixes are shared only between requests of the same `cache_salt`. `speculative` overrides the engine's drafts
    (`SpecConfig.parse("none", 1)` switches them off), `verify` the rule that goes with them; `choice` numbers the
    completions of one prompt and seed. Without `logprobs`, tokens carry None for theirs. The engine checks a request
    as it is submitted and keeps a copy.
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
    verify: Rule | None = None
    choice: int = 0
    logprobs: bool = True


_MOST = 2**63 - 1  # what a message can carry
_BOUNDS = {"max_tokens": (1, _MOST), "priority": (-_MOST, _MOST), "seed": (0, 2**64 - 1), "choice": (0, 2**62 - 1)}
"""Integers, and what they may be; lanes of random numbers are two for each choice."""


def check_request(request: Request, config: EngineConfig, vocab_size: int, max_model_len: int) -> None:
    """Refuse with RequestError what could never be served, naming the field.

    Every type is checked: what is let in here is believed from here on. Numbers are Python's own.
    """
    if not isinstance(request, Request):
        raise refuse("request", request, "a Request")
    _check_types(request)
    prompt = request.prompt
    if not prompt:
        raise refuse("prompt", prompt, "at least one token")
    for field, ids in (("prompt", prompt), ("eos", request.eos)):
        #   a set of types is made at C speed, where most of a prompt's check is spent
        if ids and (not set(map(type, ids)) <= {int} or min(ids) < 0 or max(ids) >= vocab_size):
            bad = next(t for t in ids if type(t) is not int or not 0 <= t < vocab_size)
            raise refuse(field, bad, f"int ids in [0, {vocab_size})")
    if len(prompt) > max_model_len:
        raise RequestError(f"prompt is {len(prompt)} tokens: at most max_model_len ({max_model_len})")
    try:
        request.params.check_vocabulary(vocab_size)
        speculative = (request.speculative or config.speculative).for_request(request.params, request.verify)
    except SpecError as error:
        raise RequestError(str(error)) from None
    if request.speculative is not None:
        config.check_draft("speculative", request.speculative)
    num_slots = most_slots(request, speculative, max_model_len)
    if blocks_for(num_slots, config.block_tokens) > config.num_blocks:
        raise refuse(
            "max_tokens",
            request.max_tokens,
            f"with a prompt of {len(prompt)} at most {config.num_blocks} blocks of {config.block_tokens} positions",
        )


def num_new_tokens(request: Request, max_model_len: int) -> int:
    """Tokens the request can get: its own bound, or what the cache leaves room for."""
    return min(request.max_tokens, max_model_len - len(request.prompt) + 1)


def most_slots(request: Request, speculative: SpecConfig, max_model_len: int) -> int:
    """Slots that the request fills at the most, with the drafts that it cannot do without; `speculative` is its own.

    The last token is emitted and never fed; a draft ends before it. Of a tree, the nodes side by side share a
    position and not a slot.
    """
    num_new = num_new_tokens(request, max_model_len)
    num_slots = len(request.prompt) + num_new - 1
    if speculative.rule == "match" or speculative.shape is None:
        return num_slots
    shape = speculative.shape
    layers = range(min(shape.max_depth, num_new - 1) + 1)
    return num_slots + max(max_nodes(shape, num_layers) - num_layers for num_layers in layers)


def own_copy(request: Request) -> Request:
    """Copy what the caller may change later. RequestError where that has been made wrong since it was first checked."""
    params = request.params
    try:
        params = msgspec.structs.replace(params, logit_bias=dict(params.logit_bias))
    except SpecError as error:
        raise RequestError(str(error)) from None
    return msgspec.structs.replace(request, prompt=list(request.prompt), eos=tuple(request.eos), params=params)


def _check_types(request: Request) -> None:
    for field, (low, high) in _BOUNDS.items():
        value = getattr(request, field)
        if type(value) is not int:
            raise refuse(field, value, "an integer")
        if not low <= value <= high:
            raise refuse(field, value, f"an integer >= {low}" if value < low else f"an integer in [{low}, {high}]")
    for field, kinds, allowed in (
        ("prompt", (list, tuple), "a list of int ids"),
        ("eos", (tuple, list, set, frozenset), "a tuple of int ids"),
        ("params", SamplingParams, "SamplingParams"),
        ("id", (str, type(None)), "a str, or None"),
        ("cache_salt", (str, type(None)), "a str, or None"),
        ("speculative", (SpecConfig, type(None)), "a SpecConfig, or None"),
        ("logprobs", bool, "True or False"),
    ):
        if not isinstance(getattr(request, field), kinds):
            raise refuse(field, getattr(request, field), allowed)
    if request.verify is not None and (not isinstance(request.verify, str) or request.verify not in RULES):
        raise refuse("verify", request.verify, f"one of {', '.join(map(repr, RULES))}, or None")
