"""The policy on a real ledger, step by step, without actors: what they do to it, and nothing else."""

import msgspec

from kvpool import KvPool, Ledger, admit, blocks_for
from scheduler import EngineConfig, Request, Scheduler, Sequence, State
from spec import SamplingParams, SpecConfig

GREEDY = SamplingParams(temperature=0)
SAMPLED = SamplingParams()
VOCAB = 8
CYCLE = [1, 2, 3, 4]  # lookup finds up to four tokens in what repeats it


def one_more(planned):
    """Nothing of the draft is accepted; the cycle goes on."""
    return [planned.sequence.context[-len(CYCLE)]]


def lookup(k):
    return SpecConfig.parse("prompt_lookup", k)


class Rig:
    """`accept` says, of a round, which tokens it emits: a prefix of its draft and one token more."""

    def __init__(self, accept=one_more, **changes):
        fields = {"num_blocks": 64, "block_tokens": 4, "max_batch_tokens": 64, "max_running": 16, "max_model_len": 200}
        self.config = EngineConfig(**{"speculative": lookup(3), **fields, **changes})
        self.core = Scheduler(self.config)
        self.ledger = Ledger(KvPool(self.config.num_blocks, self.config.block_tokens), self.config.prefix_cache)
        self.accept = accept
        self.sequences = []
        self.preempted = []
        self.ended = []

    @property
    def available(self):
        return self.ledger.pool.num_available

    def submit(self, prompt=(1, 2, 3, 4, 1, 2, 3), **changes):
        fields = {"prompt": list(prompt), "params": GREEDY, "max_tokens": 20, **changes}
        request = Request(**fields)
        speculative = request.speculative or self.config.speculative
        limit, finished = self.config.max_model_len, self.core.finished
        sequence = Sequence(len(self.sequences), request, speculative, limit, finished)
        self.sequences.append(sequence)
        self.core.submit(sequence)
        return sequence

    def admit(self):
        """Let in who fits; who came in. Who had to go is in `preempted`."""
        entry = self.core.candidates(self.available)
        if entry is None:
            return []
        cached, preempted = admit(self.ledger, *entry)
        self.preempted += [self.sequences[seq] for seq in preempted]
        for seq in preempted:
            self.core.preempt(self.sequences[seq])
        asked = [self.sequences[candidate.seq] for candidate in entry.candidates]
        for sequence, found in zip(asked, cached, strict=True):
            self.core.admitted(sequence, found)
        return [sequence for sequence, found in zip(asked, cached, strict=True) if found is not None]

    def plan(self):
        """Admit and preempt until there is a pass or nothing to do; the feeds, and who was preempted on the way."""
        self.preempted = []
        while True:
            self.admit()
            plan = self.core.plan(self.available)
            if not plan.victims:
                return plan.feeds, self.preempted
            for victim in plan.victims:
                self.preempt(victim)
            self.preempted += plan.victims

    def preempt(self, sequence):
        self.core.preempt(sequence)
        self.ledger.release(sequence.seq)

    def reserve(self, feeds):
        for planned in feeds:
            assert self.ledger.extend(planned.sequence.seq, planned.num_tokens), "the plan fits the pool"

    def settle(self, feeds):
        """Settle those of a pass that are still running; what became of each."""
        settled = []
        for planned in feeds:
            sequence = planned.sequence
            if sequence.seq in self.core.running:
                settled.append(self.core.settle(planned, self.accept(planned) if planned.is_round else []))
                self.ledger.commit(sequence.seq, settled[-1].verified)
                if settled[-1].finish_reason is not None:
                    self.ledger.release(sequence.seq)
                    self.ended.append(sequence)
        return settled

    def end(self, sequence, state=State.CANCELLED):
        self.core.end(sequence, state)
        self.ledger.release(sequence.seq)
        self.ended.append(sequence)

    def step(self):
        """One whole step; what was fed."""
        feeds, _ = self.plan()
        self.reserve(feeds)
        self.settle(feeds)
        return feeds

    def shrink(self, max_batch_tokens):
        """Go on with a smaller token budget."""
        self.config = msgspec.structs.replace(self.config, max_batch_tokens=max_batch_tokens)
        self.core.config = self.config

    def hog(self, leave):
        """Take all blocks but so many out of the pool, for somebody who is not in the ledger."""
        return [self.ledger.pool.allocate() for _ in range(self.available - leave)]

    def decoding(self, num, **changes):
        """So many sequences, submitted, admitted and past their first round."""
        sequences = [self.submit(**changes) for _ in range(num)]
        while any(sequence.state is not State.DECODE for sequence in sequences):
            assert self.step()
        return sequences

    def check(self):
        """Blocks add up; every sequence holds exactly what its length needs; states, places and lengths agree."""
        core, size = self.core, self.config.block_tokens
        self.ledger.check()
        assert len(core.running) <= self.config.max_running
        tables = 0
        for sequence in core.running.values():
            table = self.ledger.table(sequence.seq)
            tables += 1
            assert len(table) == blocks_for(sequence.cached, size)
            assert sequence.cached == self.ledger.cached(sequence.seq)
            assert sequence.state in (State.PREFILL, State.DECODE)
            if sequence.state is State.DECODE:
                assert sequence.cached == sequence.prompt_len + sequence.num_emitted - 1
            assert 0 <= sequence.cached < len(sequence.context) <= sequence.prompt_len + sequence.room
        for sequence in core.waiting:
            assert sequence.state in (State.WAITING, State.PREEMPTED)
            assert not sequence.is_paused
        for sequence in core.parked.values():
            assert sequence.state is State.PREEMPTED
            assert sequence.is_paused
        for sequence in (*core.waiting, *core.parked.values()):
            assert sequence.cached == 0
            assert self.ledger.release(sequence.seq) == 0
        seqs = [sequence.seq for sequence in core.live()]
        assert len(set(seqs)) == len(seqs)
        assert len(self.ledger._sequences) == tables
