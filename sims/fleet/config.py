"""What a fleet is: how many replicas, how requests find theirs, and which of them go away when."""

from typing import Literal, get_args

import msgspec

from sims.errors import SimError

Policy = Literal["round-robin", "least-tokens", "prefix", "session"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

MOST_REPLICAS = 1024


class Outage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica goes away at a second, for so many: said as `REPLICA@SECOND+SECONDS`."""

    replica: int
    at_s: float
    down_s: float = 10.0

    @classmethod
    def parse(cls, text: str) -> "Outage":
        """Read one. Raises SimError for what is none."""
        replica, _, times = text.partition("@")
        at_s, is_for, down_s = times.partition("+")
        try:
            return cls(int(replica), float(at_s), *([float(down_s)] if is_for else []))
        except ValueError:
            raise SimError(f"{text!r} is no outage: REPLICA@SECOND or REPLICA@SECOND+SECONDS, as in 2@30+10") from None

    def __str__(self) -> str:
        return f"{self.replica}@{self.at_s:g}+{self.down_s:g}"


class Fleet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replicas and their router.

    What a replica says of its queue reaches the router `lag_s` later. A replica of `crashes` is gone at once with all
    that it holds; what it was at is sent to another one `retry_s` later. One of `drains` gets nothing new, ends what
    it has, and is then away. Both come back with an empty cache.
    """

    replicas: int = 2
    router: Policy = "round-robin"
    lag_s: float = 0.05
    retry_s: float = 0.1
    crashes: tuple[Outage, ...] = ()
    drains: tuple[Outage, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= self.replicas <= MOST_REPLICAS:
            raise SimError(f"replicas is {self.replicas}: an integer in [2, {MOST_REPLICAS}]")
        for field, number in (("lag_s", self.lag_s), ("retry_s", self.retry_s)):
            if not 0 <= number < 2**32:
                raise SimError(f"{field} is {number}: a finite number >= 0")
        for field, outages in (("crashes", self.crashes), ("drains", self.drains)):
            for outage in outages:
                if not 0 <= outage.replica < self.replicas:
                    raise SimError(f"{field} is {outage}: a replica in [0, {self.replicas - 1}]")
                if not (0 <= outage.at_s < 2**32 and 0 <= outage.down_s < 2**32):
                    raise SimError(f"{field} is {outage}: finite seconds >= 0")
