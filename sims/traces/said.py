"""What a row of a trace says."""

from typing import NamedTuple


class Said(NamedTuple):
    """A row in its file's own terms turned into ours. None is what it does not say."""

    num_prompt: int
    num_output: int
    at_s: float | None = None
    hash_ids: list[int] | None = None
    hash_block: int = 0
    """Tokens that a hash id stands for."""
    session: str | None = None
    delay_s: float | None = None
