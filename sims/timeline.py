"""A timeline in Chrome's trace event format, for Perfetto: the engine, counters, and sequences by the hundred."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from actors import EngineStats
from actors.messages import (
    Admit,
    Admitted,
    Cancel,
    Feed,
    Message,
    Outcome,
    Propose,
    Proposed,
    Settle,
    Settled,
    Step,
    StepDone,
    Submit,
)
from scheduler import Request

_ENGINE, _SEQUENCES = 1, 2  # Chrome's processes are groups of rows that open and close; _SEQUENCES is the first of many
_GROUP = 100
_MARK_SHARE = 0.03  # of a pass: how wide stages are drawn that no message times
_MOST_MARK_US = 200.0


class Sink(Protocol):
    """Where a timeline goes."""

    def write(self, data: bytes, /) -> object:
        """Write on."""


class Timeline:
    """Turns messages into trace events and writes them to a file as they come; `close` completes it.

    The engine's row has true times. Within a sequence's round, propose, verify and rollback have none of their own
    (in virtual time they take none), so each is drawn a few per cent of the pass wide, in its order:

        |propose|------------- extend -------------|verify|rollback|
        Step handed over                           StepDone handed back

    What a model drafts has times of its own, from Propose to Proposed, before the round, whether or not all is fed; but
    what it drafts ahead is part of the pass before, and is marked at its end.
    An arrow (a flow) leads from the engine's pass to the first work on a sequence after each admission.
    """

    def __init__(self, file: Sink) -> None:
        self.read: Callable[[], EngineStats] | None = None
        """Reads the engine's gauges for the counters."""
        self._file = file
        self._encode = msgspec.json.Encoder().encode
        self._separator = b'{"displayTimeUnit":"ms","traceEvents":[\n'
        self._admitting: list[int] = []
        self._admitted: set[int] = set()
        self._num_flows = 0
        self._queued_us: dict[int, tuple[float, str]] = {}
        self._step: Step | None = None
        self._outcomes: list[Outcome] = []
        self._planned_us = self._asked_us = self._step_us = self._done_us = 0.0
        self._proposals: tuple[float, float, Proposed] | None = None  # of the step to come
        self._name_group(_ENGINE, "engine")
        self._put(ph="M", name="thread_name", pid=_ENGINE, tid=0, args={"name": "steps"})

    def close(self) -> None:
        """Complete the file."""
        self._file.write(b"\n]}\n")

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Take in a message."""
        now_us = time_s * 1e6
        match message:
            case Submit(seq, request):
                self._queued_us[seq] = (now_us, "queued")
                self._submitted(seq, request, now_us)
            case Admit(candidates):
                self._admitting = [candidate.seq for candidate in candidates]
            case Admitted(cached, preempted):
                self._queued_us.update((seq, (now_us, "preempted")) for seq in preempted)
                for seq, num_cached in zip(self._admitting, cached, strict=True):
                    if num_cached is not None:
                        #   one of which nothing was heard since it was admitted lost its blocks with the model's memory
                        since_us, name = self._queued_us.pop(seq, (now_us, "recomputed"))
                        self._span(seq, name, since_us, now_us, cached_tokens=num_cached)
                        self._admitted.add(seq)
            case Propose():
                self._asked_us = now_us
            case Proposed():
                self._proposals = self._asked_us, now_us, message
            case Step():
                self._step, self._step_us = message, now_us
            case StepDone(_, outcomes, _, trees):
                self._outcomes, self._done_us = outcomes, now_us
                for tree in trees:
                    told = {"draft": tree.tokens, "parents": tree.parents}
                    self._mark(tree.seq, "drafted ahead", now_us, args=told)
            case Cancel(seq):
                self._mark(seq, "client left", now_us)
            case Settle(_, releases):
                #   one that is admitted again was preempted; of the others nothing more is heard
                self._queued_us.update((seq, (now_us, "preempted")) for seq in releases)
            case Settled():
                self._settled(now_us)

    def _submitted(self, seq: int, request: Request, now_us: float) -> None:
        pid = _group_of(seq)
        if seq % _GROUP == 0:
            self._name_group(pid, f"requests {seq} to {seq + _GROUP - 1}")
        told = {"prompt_tokens": len(request.prompt), "max_tokens": request.max_tokens, "seed": str(request.seed)}
        name = f"{request.id}, prompt {len(request.prompt)}"
        self._put(ph="M", name="thread_name", pid=pid, tid=seq, args={"name": name})
        self._put(ph="M", name="thread_sort_index", pid=pid, tid=seq, args={"sort_index": seq})
        self._mark(seq, "submitted", now_us, args=told)

    def _name_group(self, pid: int, name: str) -> None:
        self._put(ph="M", name="process_name", pid=pid, args={"name": name})
        self._put(ph="M", name="process_sort_index", pid=pid, args={"sort_index": pid})

    def _settled(self, now_us: float) -> None:
        step, self._step = self._step, None
        if step is not None and self._outcomes:
            by_model = self._proposed()
            self._engine_step(step, now_us)
            for feed, outcome in zip(step.feeds, self._outcomes, strict=True):
                self._fed(feed, outcome, is_by_model=feed.seq in by_model)
        self._outcomes, self._proposals = [], None
        self._planned_us = now_us
        if self.read is not None:
            stats = self.read()
            blocks = {"held": stats.blocks.held, "evictable": stats.blocks.evictable, "free": stats.blocks.free}
            self._put(ph="C", name="blocks", pid=_ENGINE, ts=now_us, args=blocks)
            sequences = {"running": stats.num_running, "waiting": stats.num_waiting}
            self._put(ph="C", name="requests", pid=_ENGINE, ts=now_us, args=sequences)

    def _proposed(self) -> set[int]:
        """Draw what a model drafted for the step, and say for which sequences."""
        if self._proposals is None:
            return set()
        start_us, end_us, proposed = self._proposals
        for tree in proposed.trees:
            self._span(tree.seq, "propose", start_us, end_us, draft=tree.tokens, parents=tree.parents)
        return {tree.seq for tree in proposed.trees}

    def _engine_step(self, step: Step, now_us: float) -> None:
        num_rounds = sum(feed.round is not None for feed in step.feeds)
        args = {
            "step": step.number,
            "sequences": len(step.feeds),
            "rounds": num_rounds,
            "tokens": sum(len(feed.ids) for feed in step.feeds),
        }
        asked_us, proposed_us, _ = self._proposals or (self._step_us, self._step_us, None)
        for name, start_us, end_us in (
            ("plan", self._planned_us, asked_us),
            ("propose", asked_us, proposed_us),
            ("pass", self._step_us, self._done_us),
            ("settle", self._done_us, now_us),
        ):
            if name == "pass" or end_us > start_us:
                self._put(ph="X", name=name, pid=_ENGINE, tid=0, ts=start_us, dur=end_us - start_us, args=args)

    def _fed(self, feed: Feed, outcome: Outcome, *, is_by_model: bool) -> None:
        start_us, end_us = self._step_us, self._done_us
        num_fed = len(feed.ids)
        if feed.seq in self._admitted:
            self._admitted.remove(feed.seq)
            self._arrow(feed.seq, start_us)
        if feed.round is None:
            self._span(feed.seq, "prefill", start_us, end_us, tokens=num_fed, start=feed.start)
            return
        num_drafted, num_accepted = len(feed.round.draft), max(0, len(outcome.tokens) - 1)
        num_rejected = num_drafted - num_accepted
        num_prefilled = num_fed - num_drafted - 1
        name = "prefill and first round" if num_prefilled else f"round +{len(outcome.tokens)}"
        self._span(feed.seq, name, start_us, end_us, drafted=num_drafted, accepted=num_accepted, tokens=outcome.tokens)
        mark_us = min(_MARK_SHARE * (end_us - start_us), _MOST_MARK_US)
        fed_us = start_us if is_by_model else start_us + mark_us
        if num_drafted and not is_by_model:
            self._span(feed.seq, "propose", start_us, fed_us, draft=feed.round.draft)
        self._span(feed.seq, "extend", fed_us, end_us - 2 * mark_us, start=feed.start, fed=num_fed)
        self._span(feed.seq, "verify", end_us - 2 * mark_us, end_us - mark_us, accepted=num_accepted)
        if num_rejected:
            self._span(feed.seq, "rollback", end_us - mark_us, end_us, rejected=num_rejected)

    def _span(self, seq: int, name: str, start_us: float, end_us: float, **args: Any) -> None:
        self._put(ph="X", name=name, pid=_group_of(seq), tid=seq, ts=start_us, dur=end_us - start_us, args=args)

    def _mark(self, seq: int, name: str, at_us: float, **args: Any) -> None:
        self._put(ph="i", name=name, pid=_group_of(seq), tid=seq, ts=at_us, s="t", **args)

    def _arrow(self, seq: int, at_us: float) -> None:
        self._num_flows += 1
        flow = {"name": "admitted", "cat": "flow", "id": self._num_flows, "ts": at_us}
        self._put(ph="s", pid=_ENGINE, tid=0, **flow)
        self._put(ph="f", pid=_group_of(seq), tid=seq, bp="e", **flow)

    def _put(self, **event: Any) -> None:
        self._file.write(self._separator + self._encode(event))
        self._separator = b",\n"


def _group_of(seq: int) -> int:
    return _SEQUENCES + seq // _GROUP
