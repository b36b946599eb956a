"""The block manager: the one owner of the pool and of every block table."""

from collections.abc import Callable, Iterable

from actors.actor import Actor, Tap
from actors.messages import Admit, Admitted, ForgetAll, Message, Reserve, Reserved, Settle, Settled
from actors.snapshot import Ownership, ownership
from kvpool import KvPool, KvPoolError, Ledger, PoolStats, admit
from scheduler import EngineConfig


class BlockManager(Actor):
    """Answers Admit, Reserve, Settle and ForgetAll; nobody else takes or gives a reference.

    The conservation law is checked after every message, the whole pool after every `audit_every`th.
    """

    def __init__(self, config: EngineConfig, tap: Tap | None) -> None:
        super().__init__("blocks", tap)
        self._config = config
        self.num_checks = 0
        self.num_violations = 0
        self.restart()

    def restart(self) -> None:
        """Begin with an empty pool."""
        pool = KvPool(self._config.num_blocks, self._config.block_tokens)
        self.ledger = Ledger(pool, self._config.prefix_cache)

    async def handle(self, message: Message) -> Message:
        """Do what a message asks. Raises KvPoolError for what the pool cannot do, or a law it finds broken."""
        match message:
            case Admit():
                answer = self._admit(message)
            case Reserve():
                answer = self._reserve(message)
            case Settle():
                answer = self._settle(message)
            case ForgetAll():
                answer = self._forget_all()
            case _:
                return await super().handle(message)
        is_full = self.num_checks % self._config.audit_every == 0
        self._audit(self.ledger.check if is_full else self.ledger.pool.check_conservation)
        return answer

    def stats(self) -> PoolStats:
        """Count the blocks by state, between two messages."""
        return self.ledger.pool.stats()

    def ownership(self, seqs: Iterable[int], max_blocks: int) -> Ownership:
        """Tell who holds which block, between two messages."""
        return ownership(self.ledger, seqs, max_blocks)

    def check(self) -> None:
        """Check all that can be checked, the prefix index too. Raises KvPoolError with the numbers."""
        self._audit(self.ledger.check, self.ledger.pool.check_index)

    def _audit(self, *checks: Callable[[], None]) -> None:
        self.num_checks += 1
        try:
            for check in checks:
                check()
        except KvPoolError:
            self.num_violations += 1
            raise

    def _admit(self, message: Admit) -> Message:
        cached, preempted = admit(
            self.ledger, message.candidates, message.victims, message.num_places, message.num_promised
        )
        return Admitted(cached, preempted, self.ledger.pool.num_available)

    def _reserve(self, message: Reserve) -> Message:
        ledger = self.ledger
        for seq, num_tokens in message.asks:
            if not ledger.extend(seq, num_tokens):
                raise KvPoolError(f"sequence {seq} was promised room for {num_tokens} tokens and there is none")
        return Reserved([ledger.table(seq) for seq, _ in message.asks], ledger.pool.num_available)

    def _settle(self, message: Settle) -> Message:
        ledger = self.ledger
        num_trimmed = sum(ledger.commit(*commit) for commit in message.commits)
        num_released = sum(map(ledger.release, message.releases))
        return Settled(num_trimmed, num_released, ledger.pool.num_available)

    def _forget_all(self) -> Message:
        held = self.ledger.pool.stats().held
        self.ledger.forget_all()
        return Settled(0, held, self.ledger.pool.num_available)
