"""What a plan says, as it is printed, drawn and written as JSON."""

from typing import Literal

import msgspec

from sims.service import Service

Verdict = Literal["gains", "costs", "unclear"]


class Estimate(msgspec.Struct, frozen=True):
    """A value, and between which values it would lie for 95 of 100 logs of the same kind; None where unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Say of a speed-up whether it gains or costs, and not by chance."""
        if (self.value if self.low is None else self.low) > 1:
            return "gains"
        return "costs" if (self.value if self.high is None else self.high) < 1 else "unclear"


class SizeAnswer(msgspec.Struct, frozen=True):
    """A method with drafts of at most `size` tokens, or a limit, of size 0."""

    method: str
    size: int
    tokens_per_round: Estimate
    drafted_per_token: float
    accept_rate: float
    drafted_by_position: list[int]
    """Rounds that drafted at least 1, 2, ... tokens (nodes, where drafts are trees)."""
    accepted_by_position: list[int]
    """Rounds of which at least 1, 2, ... drafted tokens were accepted."""
    speed: list[Estimate]
    """Speed-up at each of the plan's batches."""
    costs_from: int | None
    """The first batch at which it is slower than plain decoding; None where it is at none."""
    requests_by_speed: list[int]
    """Requests by their own speed-up at the batch that is planned for, between `speed_edges`."""


class BatchAnswer(msgspec.Struct, frozen=True):
    """What is best at a batch."""

    batch: int
    plain_ms: float
    """Milliseconds of a pass without drafts."""
    method: str
    size: int
    speed: Estimate
    adaptive: Estimate | None
    """The best method that was replayed, with drafts of up to the largest size, cut as the engine cuts them."""
    adaptive_method: str | None
    verdict: Verdict


class CategoryAnswer(msgspec.Struct, frozen=True):
    """What the recommended method, or the best one where none is, does for a kind of request."""

    category: str
    num_requests: int
    num_tokens: int
    tokens_per_round: Estimate
    speed: Estimate
    verdict: Verdict


class Recommendation(msgspec.Struct, frozen=True):
    """What to configure."""

    batch: int
    """For which it is."""
    method: str | None
    """None: do not speculate."""
    size: int
    is_adaptive: bool
    speed: Estimate | None
    costs_from: int | None
    reason: str
    configuration: dict[str, str]
    """By engine: what to write."""


class SampleAnswer(msgspec.Struct, frozen=True):
    """Requests of the log that a model was run on."""

    num_requests: int
    num_tokens: int
    num_left_out: int
    """Requests that none could be drawn from: they have no prompt, or more tokens than the models have places for."""
    seed: int
    target: str
    best_share: float
    """Of the recorded tokens: those that the target would have chosen greedily."""
    mean_logprob: float
    """Of a recorded token to the target, natural logarithm."""

    def told(self) -> str:
        """Say what it is."""
        left_out = f", {self.num_left_out:,} too long or without a prompt" if self.num_left_out else ""
        return (
            f"models were run on {self.num_requests:,} requests with {self.num_tokens:,} tokens of answers, drawn with "
            f"seed {self.seed}{left_out}; {self.target} would have chosen {self.best_share:.0%} of the tokens greedily"
        )


class LogAnswer(msgspec.Struct, frozen=True):
    """What the plan rests on."""

    num_requests: int
    num_tokens: int
    num_prompt_tokens: int
    mean_context: float
    unused: dict[str, int]
    tokenizer: str | None
    """None where the log has token ids."""
    is_approximate: bool
    warnings: list[str]
    sample: SampleAnswer | None
    """What methods that need a model are measured on; None where there are none."""


class LoadAnswer(msgspec.Struct, frozen=True):
    """Plain decoding and the choice at a rate of arrivals."""

    rate: float | None
    """Requests a second, Poisson; None for the times of a trace."""
    num_requests: int
    num_tokens: int
    plain: Service
    drafted: Service
    speed: float
    """Mean time to a whole answer, plain over drafted."""


class LoadAnswers(msgspec.Struct, frozen=True):
    """The same requests at every rate."""

    choice: str
    """The recommended method, or the best that was replayed where none is or where it needs a model."""
    is_recommended: bool
    slo_ttft_ms: float
    slo_tpot_ms: float
    num_left_out: int
    """Requests that cannot be replayed beside others: without a prompt, or equal prompts answered differently."""
    answers: list[LoadAnswer]


class Plan(msgspec.Struct, frozen=True):
    """The answer."""

    log: LogAnswer
    cost: list[str]
    batches: list[int]
    speed_edges: list[float]
    methods: dict[str, str]
    """About each method."""
    sizes: list[SizeAnswer]
    limits: list[SizeAnswer]
    best: list[BatchAnswer]
    categories: list[CategoryAnswer]
    recommendation: Recommendation
    load: LoadAnswers | None
    """None where nobody asked."""
