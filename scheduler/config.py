"""The engine's measures."""

import msgspec

from scheduler.errors import refuse
from spec import SpecConfig

NO_DRAFTS = SpecConfig.parse("none", 1)


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large the engine is and how it shares itself out; validated when made (RequestError).

    KV memory is `num_blocks` blocks of `block_tokens` positions. One pass feeds at most `max_batch_tokens` tokens,
    drafts included, of at most `max_running` sequences of at most `max_model_len` cached positions each.
    """

    num_blocks: int = 4096
    block_tokens: int = 16
    max_batch_tokens: int = 2048
    max_running: int = 256
    max_model_len: int = 8192
    max_waiting: int | None = None
    """Requests that may wait beside those a free place (`max_running`) awaits; one more is refused. None: no bound."""
    speculative: SpecConfig = NO_DRAFTS
    adaptive: bool = True
    """Where the cost of a pass is known, feed only the drafts that pay; `k` is then the most. Only rounds whose text
    does not depend on the drafts are cut: greedy ones, and sampled ones with verify="match"."""
    prefix_cache: bool = True
    stream_tokens: int = 256
    """Tokens a client may leave unread before its own sequence pauses."""
    audit_every: int = 64
    """Messages to the block manager between two full audits of the pool; the conservation law is checked at each."""
    pass_timeout_s: float | None = None
    """A pass that takes longer is given up, and the runner restarted. None: passes may take for ever."""
    max_restarts: int = 3
    """Crashes an actor may have within `restart_period_s`; one more fails every open stream."""
    restart_period_s: float = 5.0

    def __post_init__(self) -> None:
        for field in ("num_blocks", "block_tokens", "max_batch_tokens", "max_running", "max_model_len", "audit_every"):
            if getattr(self, field) < 1:
                raise refuse(field, getattr(self, field), "an integer >= 1")
        if self.max_waiting is not None and self.max_waiting < 0:
            raise refuse("max_waiting", self.max_waiting, "an integer >= 0, or None")
        if self.pass_timeout_s is not None and self.pass_timeout_s <= 0:
            raise refuse("pass_timeout_s", self.pass_timeout_s, "seconds > 0, or None")
        if self.max_restarts < 0 or self.restart_period_s <= 0:
            raise refuse("max_restarts", (self.max_restarts, self.restart_period_s), "an integer >= 0, in seconds > 0")
        self.check_draft("speculative", self.speculative)

    def check_draft(self, field: str, speculative: SpecConfig) -> None:
        """Refuse drafts that a pass or a stream cannot hold whole: a round is one pass, and never shrunk."""
        if self.max_batch_tokens < 1 + speculative.k:
            raise refuse(f"{field}.k", speculative.k, f"less than max_batch_tokens ({self.max_batch_tokens})")
        if self.stream_tokens < 1 + speculative.k:
            raise refuse(f"{field}.k", speculative.k, f"less than stream_tokens ({self.stream_tokens})")
