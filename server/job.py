"""From the body of a request to what the engine is asked for, everything checked."""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from scheduler import EngineConfig, Request, RequestError
from server.bodies import BodyReader
from server.config import ServerConfig
from server.conversation import read_messages
from server.encoding import Encoder
from server.errors import ApiError, invalid, too_long
from server.tokens import Tokenizer
from server.wire import ChatBody, CompletionBody, DetokenizeBody, Sampling, StreamOptions, TokenizeBody
from spec import SamplingParams, SpecConfig, SpecError

_COMPLETION_TOKENS = 16  # what OpenAI's API gives where a completion does not say


class Job(NamedTuple):
    """What one HTTP request asks for: a request to the engine for each choice, and how to answer."""

    id: str
    is_chat: bool
    requests: list[Request]
    num_prompts: int
    num_prompt_tokens: int
    stops: list[str]
    is_stream: bool
    includes_usage: bool
    counts_as_it_goes: bool
    wants_logprobs: bool
    returns_tokens: bool
    num_spec_tokens: int
    num_top: int = 0
    """Alternatives to give for each token."""
    echoes: bool = False

    @property
    def shows_tokens(self) -> bool:
        """Whether an answer tells of its tokens one by one."""
        return self.wants_logprobs or self.returns_tokens


class JobReader:
    """Reads bodies into jobs for one model. Raises ApiError, naming the parameter, for what cannot be served."""

    def __init__(
        self,
        model_name: str,
        tokenizer: Tokenizer,
        server: ServerConfig,
        engine: EngineConfig,
        max_model_len: int,
        bodies: BodyReader,
    ) -> None:
        self._model_name = model_name
        self._tokenizer = tokenizer
        self._server = server
        self._engine = engine
        self._bodies = bodies
        self._num_positions = min(max_model_len, engine.max_model_len, engine.num_blocks * engine.block_tokens)
        self._encoder = Encoder(tokenizer, self._num_positions)

    async def completion(self, data: bytes, salt: str | None) -> Job:
        """Read the body of a completion."""
        body = await self._bodies.decode(data, CompletionBody)
        self.check_model(body.model)
        if body.best_of not in (None, body.n or 1):
            raise ApiError(400, "best_of is not supported: leave it out, or n", "best_of", "unsupported_parameter")
        prompts = await self._prompts(body.prompt)
        max_tokens = body.max_tokens or _COMPLETION_TOKENS
        job = self._job(body, prompts, max_tokens, salt, is_chat=False, wants_logprobs=body.logprobs is not None)
        return job._replace(num_top=body.logprobs or 0, echoes=bool(body.echo))

    async def chat(self, data: bytes, salt: str | None) -> Job:
        """Read the body of a chat completion."""
        body = await self._bodies.decode(data, ChatBody)
        self.check_model(body.model)
        if None not in (body.max_tokens, body.max_completion_tokens) and body.max_tokens != body.max_completion_tokens:
            raise invalid(
                "max_tokens", f"max_completion_tokens is {body.max_completion_tokens}: the same, or one of them"
            )
        prompt = await self._encoder.conversation(read_messages(body.messages))
        room = min(self._server.max_output_tokens, self._num_positions - len(prompt) + 1)
        max_tokens = body.max_tokens or body.max_completion_tokens or max(1, room)
        if body.top_logprobs and not body.logprobs:
            raise invalid("top_logprobs", "only with logprobs: true")
        job = self._job(body, [prompt], max_tokens, salt, is_chat=True, wants_logprobs=body.logprobs is True)
        return job._replace(num_top=body.top_logprobs or 0)

    async def tokenize(self, data: bytes) -> list[int]:
        """Read a body with a text, and give its ids."""
        body = await self._bodies.decode(data, TokenizeBody)
        self.check_model(body.model)
        return await self._encoder.text(body.prompt, "prompt")

    async def detokenize(self, data: bytes) -> str:
        """Read a body with ids, and give their text."""
        body = await self._bodies.decode(data, DetokenizeBody)
        self.check_model(body.model)
        return await self._encoder.decode(body.tokens)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not the one served."""
        if name is not None and name != self._model_name:
            message = f"the model {name!r} is not served here, {self._model_name!r} is"
            raise ApiError(404, message, "model", "model_not_found")

    async def _prompts(self, prompt: str | Sequence[str | int | list[int]]) -> list[list[int]]:
        if isinstance(prompt, str):
            return [await self._encoder.text(prompt, "prompt")]
        if not prompt:
            raise invalid("prompt", "it is empty: a text or at least one token id")
        if isinstance(prompt[0], int):
            self._encoder.check_length(prompt, "prompt")
        else:
            self._check_count("prompt", len(prompt), self._server.max_choices, "prompts")
        num_ids = sum(isinstance(part, int) for part in prompt)
        if num_ids == len(prompt):
            return [list(prompt)]  # type: ignore[arg-type]
        if num_ids:
            raise invalid("prompt", "token ids between other prompts: one list of ids is one prompt")
        return [await self._prompt(part) for part in prompt]  # type: ignore[arg-type]

    async def _prompt(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            return await self._encoder.text(prompt, "prompt")
        self._encoder.check_length(prompt, "prompt")
        return prompt

    def _job(
        self,
        body: Sampling,
        prompts: list[list[int]],
        max_tokens: int,
        salt: str | None,
        *,
        is_chat: bool,
        wants_logprobs: bool,
    ) -> Job:
        server = self._server
        n = body.n or 1
        self._check_count("n", n * len(prompts), server.max_choices, "choices")
        stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
        self._check_count("stop", len(stops), server.max_stop_strings, "strings")
        for stop in stops:
            if not 1 <= len(stop) <= server.max_stop_chars:
                raise invalid("stop", f"a string of {len(stop)} characters: 1 to {server.max_stop_chars}")
        self._check_count("logit_bias", len(body.logit_bias or ()), server.max_logit_bias, "entries")
        self._check_count("stop_token_ids", len(body.stop_token_ids or ()), server.max_stop_strings, "ids")
        self._check_count("max_tokens", max_tokens, server.max_output_tokens, "tokens")
        if (body.min_tokens or 0) > max_tokens:
            raise invalid("min_tokens", f"{body.min_tokens} tokens: at most max_tokens ({max_tokens})")
        if body.stream_options is not None and not body.stream:
            raise invalid("stream_options", "only with stream: true")
        params = _params(body)
        seed = secrets.randbits(63) if body.seed is None else body.seed
        job_id = ("chatcmpl-" if is_chat else "cmpl-") + secrets.token_hex(12)
        speculative = self._speculative(body)
        requests = [
            Request(
                prompt=prompt,
                params=params,
                max_tokens=max_tokens,
                seed=seed,
                eos=() if body.ignore_eos else tuple(self._tokenizer.eos_ids),
                id=f"{job_id}-{choice}",
                priority=body.priority or 0,
                cache_salt=salt,
                speculative=speculative,
                verify=body.verify,
                choice=choice,
                logprobs=wants_logprobs,
            )
            #   all are of one seed, whichever their prompt: each has a number of its own
            for choice, prompt in enumerate(prompt for prompt in prompts for _ in range(n))
        ]
        options = body.stream_options or StreamOptions()
        includes_usage = bool(options.include_usage)
        return Job(
            id=job_id,
            is_chat=is_chat,
            requests=requests,
            num_prompts=len(prompts),
            num_prompt_tokens=sum(map(len, prompts)),
            stops=stops,
            is_stream=bool(body.stream),
            includes_usage=includes_usage,
            counts_as_it_goes=includes_usage and bool(options.continuous_usage_stats),
            wants_logprobs=wants_logprobs,
            returns_tokens=bool(body.return_tokens),
            num_spec_tokens=_num_spec_tokens(speculative or self._engine.speculative),
        )

    def _speculative(self, body: Sampling) -> SpecConfig | None:
        if body.speculative is None:
            return None
        try:
            return body.speculative.config()
        except SpecError as error:
            raise refused(error, "speculative.") from None

    def _check_count(self, param: str, count: int, most: int, what: str) -> None:
        if count > most:
            raise invalid(param, f"{count} {what}: at most {most}")


def refused(error: RequestError | SpecError, place: str = "") -> ApiError:
    """Tell the client what the engine refused, of fields that stand at `place`."""
    message = place + str(error)
    if "blocks" in message and message.startswith("max_tokens"):
        return too_long("max_tokens", message.removeprefix("max_tokens is "))
    field = message.partition(" is ")[0].partition("[")[0]
    is_named = field.replace(".", "_").isidentifier()
    return ApiError(400, message, field if is_named else None, "invalid_value")


def _params(body: Sampling) -> SamplingParams:
    given = {
        name: value
        for name in SamplingParams.__struct_fields__
        if (value := getattr(body, name, None)) is not None and not (name == "top_k" and value == -1)
    }
    try:
        return SamplingParams(**given)
    except SpecError as error:
        raise refused(error) from None


def _num_spec_tokens(speculative: SpecConfig) -> int:
    return 0 if speculative.draft == "none" else speculative.k
