import msgspec
import pytest

from actors import Engine
from actors.scheduling import SchedulerActor
from kvpool import Ledger
from models import FakeModel
from scheduler import EngineConfig
from sims.arrivals import Closed, Open
from sims.config import Cost, SimConfig
from sims.errors import SimError
from sims.leaving import POINTS, WAYS, Leave, Leaving
from sims.lengths import Lengths
from sims.simulate import simulate
from spec import SpecConfig
from tests.sims.small import ENGINE, comparable, small


def accounts_add_up(report):
    requests, blocks = report.requests, report.blocks
    assert report.problems == []
    assert requests.total == requests.submitted + requests.never_submitted
    assert requests.submitted == requests.completed + requests.cancelled + requests.failed + requests.refused
    assert blocks.free + blocks.evictable + blocks.held == blocks.total
    assert blocks.leaked == blocks.held == 0
    assert report.audit.violations == report.audit.outputs_different == 0
    assert report.audit.checks > report.steps
    assert (report.tokens.fed > 0) <= (blocks.peak_held > 0)
    assert blocks.peak_held <= blocks.total
    assert 0 <= report.tokens.cached <= report.tokens.prompt


def test_the_same_seed_is_the_same_run_byte_for_byte():
    first, second = simulate(small()), simulate(small())
    assert comparable(first) == comparable(second)
    other = simulate(small(seed=8))
    assert other.digest != first.digest
    assert comparable(other) != comparable(first)


def test_another_order_of_events_is_another_run_with_the_same_texts():
    fifo, shuffled = simulate(small()), simulate(small(shuffle=True))
    accounts_add_up(shuffled)
    assert shuffled.audit.outputs_compared > 45  # of those that got to see anything
    assert shuffled.digest != fifo.digest
    assert comparable(shuffled) == comparable(simulate(small(shuffle=True)))


def test_every_block_is_back_and_every_output_is_the_references():
    report = simulate(small())
    accounts_add_up(report)
    assert report.requests.submitted == 60
    assert 45 < report.audit.outputs_compared <= 60  # the others left before they saw anything
    assert report.requests.cancelled > 5
    assert report.spec.accepted > 0
    assert report.tokens.cached > 0


def test_preemption_on_a_tight_pool_changes_no_output():
    engine = msgspec.structs.replace(ENGINE, num_blocks=16)
    report = simulate(small(engine=engine, leaving=Leaving(), output_tokens=Lengths.parse("24-40")))
    accounts_add_up(report)
    assert report.preemptions > 0
    assert report.requests.completed == 60


@pytest.mark.parametrize("draft", ["none", "ngram", "prompt_lookup"])
@pytest.mark.parametrize("verify", ["resample", "match"])
def test_every_kind_of_draft_and_rule(draft, verify):
    engine = msgspec.structs.replace(ENGINE, speculative=SpecConfig.parse(draft, 3))
    report = simulate(small(requests=30, engine=engine, verify=verify))
    accounts_add_up(report)
    assert (report.spec.drafted > 0) == (draft != "none")
    if draft == "none":
        assert report.spec.tokens_per_round <= 1.0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", POINTS)
def test_each_way_of_leaving_at_each_point(monkeypatch, point, way):
    """All clients leave like this; wherever the sequence was, nothing stays held."""
    monkeypatch.setattr(Leaving, "draw", lambda self, rng, max_tokens: Leave(point, way, 3, 0.4))
    report = simulate(small(requests=24, output_tokens=Lengths.parse("12-24")))
    if report.tokens.emitted == 0:
        (problem,) = report.problems
        assert problem == "nothing was shown: none of 24 requests completed (24 cancelled)"
        assert report.audit.outputs_compared == 0
        report.problems.clear()
    accounts_add_up(report)
    by_phase = report.cancel.by_phase
    assert sum(by_phase.values()) == report.requests.cancelled
    if point in ("waiting", "prefill", "tokens"):
        assert report.requests.cancelled == 24
    else:
        assert report.requests.cancelled > 0
    if point == "waiting":
        assert report.tokens.emitted == 0
        #   the cancellation of a task takes effect where it waits next, and by then the scheduler may have begun
        assert set(by_phase) <= ({"waiting", "prefill_pass"} if way in ("task", "raise") else {"waiting"})
    if point == "prefill":
        assert set(by_phase) == {"prefill_pass"}
        assert report.tokens.wasted > 0
        assert report.cancel.blocks_back_ms.count == 24
    if point == "pass":
        assert "decode_pass" in by_phase


