"""A small world to explore: an engine, its clients, what they do, and what goes wrong. A run is a function of it."""

from typing import Any, Literal

import msgspec

from models import FakeModel, FakeProposer
from scheduler import EngineConfig, PassCost, Request
from sims.errors import SimError
from sims.explore.target import FailingProposer, SpoilingModel
from sims.faults import KINDS, FaultKind

Way = Literal["cancel", "break", "raise", "task"]
"""`cancel()`; breaking out of the loop; an exception in its body; the cancellation of the client's task."""

LEAVING_AT = (
    "Submit",
    "Admit",
    "Admitted",
    "Reserve",
    "Reserved",
    "Propose",
    "Proposed",
    "Step",
    "StepDone",
    "Settle",
    "Settled",
    "Resume",
)
"""Messages at which a client may leave."""


class Leave(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How and when a client leaves: exactly one of the three is given.

    `num_tokens` read; `delay_s` after it submitted; or as the `nth` (from 0) `message` that is about its sequence is
    handed over. The last two know no loop to leave, so their way is `cancel` or `task`.
    """

    way: Way = "cancel"
    num_tokens: int | None = None
    delay_s: float | None = None
    message: str | None = None
    nth: int = 0

    def __post_init__(self) -> None:
        if [self.num_tokens, self.delay_s, self.message].count(None) != 2:
            raise SimError(f"leave is {self}: exactly one of num_tokens, delay_s and message")
        if self.num_tokens is None and self.way not in ("cancel", "task"):
            raise SimError(f"leave is {self}: {self.way!r} needs num_tokens")
        if self.message is not None and self.message not in LEAVING_AT:
            raise SimError(f"message is {self.message!r}: one of {', '.join(LEAVING_AT)}")


class Client(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Submits at `at_s`, takes `delay_s` to read a token, and stops reading after `reads` tokens (None: never).

    When its stream has ended, it submits `again`, under the same id.
    """

    request: Request
    at_s: float = 0.0
    delay_s: float = 0.0
    reads: int | None = None
    leave: Leave | None = None
    again: Request | None = None


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault at the n-th opportunity, from 0."""

    kind: FaultKind
    nth: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SimError(f"kind is {self.kind!r}: one of {', '.join(KINDS)}")


class Strike(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The task of an actor is cancelled from outside: `delay_s` after message number `at_message` (0: the start)."""

    task: Literal["scheduler", "blocks", "runner"]
    at_message: int = 0
    delay_s: float = 0.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An engine over a fake target and a fake proposer, its clients and faults.

    `order` seeds the choice among ready callbacks (None: first in, first out), and `haste` is how often the latest
    is taken instead. `bad_rows` are passes (from 0) whose first row of logits is NaN, `bad_proposals` calls of the
    proposer that raise; its law is the target's by a share of `agreement`. A pass over a prompt that begins with
    `poison` raises. With `per_row_s` the engine knows what a row costs, and adapts its drafts. It is closed at
    `close_at_s`, as message number `close_at_message` (from 1) is handed over, or when all have gone.
    """

    engine: EngineConfig
    clients: list[Client]
    faults: list[Fault] = []
    strikes: list[Strike] = []
    bad_rows: list[int] = []
    bad_proposals: list[int] = []
    poison: int | None = None
    order: int | None = None
    haste: float = 0.0
    target_seed: int = 0
    vocab: int = 8
    context: int = 1
    sharp: float = 8.0
    agreement: float = 0.5
    pass_s: float = 0.001
    per_row_s: float | None = None
    late_s: float = 0.1
    close_at_s: float | None = None
    close_at_message: int | None = None

    def model(self) -> FakeModel:
        """Make the target."""
        max_len = self.engine.max_model_len
        return SpoilingModel(
            self.bad_rows, self.poison, self.target_seed, self.vocab, self.context, self.sharp, max_len
        )

    def proposer(self) -> FakeProposer:
        """Make what drafts for those whose drafts a model makes."""
        target = FakeModel(self.target_seed, self.vocab, self.context, self.sharp)
        return FailingProposer(self.bad_proposals, target, self.target_seed + 1, self.sharp, self.agreement)

    def __post_init__(self) -> None:
        if self.engine.pass_timeout_s is None and any(fault.kind == "hang" for fault in self.faults):
            raise SimError("faults has a pass that hangs: pass_timeout_s must say when it is given up")

    @property
    def is_closed_early(self) -> bool:
        """The engine is closed at a time that does not ask whether all have gone."""
        return self.close_at_s is not None or self.close_at_message is not None

    @property
    def pass_cost(self) -> PassCost | None:
        """What the engine knows of the cost of a pass."""
        return None if self.per_row_s is None else PassCost.linear(self.pass_s, self.per_row_s)


def to_json(scenario: Scenario) -> str:
    """Write a scenario as one line of JSON, without what is as usual."""
    return msgspec.json.encode(_unusual(scenario)).decode()


def from_json(text: str | bytes) -> Scenario:
    """Read a scenario. Raises SimError for what is none."""
    try:
        return msgspec.json.decode(text, type=Scenario)
    except msgspec.MsgspecError as error:
        raise SimError(f"scenario: {error}") from None


def _unusual(value: Any) -> Any:
    """Turn structs into dicts of the fields that differ from their defaults."""
    if isinstance(value, msgspec.Struct):
        fields = {}
        for field in msgspec.structs.fields(value):
            held = getattr(value, field.name)
            usual = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
            if held != usual:
                fields[field.encode_name] = _unusual(held)
        config = value.__struct_config__
        if config.tag is not None and config.tag_field is not None:
            fields[config.tag_field] = config.tag
        return fields
    if isinstance(value, list | tuple):
        return [_unusual(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _unusual(item) for key, item in value.items()}
    return value
