"""All that a simulation is a function of."""

from typing import Literal

import msgspec

from scheduler import EngineConfig
from sims.arrivals import Closed, Open, Recorded
from sims.errors import SimError
from sims.faults import Rates
from sims.fleet.config import Fleet
from sims.leaving import Leaving
from sims.lengths import Lengths
from sims.prompts import Prompts
from spec import Draft, Rule, SamplingParams, SpecError

Clock = Literal["virtual", "wall"]

MOST_REQUESTS = 10**7
MOST_BLOCKS = 2**22


class Fake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fake target: `vocab` ids, logits of the last `order` tokens, spread over `[0, sharp)`."""

    vocab: int = 128
    order: int = 1
    sharp: float = 100.0


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What passes take in virtual time: `overhead_ms + per_token_us * tokens`, and a layer of a model's drafts."""

    overhead_ms: float = 5.0
    per_token_us: float = 20.0
    layer_ms: float = 0.5

    def seconds(self, num_tokens: int) -> float:
        """Seconds of a pass over `num_tokens` tokens."""
        return self.overhead_ms / 1e3 + self.per_token_us / 1e6 * num_tokens

    def draft_seconds(self, num_layers: int) -> float:
        """Seconds of a model's drafts of so many layers, for all sequences of a step."""
        return self.layer_ms / 1e3 * num_layers


class SimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulation: the engine, its traffic and its clock. In virtual time, equal ones give equal reports.

    Requests come from `trace` or `replay` (paths), or are made up. `requests` bounds their number; None is all of a
    file's, 2,000 otherwise. Each request takes one of `temperatures`, one of `tenants` (they share no prefixes) and
    one of `priorities` levels. With `shuffle`, whatever is ready to run in virtual time runs in an order drawn from the
    seed, not first in, first out. `compare` of the requests are held against the one-sequence loop afterwards. With
    `baseline` the same requests are run a second time without drafts, for the speed that these give.
    """

    seed: int = 0
    requests: int | None = None
    clock: Clock = "virtual"
    shuffle: bool = False
    engine: EngineConfig = EngineConfig()
    target: Fake = Fake()
    agreement: float = 0.8
    """Share of contexts after which the fake proposer's law is the fake target's, and not another's."""
    arrivals: Closed | Open | Recorded = Closed()
    prompt_tokens: Lengths = Lengths(24, 384, 0.6)
    output_tokens: Lengths = Lengths(128, 2048, 0.5)
    prompts: Prompts = Prompts()
    temperatures: tuple[float, ...] = (0.0, 0.8)
    verify: Rule = "resample"
    tenants: int = 1
    priorities: int = 1
    leaving: Leaving = Leaving()
    faults: Rates = Rates()
    cost: Cost = Cost()
    compare: int = 250
    baseline: bool = False
    trace: str | None = None
    replay: str | None = None
    format: str | None = None
    """Of the file of `trace` or `replay`; None has it guessed."""
    fleet: Fleet | None = None
    """Engines behind a router; None is one engine and no router."""

    def __post_init__(self) -> None:
        shares = {
            "cancel_rate": self.leaving.cancel_rate,
            "slow_rate": self.leaving.slow_rate,
            "repetition": self.prompts.repetition,
            "shared_rate": self.prompts.shared_rate,
            "agreement": self.agreement,
        }
        for field, share in shares.items():
            if not 0 <= share <= 1:
                raise SimError(f"{field} is {share}: a share in [0, 1]")
        counts = {
            "requests": (1 if self.requests is None else self.requests, MOST_REQUESTS),
            "vocab": (self.target.vocab, 2**20),
            "order": (self.target.order, 2**10),
            "tenants": (self.tenants, 2**31),
            "priorities": (self.priorities, MOST_REQUESTS),
            "num_shared": (self.prompts.num_shared, MOST_REQUESTS),
            "num_blocks": (self.engine.num_blocks, MOST_BLOCKS),
        }
        if self.trace is None and self.replay is None:
            counts["prompt_tokens"] = (self.prompt_tokens.low, self.engine.max_model_len)
        if isinstance(self.arrivals, Closed):
            counts["concurrency"] = (self.arrivals.concurrency, MOST_REQUESTS)
        for field, (count, most) in counts.items():
            if not 1 <= count <= most:
                raise SimError(f"{field} is {count}: an integer in [1, {most}]")
        not_negative = {
            "seed": self.seed,
            "compare": self.compare,
            "shared_tokens": self.prompts.shared_tokens,
            "slow_delay_ms": self.leaving.slow_delay_ms,
            "overhead_ms": self.cost.overhead_ms,
            "per_token_us": self.cost.per_token_us,
            "layer_ms": self.cost.layer_ms,
            "vanish_at_s": min(self.leaving.vanish_at_s, default=0.0),
        }
        if isinstance(self.arrivals, Open) and self.arrivals.burstiness and not 1e-3 <= self.arrivals.burstiness <= 1e3:
            raise SimError(f"burstiness is {self.arrivals.burstiness}: 0, or a number in [0.001, 1000]")
        for field, number in not_negative.items():
            if not 0 <= number < 2**64:
                raise SimError(f"{field} is {number}: a finite number >= 0")
        positive = {
            "sharp": self.target.sharp,
            "overhead_ms and per_token_us": self.cost.seconds(1),
            **({"rate": self.arrivals.rate} if isinstance(self.arrivals, Open) else {}),
            **({"speedup": self.arrivals.speedup} if isinstance(self.arrivals, Recorded) else {}),
        }
        for field, number in positive.items():
            if not 0 < number < 2**64:
                raise SimError(f"{field} is {number}: a finite number > 0")
        if self.faults.hang and (self.clock == "wall" or self.engine.pass_timeout_s is None):
            raise SimError(f"hang is {self.faults.hang}: passes hang in virtual time only, and with a pass_timeout_s")
        if self.trace is not None and self.replay is not None:
            raise SimError("trace and replay are both given: one source of requests")
        if self.baseline and (self.clock == "wall" or self.engine.speculative.draft is Draft.NONE):
            raise SimError("baseline is set: drafts are held against none, and in virtual time only")
        if self.format is not None and self.trace is None and self.replay is None:
            raise SimError(f"format is {self.format!r}: only a trace or replay is read from a file")
        if self.fleet is not None and self.clock == "wall":
            raise SimError("replicas share one clock: in virtual time only")
        if self.fleet is not None and self.fleet.router == "session" and self.trace is None:
            raise SimError("router is 'session': only a trace has sessions")
        if self.shuffle and self.clock == "wall":
            raise SimError("shuffle is set: the order of events is drawn in virtual time only")
        if isinstance(self.arrivals, Recorded) and self.trace is None:
            raise SimError("arrivals are recorded: only a trace has times of its own")
        if self.clock == "wall" and self.engine.speculative.is_auto:
            raise SimError("nodes is 'auto': a number with --clock wall, where what a pass costs is not known")
        if self.replay is not None and self.engine.speculative.draft.needs_proposer:
            raise SimError(f"draft is {self.engine.speculative.draft.value!r}: a fake one agrees with no recording")
        if self.replay is not None and any(self.temperatures):
            raise SimError(f"temperatures are {self.temperatures}: a recording is greedy, 0 only")
        try:
            self.engine.speculative.for_request(SamplingParams(), self.verify)
        except SpecError as error:
            raise SimError(str(error)) from None
        if not self.temperatures:
            raise SimError("temperatures is empty: at least one")
