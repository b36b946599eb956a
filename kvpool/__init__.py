"""Blocks of KV memory: reference counts, fills, copy on write, the prefix index, and the check that none is lost."""

from kvpool.admission import Candidate, Victim, admit
from kvpool.errors import KvPoolError, OutOfBlocks
from kvpool.ledger import Ledger
from kvpool.pool import BlockCopy, KvPool, PoolStats, blocks_for
from kvpool.prefix import Salt
from kvpool.table import extend, rollback

__all__ = [
    "BlockCopy",
    "Candidate",
    "KvPool",
    "KvPoolError",
    "Ledger",
    "OutOfBlocks",
    "PoolStats",
    "Salt",
    "Victim",
    "admit",
    "blocks_for",
    "extend",
    "rollback",
]