def test_blocks_come_back_when_the_pass_under_way_has_ended(monkeypatch):
    """A client that leaves when 40 % of a pass is done gets its blocks back after the other 60 %."""
    monkeypatch.setattr(Leaving, "draw", lambda self, rng, max_tokens: Leave("pass", "cancel", 1, 0.4))
    alone = small(requests=1, arrivals=Closed(1), output_tokens=Lengths.parse("20"), cost=Cost(10.0, 0.0), compare=0)
    back = simulate(alone).cancel.blocks_back_ms
    assert back.count == 1
    assert back.max == pytest.approx(6.0)


def test_all_clients_vanish_at_once():
    vanishing = small(requests=200, leaving=Leaving(vanish_at_s=(0.05, 0.1)), compare=200)
    report = simulate(vanishing)
    accounts_add_up(report)
    assert 16 <= report.requests.cancelled <= 32
    assert report.requests.completed > 100


def test_slow_readers_pause_themselves_and_are_not_measured():
    engine = msgspec.structs.replace(ENGINE, stream_tokens=4)
    slow = small(engine=engine, leaving=Leaving(slow_rate=1.0, slow_delay_ms=100.0), requests=20)
    report = simulate(slow)
    accounts_add_up(report)
    assert report.requests.completed == 20
    assert report.latency_ms.ttft.count == report.latency_ms.itl.count == report.latency_ms.e2e.count == 0
    assert report.virtual_s > 10 * simulate(small(requests=20, leaving=Leaving())).virtual_s


def test_latencies_follow_from_the_cost_of_a_pass():
    """One request alone, without drafts: its passes are all there is."""
    engine = msgspec.structs.replace(ENGINE, speculative=SpecConfig.parse("none", 1))
    alone = small(
        requests=1,
        engine=engine,
        arrivals=Closed(1),
        prompt_tokens=Lengths.parse("10"),
        output_tokens=Lengths.parse("5"),
        leaving=Leaving(),
        cost=Cost(8.0, 100.0),
        seed=1,
    )
    report = simulate(alone)
    assert report.tokens.emitted == 5
    assert report.latency_ms.ttft.p50 == pytest.approx(8 + 10 * 0.1)
    assert report.latency_ms.itl.p50 == report.latency_ms.tpot.p50 == pytest.approx(8.1)
    assert report.latency_ms.itl.count == 4
    assert report.latency_ms.e2e.p50 == pytest.approx(9 + 4 * 8.1)
    assert report.virtual_s == pytest.approx(9e-3 + 4 * 8.1e-3)
    assert report.throughput.tokens_per_s == pytest.approx(5 / report.virtual_s)


def test_open_arrivals_keep_coming_while_the_engine_is_busy():
    report = simulate(small(arrivals=Open(rate=1000.0, burstiness=2.0)))
    accounts_add_up(report)
    assert max(report.series.waiting) > 16


def test_refused_requests_are_counted_and_one_reason_is_kept():
    engine = msgspec.structs.replace(ENGINE, max_waiting=2)
    report = simulate(small(engine=engine, leaving=Leaving()))
    accounts_add_up(report)
    assert report.requests.refused > 0
    assert "max_waiting" in report.requests.first_refusal


def test_the_wall_clock_runs_the_same_engine():
    report = simulate(small(clock="wall", requests=20))
    accounts_add_up(report)
    assert report.requests.submitted == 20


