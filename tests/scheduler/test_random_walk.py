"""Twenty thousand random steps over a pool that is too small: what must hold holds after each, and everything ends."""

import random

import pytest

from scheduler import RequestError, State, check_request
from sims.explore.pace import Pace
from spec import SpecConfig
from tests.scheduler.rig import GREEDY, SAMPLED, VOCAB, Rig

STEPS_PER_WALK = 1000


class Walk:
    def __init__(self, seed):
        rng = self.rng = random.Random(seed)
        k = rng.choice([1, 2, 4])
        self.rig = Rig(
            self.accept,
            num_blocks=rng.choice([12, 20, 40]),
            block_tokens=rng.choice([1, 2, 4, 5]),
            max_batch_tokens=rng.choice([1 + k, 8, 24]) if k < 8 else 24,
            max_running=rng.choice([2, 5, 10]),
            max_model_len=rng.choice([20, 60]),
            prefix_cache=rng.random() < 0.7,
            speculative=SpecConfig.parse(rng.choice(["none", "ngram", "prompt_lookup"]), k),
        )
        self.submitted = []
        self.pace = Pace(self.rig.config)

    def accept(self, planned):
        """Some of the draft, and a token that keeps the context repetitive."""
        num_accepted = self.rng.randint(0, len(planned.draft.tokens))
        return [*planned.draft.tokens[:num_accepted], self.rng.randrange(3)]

    def submit(self):
        rng, config = self.rng, self.rig.config
        fields = {
            "prompt": [t % VOCAB for t in range(rng.randint(0, 9))]
            + [rng.randrange(3) for _ in range(rng.randint(1, 9))],
            "params": rng.choice([GREEDY, SAMPLED]),
            "max_tokens": rng.randint(1, 25),
            "priority": rng.randint(0, 2),
            "eos": rng.choice([(), (0,)]),
            "cache_salt": rng.choice([None, None, "a"]),
            "verify": rng.choice(["resample", "match"]),
        }
        sequence = self.rig.submit(**fields)
        try:
            check_request(sequence.request, config, VOCAB, config.max_model_len)
        except RequestError:
            self.rig.core.end(sequence, State.FAILED)
        else:
            self.submitted.append(sequence)

    def disturb(self, chance):
        """Let somebody leave, stop reading, or read again."""
        rng, core = self.rng, self.rig.core
        live = core.live()
        if live and rng.random() < chance:
            self.rig.end(rng.choice(live))
        for sequence in list(core.running.values()):
            if sequence.state is State.DECODE and rng.random() < chance / 4:
                sequence.is_paused = True
        self.read_again(chance)

    def read_again(self, chance):
        core = self.rig.core
        for sequence in [*core.parked.values(), *(s for s in core.running.values() if s.is_paused)]:
            if self.rng.random() < chance:
                core.resume(sequence)

    def step(self):
        rig, core = self.rig, self.rig.core
        best = min((s for s in core.running.values() if not s.is_paused), key=lambda s: s.rank, default=None)
        feeds, preempted = rig.plan()
        if best in preempted:
            more_urgent = min(s.request.priority for s in core.running.values() if not s.is_paused)
            assert more_urgent < best.request.priority, "the first to run gives way to the more urgent alone"
        assert len({planned.sequence.seq for planned in feeds}) == len(feeds)
        assert sum(planned.num_tokens for planned in feeds) <= rig.config.max_batch_tokens
        for planned in feeds:
            sequence = planned.sequence
            assert core.running[sequence.seq] is sequence
            assert not sequence.is_paused
            assert planned.num_pending >= 1
            assert planned.is_round == (planned.num_pending == sequence.num_pending)
            assert planned.is_round or not planned.draft.tokens
            if planned.is_round and not sequence.may_drop_draft:
                assert planned.draft == sequence.propose(), "a draft that the text depends on is fed whole"
        num_could_run = sum(not s.is_paused for s in core.running.values())
        assert feeds or not (num_could_run or core.waiting), "there is always a pass for who could run"
        rig.reserve(feeds)
        rig.ledger.check()
        num_fed = {planned.sequence.seq: planned.num_tokens for planned in feeds}
        self.pace.step(len(self.submitted), num_fed, core, rig.available)
        if self.rng.random() < 0.1 and feeds:
            rig.end(self.rng.choice(feeds).sequence)  # while the pass runs: its output is dropped
        rig.settle(feeds)
        rig.check()
        return feeds


@pytest.mark.parametrize("seed", range(20))
def test_random_steps(seed):
    walk = Walk(seed)
    rig = walk.rig
    for _ in range(STEPS_PER_WALK):
        if len(rig.core.live()) < 12 and walk.rng.random() < 0.5:
            walk.submit()
        walk.disturb(chance=0.1)
        rig.check()
        walk.step()
    assert len(walk.submitted) > 50
    while rig.core.live():
        walk.read_again(chance=1.0)
        assert walk.step(), "who is open goes on"
    rig.check()
    assert rig.ledger.pool.stats().held == 0
    assert {sequence.seq for sequence in walk.submitted} <= {sequence.seq for sequence in rig.ended}
    assert {sequence.state for sequence in walk.submitted} <= {State.FINISHED, State.CANCELLED}
    for sequence in walk.submitted:
        if sequence.state is State.FINISHED:
            is_stopped = sequence.context[-1] in sequence.stops
            assert is_stopped or sequence.num_emitted == sequence.room
            assert sequence.num_emitted <= sequence.room
            assert 0 <= sequence.num_accepted <= sequence.num_drafted


def test_the_walks_lead_through_preemption_pauses_and_the_prefix_cache():
    totals = [0, 0]
    for seed in range(6):
        walk = Walk(seed)
        for _ in range(200):
            walk.submit()
            walk.disturb(chance=0.1)
            walk.step()
            totals[1] += len(walk.rig.core.parked) > 0
        totals[0] += sum(sequence.num_preemptions for sequence in walk.submitted)
    assert min(totals) > 20, totals
