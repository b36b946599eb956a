"""What a request may ask for: how to sample, and how to speculate."""

import enum
import math
from typing import Self

import msgspec

from spec.errors import refuse

MAX_DRAFT_TOKENS = 16


class SamplingParams(msgspec.Struct, frozen=True):
    """How a logits row becomes a distribution; validated when made (SpecError).

    `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 are off; `logit_bias` adds to the raw logits by id;
    until `min_tokens` tokens are out, no stop id can be drawn.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for field in ("temperature", "top_p", "min_p", *_PENALTIES):
            if not _is_number(getattr(self, field)):
                raise refuse(field, getattr(self, field), "a number")
        for field in ("top_k", "min_tokens"):
            value = getattr(self, field)
            if not _is_int(value) or value < 0:
                raise refuse(field, value, "an integer >= 0")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise refuse("temperature", self.temperature, "a finite number >= 0")
        if not 0 < self.top_p <= 1:
            raise refuse("top_p", self.top_p, "a number in (0, 1]")
        if not 0 <= self.min_p <= 1:
            raise refuse("min_p", self.min_p, "a number in [0, 1]")
        if not (self.repetition_penalty > 0 and math.isfinite(self.repetition_penalty)):
            raise refuse("repetition_penalty", self.repetition_penalty, "a finite number > 0")
        for field in ("presence_penalty", "frequency_penalty"):
            if not -2 <= getattr(self, field) <= 2:
                raise refuse(field, getattr(self, field), "a number in [-2, 2]")
        for token, bias in self.logit_bias.items():
            if not _is_int(token):
                raise refuse("logit_bias", token, "keys are token ids")
            if not _is_number(bias) or math.isnan(bias) or bias == math.inf:
                raise refuse(f"logit_bias[{token}]", bias, "a number below +inf")
        stops = tuple(self.stop_token_ids)
        for token in stops:
            if not _is_int(token):
                raise refuse("stop_token_ids", token, "token ids")
        msgspec.structs.force_setattr(self, "stop_token_ids", stops)

    @property
    def is_greedy(self) -> bool:
        """Nothing is drawn: the best id is taken."""
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """The distribution depends on which tokens came before."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def leaves_logits_alone(self) -> bool:
        """No step before the temperature changes a row."""
        return not (self.logit_bias or self.has_penalties or (self.min_tokens and self.stop_token_ids))

    @property
    def leaves_tail_alone(self) -> bool:
        """No step after the softmax drops an id."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise SpecError for a bias or a stop id outside `[0, vocab_size)`."""
        for field, ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            for token in ids:
                if not 0 <= token < vocab_size:
                    raise refuse(field, token, f"ids in [0, {vocab_size})")


_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


class Draft(enum.StrEnum):
    """Where drafts come from."""

    NONE = "none"
    NGRAM = "ngram"
    PROMPT_LOOKUP = "prompt_lookup"


class SpecConfig(msgspec.Struct, frozen=True):
    """How to speculate: the kind of draft, at most `k` tokens a round, and the n-grams it matches.

    `prompt_lookup` tries suffixes of `max_ngram` down to `min_ngram` tokens; `ngram` is a model of order `max_ngram`.
    Raises SpecError for a value outside what is allowed.
    """

    draft: Draft
    k: int
    max_ngram: int = 3
    min_ngram: int = 1

    def __post_init__(self) -> None:
        try:
            draft = Draft(self.draft)
        except ValueError:
            raise refuse("draft", self.draft, f"one of {', '.join(repr(d.value) for d in Draft)}") from None
        msgspec.structs.force_setattr(self, "draft", draft)
        if not _is_int(self.k) or not 1 <= self.k <= MAX_DRAFT_TOKENS:
            raise refuse("k", self.k, f"an integer in [1, {MAX_DRAFT_TOKENS}]")
        if not _is_int(self.min_ngram) or self.min_ngram < 1:
            raise refuse("min_ngram", self.min_ngram, "an integer >= 1")
        if not _is_int(self.max_ngram) or self.max_ngram < self.min_ngram:
            raise refuse("max_ngram", self.max_ngram, f"an integer >= min_ngram ({self.min_ngram})")

    @classmethod
    def parse(cls, draft: str, k: int) -> Self:
        """Read the two values a user sets."""
        return cls(draft, k)  # type: ignore[arg-type]  # the constructor turns a draft's name into a Draft


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
