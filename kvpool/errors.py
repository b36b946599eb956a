"""What the pool raises."""


class KvPoolError(ValueError):
    """A call the pool refuses, or a count that does not add up. The pool is as it was before the call."""


class OutOfBlocks(KvPoolError):
    """Fewer blocks are free or evictable than the call needs. Nothing was taken."""
