"""Bugs are planted in the engine; exploring finds each, by the law it breaks, and makes it small."""

import asyncio
import itertools

import pytest

from actors import Engine, supervisor
from actors.actor import Actor
from actors.mailbox import Envelope
from actors.messages import Cancel
from actors.scheduling import SchedulerActor
from kvpool import KvPool, Ledger
from scheduler import Plan, Scheduler, Sequence
from sims.explore.diagram import diagram
from sims.explore.draw import draw
from sims.explore.exhaustive import explore
from sims.explore.invariants import CANCEL, CONSERVATION, CRASH, FENCE, LENGTH, LOSSLESS, PROGRESS, SAME_RUN, SHARING
from sims.explore.run import run
from sims.explore.scenario import from_json, to_json
from sims.explore.shrink import shrink
from sims.explore.tiny import TINY
from sims.explore.twice import run_twice
from spec import stream

MOST_SEEDS = 120


def release_at_once(monkeypatch):
    """Cancelling gives the blocks back while the pass may still write them."""
    take = SchedulerActor.see

    def see(self, sender, message):
        take(self, sender, message)
        if isinstance(message, Cancel) and self.name == "scheduler":
            self._blocks.ledger.release(message.seq)

    monkeypatch.setattr(SchedulerActor, "see", see)


