"""What rounds are measured to take, by a clock that stands still outside of passes."""

import asyncio
import copy

import pytest

from models import FakeModel, FakeProposer
from sims.rounds import NUM_ROUNDS, measure_layers, measure_rounds
from spec import SpecConfig

CONTEXT = 40


class Timed:
    """A model whose passes take a second a row, and `settling` more where a pass before was of another size."""

    max_model_len = 256

    def __init__(self, clock, seen, settling=0.0):
        self.clock, self.seen, self.settling = clock, seen, settling
        self.vocab_size = 26
        self.model = FakeModel(3, 26, 1, 30.0, max_model_len=self.max_model_len)
        self.num_alike = 0

    def __copy__(self):
        other = Timed(self.clock, self.seen, self.settling)
        other.model = copy.copy(self.model)
        return other

    def bind(self, *measures):
        self.model.bind(*measures)

    def move_slots(self, moves):
        self.model.move_slots(moves)

    def forward(self, chunks):
        num_rows = sum(len(chunk.ids) for chunk in chunks)
        self.num_alike = self.num_alike + 1 if self.seen and sum(self.seen[-1][1]) == num_rows else 0
        self.seen.append((chunks[0].start, [len(chunk.ids) for chunk in chunks]))
        self.clock[0] += num_rows + (self.settling if self.num_alike < 4 else 0.0)
        return self.model.forward(chunks)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_round_takes_what_its_pass_takes_where_nothing_else_takes_time(batch):
    clock, seen = [0.0], []
    rows = (1, 2, 5, 17)
    found = asyncio.run(
        measure_rounds(Timed(clock, seen), lambda: clock[0], context=CONTEXT, rows=rows, batch=batch, repeat=2)
    )
    assert found == [float(n * batch) for n in rows]


def test_rounds_have_the_context_that_is_asked_for():
    clock, seen = [0.0], []
    asyncio.run(measure_rounds(Timed(clock, seen), lambda: clock[0], context=CONTEXT, rows=(1, 9)))
    starts = [start for start, fed in seen if fed == [9] and start >= CONTEXT]
    assert len(starts) >= 12  # rejected every time: a round goes on by one token
    assert starts == list(range(CONTEXT, CONTEXT + len(starts)))
    assert max(starts) < CONTEXT + NUM_ROUNDS


def test_the_first_rounds_of_a_size_are_left_out():
    clock, seen = [0.0], []
    found = asyncio.run(
        measure_rounds(Timed(clock, seen, settling=100.0), lambda: clock[0], context=CONTEXT, rows=(1, 5), repeat=2)
    )
    assert found == [1.0, 5.0]


def test_what_lies_between_passes_counts():
    clock, seen = [0.0], []
    model = Timed(clock, seen)

    def now():
        clock[0] += 0.25  # read once a pass
        return clock[0]

    assert asyncio.run(measure_rounds(model, now, context=CONTEXT, rows=(1, 5))) == [1.25, 5.25]


@pytest.mark.parametrize("batch", [1, 3])
def test_layers_of_drafts_take_what_their_laws_take(batch):
    clock, seen = [0.0], []

    class Drafts(FakeProposer):
        def laws(self, asks):
            clock[0] += 0.5 + 0.125 * len(asks)
            return super().laws(asks)

        def feed(self, chunks):
            if any(chunk.num_rows for chunk in chunks):
                clock[0] += 2
            super().feed(chunks)

    model = Timed(clock, seen)
    proposer = Drafts(FakeModel(3, 26, 1, 30.0, max_model_len=256), 5, 1, 30.0, 0.0)
    found = asyncio.run(
        measure_layers(
            model,
            proposer,
            SpecConfig("fake", 4, rule="match"),
            lambda: clock[0],
            context=CONTEXT,
            batch=batch,
            repeat=2,
        )
    )
    assert found == pytest.approx((2.5 + 0.125 * batch, 0.5 + 0.125 * batch))
