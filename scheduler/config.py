"""The engine's measures."""

import math

import msgspec

from scheduler.errors import refuse
from spec import SpecConfig
from spec.errors import is_number

NO_DRAFTS = SpecConfig.parse("none", 1)


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large the engine is and how it shares itself out; validated when made (RequestError).

    KV memory is `num_blocks` blocks of `block_tokens` positions. One pass feeds at most `max_batch_tokens` tokens,
    drafts included, of at most `max_running` sequences of at most `max_model_len` cached positions each.
    """

    num_blocks: int = 4096
    """Blocks of KV memory."""
    block_tokens: int = 16
    """Positions of a block."""
    max_batch_tokens: int = 2048
    """Tokens of one pass, drafts included."""
    max_running: int = 256
    """Sequences that run at a time."""
    max_model_len: int = 8192
    """Positions of one sequence, prompt and answer together; a model may have fewer."""
    max_waiting: int | None = None
    """Requests that may wait beside those a free place (`max_running`) awaits; one more is refused. None: no bound."""
    speculative: SpecConfig = NO_DRAFTS
    """How to speculate, unless a request says otherwise."""
    adaptive: bool = True
    """Where the cost of a pass is known, feed only the drafts that pay; `k` is then the most. Only rounds whose text
    does not depend on the drafts are cut: greedy ones, and sampled ones with verify="match"."""
    prefix_cache: bool = True
    """Share the blocks of prompts that begin alike."""
    stream_tokens: int = 256
    """Tokens a client may leave unread before its own sequence pauses."""
    audit_every: int = 64
    """Messages to the block manager between two full audits of the pool; the conservation law is checked at each."""
    pass_timeout_s: float | None = None
    """A pass that takes longer is given up, and the runner restarted. None: passes may take for ever."""
    max_restarts: int = 3
    """Crashes an actor may have within `restart_period_s`; one more fails every open stream."""
    restart_period_s: float = 5.0
    """The time in which crashes are counted against `max_restarts`."""

    def __post_init__(self) -> None:
        for field, low in _LEAST.items():
            value = getattr(self, field)
            if field == "max_waiting" and value is None:
                continue
            if type(value) is not int or not low <= value <= _MOST:
                allowed = f"an integer >= {low}" if type(value) is not int or value < low else f"an integer <= {_MOST}"
                raise refuse(field, value, allowed + (", or None" if field == "max_waiting" else ""))
        for field in ("pass_timeout_s", "restart_period_s"):
            value = getattr(self, field)
            if field == "pass_timeout_s" and value is None:
                continue
            if not is_number(value) or not 0 < value < math.inf:
                also = ", or None" if field == "pass_timeout_s" else ", in which max_restarts is counted"
                raise refuse(field, value, "seconds > 0" + also)
        for field in ("adaptive", "prefix_cache"):
            if not isinstance(getattr(self, field), bool):
                raise refuse(field, getattr(self, field), "True or False")
        if not isinstance(self.speculative, SpecConfig):
            raise refuse("speculative", self.speculative, "a SpecConfig")
        self.check_draft("speculative", self.speculative)

    def check_draft(self, field: str, speculative: SpecConfig) -> None:
        """Refuse drafts that a pass or a stream cannot hold whole: a round is one pass, and never shrunk."""
        if self.max_batch_tokens < 1 + speculative.k:
            raise refuse(f"{field}.k", speculative.k, f"less than max_batch_tokens ({self.max_batch_tokens})")
        if self.stream_tokens < 1 + speculative.tree_shape.max_depth:
            num_layers = speculative.tree_shape.max_depth
            raise refuse(f"layers of {field}", num_layers, f"less than stream_tokens ({self.stream_tokens})")


_MOST = 2**31 - 1  # blocks, positions and rows are counted in 32 bits by models
_LEAST = {
    "num_blocks": 1,
    "block_tokens": 1,
    "max_batch_tokens": 1,
    "max_running": 1,
    "max_model_len": 1,
    "stream_tokens": 1,
    "audit_every": 1,
    "max_waiting": 0,
    "max_restarts": 0,
}