def index_at_admission(monkeypatch):
    """A prompt's blocks are in the prefix index as soon as there is room for them."""
    admit, extend = Ledger.admit, Ledger.extend
    prompts = {}

    def remember(self, seq, prompt, salt, num_tokens):
        prompts[seq] = list(prompt)
        return admit(self, seq, prompt, salt, num_tokens)

    def index(self, seq, num_tokens):
        done = extend(self, seq, num_tokens)
        held = self._sequences[seq]
        for i in range(min(len(prompts[seq]), held.reserved) // self.pool.block_tokens):
            block = held.table[i]
            if self._prefix_cache and block not in self.pool._index:
                tokens = prompts[seq][i * self.pool.block_tokens : (i + 1) * self.pool.block_tokens]
                self.pool.register(block, tokens, held.table[i - 1] if i else None, held.salt)
        return done

    monkeypatch.setattr(Ledger, "admit", remember)
    monkeypatch.setattr(Ledger, "extend", index)


def lose_generator(monkeypatch):
    """A sequence that is computed again draws from the beginning."""
    give_up = Sequence.give_up_cache

    def forget(self):
        give_up(self)
        self.rng = stream(self.request.seed, self.request.choice)

    monkeypatch.setattr(Sequence, "give_up_cache", forget)


def keep_rejected(monkeypatch):
    """Where all of a draft is rejected, its room is not given back."""
    commit = Ledger.commit

    def forget_to_shorten(self, seq, tokens):
        held = self._sequence(seq)
        if len(tokens) == 1 and held.reserved - held.cached > 1:
            held.cached += 1
            return 0
        return commit(self, seq, tokens)

    monkeypatch.setattr(Ledger, "commit", forget_to_shorten)


def leak_a_block(monkeypatch):
    """One block that comes back is forgotten."""
    set_free = KvPool._set_free

    def forget(self, block):
        set_free(self, block)
        if block == 2:
            self._free.remove(block)

    monkeypatch.setattr(KvPool, "_set_free", forget)


def close_at_once(monkeypatch):
    """The stream of a cancelled sequence is closed before its blocks are back."""
    cancel = SchedulerActor._cancel

    def close(self, sequence):
        cancel(self, sequence)
        self._streams.end(*self._ending.pop())

    monkeypatch.setattr(SchedulerActor, "_cancel", close)


def hear_late(monkeypatch):
    """A cancel is heard two passes later."""
    take = SchedulerActor._take

    def put_off(self, message):
        put_off_before = self.__dict__.setdefault("put_off_before", set())
        if isinstance(message, Cancel) and message.seq not in put_off_before:
            put_off_before.add(message.seq)
            asyncio.get_running_loop().call_later(2e-3, self.mailbox.post, Envelope("client", message))
        else:
            take(self, message)

    monkeypatch.setattr(SchedulerActor, "_take", put_off)


def drop_an_answer(monkeypatch):
    """An actor's thirtieth answer is lost on its way."""
    answer = Actor._answer

    def drop(self, envelope, message):
        self.num_answers = getattr(self, "num_answers", 0) + 1
        if self.num_answers != 30:
            answer(self, envelope, message)

    monkeypatch.setattr(Actor, "_answer", drop)


def wait_for_slow(monkeypatch):
    """One client that does not read holds up everybody."""

    def is_slow(self):
        return any(sequence.is_paused for sequence in self.running.values())

    plan, candidates = Scheduler.plan, Scheduler.candidates
    monkeypatch.setattr(Scheduler, "plan", lambda self, n: Plan([], []) if is_slow(self) else plan(self, n))
    monkeypatch.setattr(Scheduler, "candidates", lambda self, n: None if is_slow(self) else candidates(self, n))


def outlive_a_cancel(monkeypatch):
    """An actor whose task is cancelled goes on as after a crash."""
    monkeypatch.setattr(supervisor, "_was_sent", lambda error, task: False)


def end_alone(monkeypatch):
    """The end of one actor is the end of no other, and of no stream."""
    monkeypatch.setattr(Engine, "_end", lambda self, task: None)


def stumble(monkeypatch):
    """The scheduler trips over a resumption."""
    monkeypatch.delattr(Scheduler, "resume")


PLANTED = {
    release_at_once: {FENCE, CRASH, LENGTH},
    index_at_admission: {SHARING},
    lose_generator: {LOSSLESS},
    keep_rejected: {LENGTH, CRASH},
    leak_a_block: {CONSERVATION, CRASH},
    close_at_once: {CANCEL},
    hear_late: {CANCEL},
    drop_an_answer: {PROGRESS},
    wait_for_slow: {PROGRESS},
    stumble: {CRASH},
    outlive_a_cancel: {PROGRESS, CRASH},
    end_alone: {PROGRESS},
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_and_made_small(plant, monkeypatch):
    plant(monkeypatch)
    seed, scenario, law = first_failure()
    assert law in PLANTED[plant], f"seed {seed}"
    smallest = shrink(scenario, law, most_runs=150)
    assert len(smallest.clients) <= min(3, len(scenario.clients))
    repeated = run(from_json(to_json(smallest))).violation
    assert repeated is not None
    assert repeated.law == law
    drawn = diagram(smallest).splitlines()
    assert any("Submit" in row for row in drawn[:8])
    assert drawn[-1].startswith(f"VIOLATION of {law}")


def first_failure():
    for seed in range(MOST_SEEDS):
        scenario = draw(seed)
        violation = run(scenario).violation
        if violation is not None:
            return seed, scenario, violation.law
    raise AssertionError("nothing was found")


def test_every_order_finds_what_one_order_hides(monkeypatch):
    release_at_once(monkeypatch)
    scenario = TINY["leaves"]
    assert run(scenario).violation is None  # first in, first out
    found = explore(scenario)
    assert found.violation is not None
    assert found.violation.law in PLANTED[release_at_once]
    assert run(scenario, choices=found.choices).violation.law == found.violation.law
    assert diagram(scenario, found.choices).splitlines()[-1].startswith(f"VIOLATION of {found.violation.law}")


def test_a_run_that_differs_from_its_repetition_names_the_first_message(monkeypatch):
    candidates = Scheduler.candidates
    runs = itertools.count()

    def by_whim(self, available):
        entry = candidates(self, available)
        return entry and entry._replace(num_promised=entry.num_promised - next(runs) % 2)

    monkeypatch.setattr(Scheduler, "candidates", by_whim)
    differences = [v for seed in range(30) if (v := run_twice(draw(seed)).violation) is not None]
    assert differences
    assert {v.law for v in differences} == {SAME_RUN}
    assert "scheduler to blocks" in differences[0].what
    assert "Admit" in differences[0].what