def test_tenants_share_nothing_with_one_another():
    alike = {"arrivals": Closed(1), "prompt_tokens": Lengths.parse("24"), "leaving": Leaving(), "requests": 24}
    together = simulate(small(**alike))
    apart = simulate(small(**alike, tenants=10**9))
    assert together.tokens.cached > 0
    assert apart.tokens.cached == 0


def test_a_wrong_output_is_found_and_named(monkeypatch):
    """A target that forgets part of its context in batches of several: the one-sequence loop does not."""
    forward = FakeModel.forward

    def off_by_one(self, chunks):
        rows = forward(self, chunks)
        return rows[:, ::-1].copy() if len(chunks) > 3 else rows

    monkeypatch.setattr(FakeModel, "forward", off_by_one)
    report = simulate(small(leaving=Leaving()))
    assert report.audit.outputs_different > 0
    assert any("request r0000" in problem and "token" in problem for problem in report.problems)


def test_a_request_that_is_never_released_is_named(monkeypatch):
    ask_settle = SchedulerActor._ask_settle

    async def forgetful(self, commits):
        self._releases = [seq for seq in self._releases if seq != 5]
        await ask_settle(self, commits)

    monkeypatch.setattr(SchedulerActor, "_ask_settle", forgetful)
    report = simulate(small(leaving=Leaving()))
    assert report.blocks.leaked > 0
    assert any("request r000005 still holds blocks" in problem for problem in report.problems)


def test_a_leak_inside_the_pool_is_found(monkeypatch):
    release = Ledger.release
    monkeypatch.setattr(Ledger, "release", lambda self, seq: 0 if seq == 5 else release(self, seq))
    report = simulate(small(leaving=Leaving()))
    assert report.blocks.leaked > 0
    assert any("blocks are held after every request has ended" in problem for problem in report.problems)


def test_a_violation_is_reported(monkeypatch):
    release = Engine.check

    def broken(self):
        self._blocks.ledger.pool._num_held += 1
        release(self)

    monkeypatch.setattr(Engine, "check", broken)
    report = simulate(small(leaving=Leaving()))
    assert report.audit.violations == 1
    assert any("does not add up" in problem for problem in report.problems)


def test_a_pass_that_fails_is_reported_although_the_engine_recovers(monkeypatch):
    forward = FakeModel.forward
    passes = iter(range(10**6))

    def failing(self, chunks):
        if next(passes) == 5:
            raise RuntimeError("the model broke")
        return forward(self, chunks)

    monkeypatch.setattr(FakeModel, "forward", failing)
    report = simulate(small())
    assert report.restarts == 1
    assert any("the model broke" in problem for problem in report.problems)
    assert report.audit.outputs_different == 0


def test_more_cancels_leave_the_requests_as_they_were():
    """What is drawn for the clients that leave does not move what is drawn for the prompts."""
    few, many = (simulate(small(leaving=Leaving(cancel_rate=rate), compare=0)) for rate in (0.0, 0.9))
    assert few.tokens.prompt >= many.tokens.prompt
    assert few.requests.cancelled == 0
    assert many.requests.cancelled > 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 0}, "requests is 0"),
        ({"leaving": Leaving(cancel_rate=1.5)}, "cancel_rate is 1.5"),
        ({"leaving": Leaving(vanish_at_s=(1.0, -1.0))}, "vanish_at_s is -1.0"),
        ({"arrivals": Open(rate=0.0)}, "rate is 0.0"),
        ({"cost": Cost(0.0, 0.0)}, "overhead_ms and per_token_us is 0"),
        ({"trace": "a", "replay": "b"}, "both given"),
        ({"clock": "wall", "shuffle": True}, "shuffle is set"),
        ({"temperatures": ()}, "temperatures is empty"),
    ],
)
def test_what_cannot_be_simulated_is_refused(changes, message):
    with pytest.raises(SimError, match=message):
        small(**changes)


def test_the_default_simulation_is_valid():
    assert SimConfig().engine == EngineConfig()
