"""The bodies of requests as they come over the wire, less what has no effect here (`parameters`)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from spec import MAX_NODES, BestFirst, Chain, Occurrence, SpecConfig

MAX_TOP_LOGPROBS = 20
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Speculative(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Drafts of this request alone, made of text: a `SpecConfig`, of which what is left out is as it is there."""

    draft: Literal["none", "ngram", "prompt_lookup", "suffix"]
    k: Annotated[int, Meta(ge=1, le=MAX_NODES)] | None = None
    shape: Chain | BestFirst | None = None
    rule: Literal["resample", "match"] | None = None
    max_ngram: Annotated[int, Meta(ge=1, le=64)] | None = None
    min_ngram: Annotated[int, Meta(ge=1, le=64)] | None = None
    occurrence: Occurrence | None = None
    max_depth: Annotated[int, Meta(ge=2, le=64)] | None = None
    factor: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    min_prob: Annotated[float, Meta(ge=0, le=1)] | None = None
    prompts: bool | None = None

    def config(self) -> SpecConfig:
        """Give the configuration that this says; chains are of 4 unless it is said. Raises SpecError."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return SpecConfig(**given if self.shape is not None else {"k": 4} | given)


class Sampling(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What completions and chat completions share. Null is the same as absent."""

    model: str | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    n: Annotated[int, Meta(ge=1, le=1024)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=1e-3, le=1e3)] | None = None
    logit_bias: dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    speculative: Speculative | None = None
    verify: Literal["resample", "match"] | None = None
    return_tokens: bool | None = None


class CompletionBody(Sampling, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`."""

    prompt: str | list[str | TokenId | list[TokenId]]
    best_of: Annotated[int, Meta(ge=1, le=1024)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None


class TextPart(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class CalledFunction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was called, as the model said it."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A call that an earlier answer made."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class ChatBody(Sampling, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None


class TokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /tokenize`."""

    prompt: str
    model: str | None = None


class DetokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /detokenize`."""

    tokens: list[TokenId]
    model: str | None = None
