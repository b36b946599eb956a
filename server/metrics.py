"""What `/metrics` tells: the engine's own numbers, read when asked, and what only the server can see."""

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors import Engine, EngineStats, Stream

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_ITL_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 20, 40)
_E2E_S = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)


class Latencies:
    """Histograms of what clients wait for, by the event loop's clock."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"vllm:{name}", text, ("model_name",), buckets=buckets, registry=registry)
            return made.labels(model_name)

        self.first = histogram("time_to_first_token_seconds", "From submission to the first token.", _TTFT_S)
        self.between = histogram("inter_token_latency_seconds", "Between two deliveries of a sequence.", _ITL_S)
        self.whole = histogram("e2e_request_latency_seconds", "From submission to the end of a sequence.", _E2E_S)
        self.queue = histogram("request_queue_time_seconds", "From submission to admission.", _E2E_S)
        self.prefill = histogram("request_prefill_time_seconds", "From admission to the first token.", _E2E_S)
        self.decode = histogram("request_decode_time_seconds", "From the first token to the last.", _E2E_S)
        self.finished = Counter(
            "vllm:request_success",
            "Sequences by how they ended: stop (a stop string included), length, abort (left or cut short), error.",
            ("model_name", "finished_reason"),
            registry=registry,
        )
        self.model_name = model_name

    def start(self, stream: Stream) -> "Timer":
        """Start the clock of one sequence, which is submitted now."""
        return Timer(self, stream)


class Timer:
    """Observes one sequence's deliveries."""

    def __init__(self, latencies: Latencies, stream: Stream) -> None:
        self._latencies = latencies
        self._stream = stream
        self._now = asyncio.get_running_loop().time
        self._start_s = self._now()
        self._first_s: float | None = None
        self._last_s = self._start_s
        self._is_over = False

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token, None while there is none."""
        return None if self._first_s is None else self._first_s - self._start_s

    def tick(self) -> None:
        """Observe a delivery, of one token or a round of several."""
        now = self._now()
        if self._first_s is None:
            self._first_s = now
            self._latencies.first.observe(now - self._start_s)
        else:
            self._latencies.between.observe(now - self._last_s)
        self._last_s = now

    def finish(self, reason: str) -> None:
        """Observe the end that a sequence came to, and how long it took to get there."""
        self._end(reason)
        latencies, admitted_s, first_s = self._latencies, self._stream.admitted_s, self._first_s
        if admitted_s is not None and first_s is not None:
            latencies.whole.observe(self._now() - self._start_s)
            latencies.queue.observe(max(0.0, admitted_s - self._start_s))
            latencies.prefill.observe(first_s - admitted_s)
            latencies.decode.observe(self._last_s - first_s)

    def give_up(self) -> None:
        """Count a sequence that came to no end of its own, unless it is counted."""
        if not self._is_over:
            self._end("error" if self._stream.finish_reason == "error" else "abort")

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._latencies.finished.labels(self._latencies.model_name, reason).inc()


class EngineCollector(Collector):
    """Reads `engine.stats()` at every scrape. vLLM's names for what vLLM has, `tl_engine_` for the rest."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self._engine = engine
        self._model_name = model_name

    def collect(self) -> Iterator[Metric]:
        """Give every family."""
        stats = self._engine.stats()
        yield from self._gauges(stats)
        yield from self._counters(stats)
        yield from self._by_label(stats)

    def _gauges(self, stats: EngineStats) -> Iterator[Metric]:
        blocks, counters = stats.blocks, stats.counters
        rate = counters.num_accepted / counters.num_drafted if counters.num_drafted else 0.0
        length = 1 + counters.num_accepted / counters.num_drafts if counters.num_drafts else 1.0
        gauges = {
            "vllm:num_requests_running": ("Sequences in the running batch.", stats.num_running),
            "vllm:num_requests_waiting": ("Sequences that wait for a place.", stats.num_waiting),
            "vllm:kv_cache_usage_perc": (
                "Share of the blocks that sequences hold, 0 to 1.",
                blocks.held / blocks.total,
            ),
            "tl_engine_spec_accept_rate": ("Drafted tokens accepted, of all drafted since the start; 0 to 1.", rate),
            "tl_engine_spec_acceptance_length": ("Tokens of a round with a draft, the target's own included.", length),
            "tl_engine_sequences_paused": ("Sequences that wait for their client to read.", stats.num_paused),
            "tl_engine_mailbox_depth": ("Messages that wait in the actors' mailboxes.", stats.mailbox_depth),
        }
        for name, (text, value) in gauges.items():
            family = GaugeMetricFamily(name, text, labels=("model_name",))
            family.add_metric((self._model_name,), value)
            yield family

    def _counters(self, stats: EngineStats) -> Iterator[Metric]:
        c = stats.counters
        counters = {
            "vllm:num_preemptions": ("Sequences sent back to wait, to be computed again.", c.num_preemptions),
            "vllm:prompt_tokens": ("Prompt tokens of admitted sequences.", c.num_prompt_tokens),
            "vllm:generation_tokens": ("Tokens delivered.", c.num_emitted_tokens),
            "vllm:prefix_cache_queries": ("Prompt tokens looked up in the prefix cache.", c.num_prompt_tokens),
            "vllm:prefix_cache_hits": ("Prompt tokens found in the prefix cache.", c.num_cached_tokens),
            "vllm:spec_decode_num_drafts": ("Rounds that had a draft.", c.num_drafts),
            "vllm:spec_decode_num_draft_tokens": ("Tokens drafted: of trees, nodes.", c.num_drafted),
            "vllm:spec_decode_num_accepted_tokens": ("Drafted tokens accepted.", c.num_accepted),
            "tl_engine_spec_wasted_tokens": ("Drafted tokens rejected.", c.num_drafted - c.num_accepted),
            "tl_engine_spec_failed_proposals": ("Times the model that drafts failed.", c.num_failed_proposals),
            "tl_engine_wasted_tokens": ("Tokens fed in passes whose result was dropped.", c.num_wasted_tokens),
            "tl_engine_fed_tokens": ("Tokens fed to the model.", c.num_fed_tokens),
            "tl_engine_steps": ("Forward passes.", c.num_steps),
            "tl_engine_requests_submitted": ("Sequences submitted.", c.num_submitted),
            "tl_engine_requests_failed": ("Sequences that ended with an error.", c.num_failed),
            "tl_engine_restarts": ("Times the runner was restarted.", c.num_restarts),
            "tl_engine_conservation_checks": ("Times the blocks were counted.", stats.num_checks),
            "tl_engine_conservation_violations": ("Times they did not add up.", stats.num_violations),
        }
        for name, (text, value) in counters.items():
            family = CounterMetricFamily(name, text, labels=("model_name",))
            family.add_metric((self._model_name,), value)
            yield family

    def _by_label(self, stats: EngineStats) -> Iterator[Metric]:
        name = self._model_name
        waiting = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Sequences that wait for a place (capacity), or for their client to read (deferred).",
            labels=("model_name", "reason"),
        )
        waiting.add_metric((name, "capacity"), stats.num_waiting - stats.num_parked)
        waiting.add_metric((name, "deferred"), stats.num_parked)
        yield waiting
        blocks = GaugeMetricFamily("tl_engine_blocks", "KV blocks by state.", labels=("model_name", "state"))
        for state in ("free", "evictable", "held"):
            blocks.add_metric((name, state), getattr(stats.blocks, state))
        yield blocks
        cancels = CounterMetricFamily(
            "tl_engine_cancels",
            "Sequences ended from outside, by the phase it found them in (`_pass`: a pass was under way).",
            labels=("model_name", "phase"),
        )
        for phase, count in sorted(stats.counters.cancels_by_phase.items()):
            cancels.add_metric((name, phase), count)
        yield cancels
        accepted = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Drafts of which a token at the position, of trees the depth, was accepted.",
            labels=("model_name", "position"),
        )
        reached = CounterMetricFamily(
            "tl_engine_spec_drafts_per_pos",
            "Drafts that had a token at the position, of trees the depth.",
            labels=("model_name", "position"),
        )
        counters = stats.counters
        for position, (num_drafted, num_accepted) in enumerate(
            zip(counters.drafted_by_position, counters.accepted_by_position, strict=True)
        ):
            if num_drafted:
                accepted.add_metric((name, str(position)), num_accepted)
                reached.add_metric((name, str(position)), num_drafted)
        yield accepted
        yield reached


class Metrics:
    """The registry of one server."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self.latencies = Latencies(self._registry, model_name)
        self.answers = Counter(
            "tl_server_responses", "Requests by their outcome.", ("endpoint", "status"), registry=self._registry
        )
        self.unknown_parameters = Counter(
            "tl_server_unknown_parameters",
            "Parameters that nobody knows, taken without effect.",
            registry=self._registry,
        )
        self.requests = Counter(
            "http_requests", "Requests by what was asked for.", ("method", "handler", "status"), registry=self._registry
        )
        self._registry.register(EngineCollector(engine, model_name))

    def render(self) -> bytes:
        """Give everything in Prometheus' text format."""
        return generate_latest(self._registry)
