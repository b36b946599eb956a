"""What the entrance sends to a replica, and what comes back."""

from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]

REPLICA_HEADER = b"x-replica"
"""The header of every answer that names who has given it."""


class Asked(NamedTuple):
    """One HTTP request, whole."""

    method: str
    path: str
    query: bytes
    headers: Headers
    client: tuple[str, int] | None
    body: bytes
    keys: list[bytes]
    """Names of its prompt's beginnings, by which it is routed."""
    replica: str | None = None
    """The replica that is to answer; None: any."""


class Head(NamedTuple):
    """The first part of an answer; all that follow are bytes of the body."""

    status: int
    headers: Headers
