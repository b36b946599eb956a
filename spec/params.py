"""How to sample: what turns a logits row into a distribution."""

import math

import msgspec

from spec.errors import check_int, check_probability, is_int, is_number, refuse


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
            if not is_number(getattr(self, field)):
                raise refuse(field, getattr(self, field), "a number")
        for field in ("top_k", "min_tokens"):
            check_int(field, getattr(self, field), 0, _MOST)
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise refuse("temperature", self.temperature, "a finite number >= 0")
        if not 0 < self.top_p <= 1:
            raise refuse("top_p", self.top_p, "a number in (0, 1]")
        check_probability("min_p", self.min_p)
        if not (self.repetition_penalty > 0 and math.isfinite(self.repetition_penalty)):
            raise refuse("repetition_penalty", self.repetition_penalty, "a finite number > 0")
        for field in ("presence_penalty", "frequency_penalty"):
            if not -2 <= getattr(self, field) <= 2:
                raise refuse(field, getattr(self, field), "a number in [-2, 2]")
        if not isinstance(self.logit_bias, dict):
            raise refuse("logit_bias", self.logit_bias, "a dict of a bias by token id")
        for token, bias in self.logit_bias.items():
            if not is_int(token):
                raise refuse("logit_bias", token, "keys are token ids")
            if not is_number(bias) or math.isnan(bias) or bias == math.inf:
                raise refuse(f"logit_bias[{token}]", bias, "a number below +inf")
        if not isinstance(self.stop_token_ids, (tuple, list, set, frozenset)):
            raise refuse("stop_token_ids", self.stop_token_ids, "a tuple of token ids")
        stops = tuple(self.stop_token_ids)
        for token in stops:
            if not is_int(token):
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


_MOST = 2**63 - 1  # what a message can carry
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
