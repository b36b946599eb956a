"""The requests of a simulation, one after the other, and how each one's client behaves."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from models import FakeModel, FakeProposer, Model, ReplayModel
from scheduler import Request
from sims.arrivals import Open, Recorded
from sims.config import SimConfig
from sims.conversations import Conversations
from sims.errors import SimError
from sims.leaving import Leave
from sims.replay import Recording, read_recording
from sims.traces import Trace, read_trace
from spec import SamplingParams

_MADE_UP = 2000
_ARRIVALS, _SHAPES, _CLIENTS, _SAMPLE = range(4)


class Client(msgspec.Struct, frozen=True):
    """A request and its client: when it comes, where it leaves if it does, how long it takes for a token.

    `at_s` is None in a closed loop. A client of a `session` comes `pause_s` after the session's client before it has
    gone, but not before `at_s`. An `is_compared` client remembers what it saw.
    """

    index: int
    request: Request
    at_s: float | None
    leave: Leave | None
    delay_s: float
    is_compared: bool
    session: str | None = None
    pause_s: float = 0.0
    conversation: str | None = None
    """What its client would say who it is: the session, or that of the prompt that it carries on."""


class Source(msgspec.Struct, frozen=True):
    """Where the rows came from and what became of them."""

    name: str
    rows: int
    used: int
    unused: dict[str, int]
    """Rows that were not used, by reason."""


class Workload:
    """All the requests of a simulation. Iterating makes them one by one; twice, the same ones."""

    def __init__(self, config: SimConfig) -> None:
        self._config = config
        self._trace: Trace | None = None
        self._recording: Recording | None = None
        if config.trace is not None:
            num_positions = config.engine.num_blocks * config.engine.block_tokens
            trace = read_trace(Path(config.trace), config.format)
            self._trace = trace.without_too_long(config.engine.max_model_len, num_positions)
            if isinstance(config.arrivals, Recorded) and not trace.has_times:
                raise SimError(f"{config.trace} does not say when requests came: arrivals must be closed or at a rate")
        if config.replay is not None:
            self._recording = read_recording(Path(config.replay), config.format)
        self.num_requests = self._num_requests()
        sample = self._rng(_SAMPLE).permutation(self.num_requests)[: config.compare]
        self._compared = frozenset(sample.tolist())

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._config.seed, purpose])

    def _num_requests(self) -> int:
        limit = self._config.requests
        if self._trace is not None:
            num_rows = len(self._trace.rows)
        elif self._recording is not None:
            num_rows = len(self._recording.records)
        else:
            return _MADE_UP if limit is None else limit
        return num_rows if limit is None else min(limit, num_rows)

    @property
    def source(self) -> Source | None:
        """The file's rows, used and unused. None for requests made up."""
        file = self._trace or self._recording
        if file is None:
            return None
        unused = dict(file.unused)
        num_left = file.num_rows - sum(unused.values()) - self.num_requests
        if num_left:
            unused["past the number of requests asked for"] = num_left
        return Source(file.name, file.num_rows, self.num_requests, unused)

    def model(self) -> Model:
        """Make the target that these requests are for."""
        if self._recording is not None:
            recording = self._recording
            return ReplayModel(recording.records, recording.vocab_size, recording.eos)
        target = self._config.target
        return FakeModel(self._config.seed, target.vocab, target.order, target.sharp)

    def proposer(self) -> FakeProposer | None:
        """Make what drafts for these requests; None where no model does."""
        config = self._config
        if not config.engine.speculative.draft.needs_proposer:
            return None
        target = FakeModel(config.seed, config.target.vocab, config.target.order, config.target.sharp)
        strays, order = (
            1 - config.agreement,
            config.target.order + 2,
        )  # whether it strays hangs on more than the text does
        return FakeProposer(target, config.seed + 1, order, config.target.sharp, 1.0, strays=strays)

    def __iter__(self) -> Iterator[Client]:
        config = self._config
        shapes, clients, times_s = self._rng(_SHAPES), self._rng(_CLIENTS), self._times_s()
        sessions = set[str]()
        conversations = Conversations()
        for index in range(self.num_requests):
            request = self._request(index, shapes)
            session, pause_s = self._turn(index)
            at_s = next(times_s)
            if session in sessions and pause_s is not None:
                at_s = None  # the answer before it says when
            if session is not None:
                sessions.add(session)
            yield Client(
                index=index,
                request=request,
                at_s=at_s,
                session=session,
                pause_s=pause_s or 0.0,
                conversation=session or self._conversation(index, conversations),
                leave=config.leaving.draw(clients, request.max_tokens),
                delay_s=config.leaving.draw_delay_s(clients),
                is_compared=index in self._compared,
            )

    def _turn(self, index: int) -> tuple[str | None, float | None]:
        """Give the session a request is a turn of, and how long after the turn before it comes, where that is said."""
        if self._trace is None:
            return None, None
        row, arrivals = self._trace.rows[index], self._config.arrivals
        if row.delay_s is None or not isinstance(arrivals, Recorded):
            return row.session, None
        return row.session, row.delay_s / arrivals.speedup

    def _conversation(self, index: int, conversations: Conversations) -> str | None:
        if self._trace is None or not self._trace.hash_block:
            return None
        row = self._trace.rows[index]
        return conversations.of(row.hash_ids[: row.num_prompt // self._trace.hash_block])

    def _times_s(self) -> Iterator[float | None]:
        arrivals = self._config.arrivals
        if isinstance(arrivals, Open):
            yield from arrivals.times_s(self._rng(_ARRIVALS))
        elif isinstance(arrivals, Recorded) and self._trace is not None:
            yield from (row.at_s / arrivals.speedup for row in self._trace.rows)
        else:
            while True:
                yield None

    def _request(self, index: int, rng: np.random.Generator) -> Request:
        config = self._config
        seed, temperature, tenant, priority = (
            int(rng.integers(n)) for n in (2**63, len(config.temperatures), config.tenants, config.priorities)
        )
        prompt, max_tokens, eos = self._text(index, rng)
        return Request(
            prompt=prompt,
            params=SamplingParams(temperature=config.temperatures[temperature]),
            max_tokens=max_tokens,
            seed=seed,
            eos=eos,
            id=request_id(index),
            priority=priority,
            cache_salt=f"tenant-{tenant}" if config.tenants > 1 else None,
            verify=config.verify,
            logprobs=index in self._compared,
        )

    def _text(self, index: int, rng: np.random.Generator) -> tuple[list[int], int, tuple[int, ...]]:
        """Give the prompt, the most tokens to generate, and the ids that end it sooner."""
        config = self._config
        vocab = config.target.vocab
        if self._recording is not None:
            prompt, completion = self._recording.records[index]
            return prompt, len(completion) + 1, (self._recording.eos,)
        if self._trace is None:
            num_prompt, num_output = config.prompt_tokens.draw(rng), config.output_tokens.draw(rng)
            num_prompt = min(num_prompt, config.engine.max_model_len + 1)  # refused, however much longer
            return config.prompts.draw(rng, num_prompt, vocab, config.seed), num_output, (0,)
        row = self._trace.rows[index]
        if self._trace.hash_block:
            return self._trace.prompt(index, vocab), row.num_output, ()
        return config.prompts.draw(rng, row.num_prompt, vocab, config.seed), row.num_output, ()


def request_id(index: int) -> str:
    """Name the request of an index."""
    return f"r{index:06}"
