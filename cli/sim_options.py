"""The options of `outrider sim`: a row for each, with the place of a `SimConfig` that it stands for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.draft_options import needs_of_drafts
from cli.fleet_options import needs_of_fleet
from cli.options import NOT_NEGATIVE, POSITIVE, SEED, SHARE, LengthsType, SimOption
from cli.sim_config import arrivals_name, take_config, temperatures
from sims.config import MOST_BLOCKS, MOST_REQUESTS
from sims.recordings import FORMATS as RECORDINGS
from sims.traces import FORMATS as TRACES
from sims.traces import says_prompts

Command = TypeVar("Command", bound=Callable[..., Any])

_COUNT = click.IntRange(1, MOST_REQUESTS)
_COUNT_OR_0 = click.IntRange(0, MOST_REQUESTS)
_FILE = click.Path(exists=True, dir_okay=False)
_LENGTHS = LengthsType()


def traffic(command: Command) -> Command:
    """Add what requests look like, and when they come."""
    return _with(
        command,
        _option(
            "--config",
            type=_FILE,
            is_eager=True,
            expose_value=False,
            callback=take_config,
            help="Run again what a report's JSON, or its `config` alone, was made with; other options change it.",
        ),
        _option(
            "--requests",
            at="requests",
            type=_COUNT,
            help="Requests in all, at most.",
            show_default="2000, or all of a file's",
        ),
        _option(
            "--arrivals",
            type=click.Choice(["closed", "poisson", "gamma", "trace"]),
            help="When requests come: as others end, at random, in bursts, or at a trace's own times.",
            show_default="closed, or trace with --trace",
        ),
        _option("--concurrency", type=_COUNT, default=256, help="closed: requests open at any time."),
        _option("--rate", type=POSITIVE, default=100.0, help="poisson, gamma: requests a second."),
        _option("--burstiness", type=NOT_NEGATIVE, default=2.0, help="gamma: how uneven the gaps are; 1 is poisson."),
        _option("--speedup", type=POSITIVE, default=1.0, help="trace: how much faster than recorded."),
        _option(
            "--trace",
            at="trace",
            type=_FILE,
            help="Lengths, times and prefixes of recorded traffic.",
        ),
        _option(
            "--replay",
            at="replay",
            type=_FILE,
            help="Conversations to recite, as text or token ids.",
        ),
        _option(
            "--format",
            at="format",
            metavar="NAME",
            help=f"What the file is. Traces: {', '.join(TRACES)}. Recordings: {', '.join(RECORDINGS)}.",
            show_default="guessed",
        ),
        _option(
            "--prompt-tokens",
            at="prompt_tokens",
            type=_LENGTHS,
            default="lognormal:24:0.6",
            help="Prompt lengths: N, LOW-HIGH or lognormal:MEDIAN:SIGMA.",
        ),
        _option(
            "--output-tokens",
            at="output_tokens",
            type=_LENGTHS,
            default="lognormal:128:0.5",
            help="Most tokens to generate.",
        ),
        _option(
            "--repetition",
            at="prompts.repetition",
            type=SHARE,
            default=0.5,
            help="Share of a prompt copied from earlier in it.",
        ),
        _option(
            "--shared-rate",
            at="prompts.shared_rate",
            type=SHARE,
            default=0.5,
            help="Share of prompts that begin with a shared text.",
        ),
        _option(
            "--shared-tokens",
            at="prompts.shared_tokens",
            type=_COUNT_OR_0,
            default=16,
            help="Length of the shared texts.",
        ),
        _option(
            "--shared-texts", at="prompts.num_shared", type=_COUNT, default=8, help="How many shared texts there are."
        ),
        _option(
            "--temperature",
            "temperatures",
            at="temperatures",
            type=NOT_NEGATIVE,
            multiple=True,
            help="Sampling temperature; of several, each request draws one.",
            show_default="0 and 0.8; 0 with --replay",
        ),
        _option(
            "--tenants",
            at="tenants",
            type=_COUNT,
            default=1,
            help="Groups of clients; prefixes are shared within one only.",
        ),
        _option(
            "--priorities", at="priorities", type=_COUNT, default=1, help="Levels of priority; each request draws one."
        ),
    )


def leaving(command: Command) -> Command:
    """Add how clients misbehave."""
    return _with(
        command,
        _option(
            "--cancel-rate",
            at="leaving.cancel_rate",
            type=SHARE,
            help="Share of clients that leave before the end.",
            show_default="0.3; 0 with --trace or --replay",
        ),
        _option(
            "--slow-rate",
            at="leaving.slow_rate",
            type=SHARE,
            default=0.0,
            help="Share of clients that read slowly.",
        ),
        _option(
            "--slow-delay-ms",
            at="leaving.slow_delay_ms",
            type=NOT_NEGATIVE,
            default=50.0,
            help="What a slow reader takes for a token, on average.",
        ),
        _option(
            "--vanish-at",
            at="leaving.vanish_at_s",
            type=NOT_NEGATIVE,
            multiple=True,
            help="Second at which every open client leaves at once.",
        ),
    )


def faults(command: Command) -> Command:
    """Add what goes wrong, and when the engine gives up."""
    rates = {
        "raise": "Share of passes in which the model raises.",
        "raise_late": "The same, after the pass has written.",
        "hang": "virtual: share of passes that hang and are given up.",
        "die_runner": "Deaths of the runner per message it takes.",
        "die_blocks": "The same of the block manager.",
        "die_scheduler": "The same of the scheduler.",
        "out_of_blocks": "Share of blocks allocated when there is none.",
    }
    return _with(
        command,
        *(
            _option(f"--fault-{kind.replace('_', '-')}", at=f"faults.{kind}", type=SHARE, default=0.0, help=text)
            for kind, text in rates.items()
        ),
        _option(
            "--pass-timeout-ms",
            at="engine.pass_timeout_s",
            unit=1e-3,
            type=POSITIVE,
            help="When a pass is given up.",
            show_default="never",
        ),
        _option(
            "--max-restarts",
            at="engine.max_restarts",
            type=_COUNT_OR_0,
            default=3,
            help="Crashes within 5 s that the engine survives.",
        ),
    )


def engine(command: Command) -> Command:
    """Add the engine's measures, and its target."""
    return _with(
        command,
        _option(
            "--blocks",
            at="engine.num_blocks",
            type=click.IntRange(1, MOST_BLOCKS),
            default=512,
            help="KV blocks in the pool.",
        ),
        _option("--block-tokens", at="engine.block_tokens", type=_COUNT, default=16, help="Positions of a block."),
        _option(
            "--batch-tokens",
            at="engine.max_batch_tokens",
            type=_COUNT,
            default=2048,
            help="Most tokens of a pass, drafts included.",
        ),
        _option(
            "--max-running", at="engine.max_running", type=_COUNT, default=256, help="Most sequences running at a time."
        ),
        _option(
            "--max-model-len",
            at="engine.max_model_len",
            type=_COUNT,
            default=8192,
            help="Most positions of a sequence.",
        ),
        _option(
            "--max-waiting",
            at="engine.max_waiting",
            type=_COUNT_OR_0,
            help="Most requests waiting; one more is refused.",
            show_default="any",
        ),
        _option(
            "--stream-tokens",
            at="engine.stream_tokens",
            type=_COUNT,
            default=256,
            help="Tokens a client may leave unread.",
        ),
        _option(
            "--prefix-cache/--no-prefix-cache",
            at="engine.prefix_cache",
            default=True,
            help="Share the blocks of equal beginnings.",
        ),
        _option(
            "--audit-every",
            at="engine.audit_every",
            type=_COUNT,
            default=64,
            help="Messages between two full audits of the pool.",
        ),
        _option(
            "--vocab", at="target.vocab", type=click.IntRange(1, 2**20), default=128, help="Fake target: token ids."
        ),
        _option(
            "--order",
            at="target.order",
            type=click.IntRange(1, 2**10),
            default=1,
            help="Fake target: how many last tokens its logits depend on.",
        ),
        _option("--sharp", at="target.sharp", type=POSITIVE, default=100.0, help="Fake target: spread of its logits."),
    )


def clock(command: Command) -> Command:
    """Add time and what it costs, and what is held against what."""
    return _with(
        command,
        _option("--seed", at="seed", type=SEED, default=0, help="Seed of all that is drawn."),
        _option(
            "--clock",
            at="clock",
            type=click.Choice(["virtual", "wall"]),
            default="virtual",
            help="Jump from event to event, or take the time that it takes.",
        ),
        _option(
            "--shuffle/--fifo",
            at="shuffle",
            default=False,
            help="virtual: run what is ready in an order drawn from the seed.",
        ),
        _option(
            "--overhead-ms",
            at="cost.overhead_ms",
            type=NOT_NEGATIVE,
            default=5.0,
            help="virtual: what a pass takes, whatever is in it.",
        ),
        _option(
            "--per-token-us",
            at="cost.per_token_us",
            type=NOT_NEGATIVE,
            default=20.0,
            help="virtual: what it takes more for each token.",
        ),
        _option(
            "--layer-ms",
            at="cost.layer_ms",
            type=NOT_NEGATIVE,
            default=0.5,
            help="virtual: what a layer of a model's draft takes.",
        ),
        _option(
            "--compare",
            at="compare",
            type=_COUNT_OR_0,
            default=250,
            help="Requests held against the one-sequence loop.",
        ),
        _option(
            "--baseline/--no-baseline",
            at="baseline",
            default=None,
            help="virtual: run again without drafts, for the speed that drafts give.",
            show_default="baseline, where there are drafts",
        ),
    )


def needs(o: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    """Say of each option that may change nothing whether it does here, and what it needs to."""
    arrivals = arrivals_name(o)
    trace, replay = o["trace"], o["replay"]
    is_made_up = trace is None and replay is None
    has_made_up_prompts = is_made_up or (replay is None and not says_prompts(Path(trace), o["format"]))
    shares = has_made_up_prompts and o["shared_rate"] > 0
    is_virtual = o["clock"] == "virtual"
    is_sampled = any(temperatures(o))
    return {
        "concurrency": (arrivals == "closed", "--arrivals closed"),
        "rate": (arrivals in ("poisson", "gamma"), "--arrivals poisson or gamma"),
        "burstiness": (arrivals == "gamma", "--arrivals gamma"),
        "speedup": (arrivals == "trace", "--arrivals trace"),
        "prompt_tokens": (is_made_up, "made-up requests, without --trace and --replay"),
        "output_tokens": (is_made_up, "made-up requests, without --trace and --replay"),
        "repetition": (has_made_up_prompts, "made-up prompts: no --replay, no trace with hashes of its prompts"),
        "shared_rate": (has_made_up_prompts, "made-up prompts: no --replay, no trace with hashes of its prompts"),
        "shared_tokens": (shares, "made-up prompts and --shared-rate above 0"),
        "shared_texts": (
            shares and o["shared_tokens"] > 0,
            "made-up prompts, --shared-rate and --shared-tokens above 0",
        ),
        "format": (not is_made_up, "--trace or --replay"),
        "tenants": (o["prefix_cache"], "--prefix-cache"),
        "slow_delay_ms": (o["slow_rate"] > 0, "--slow-rate above 0"),
        "vocab": (replay is None, "the fake target, without --replay"),
        "order": (replay is None, "the fake target, without --replay"),
        "sharp": (replay is None and is_sampled, "the fake target and a --temperature above 0"),
        "shuffle": (is_virtual, "--clock virtual"),
        "overhead_ms": (is_virtual, "--clock virtual"),
        "per_token_us": (is_virtual, "--clock virtual"),
        **needs_of_fleet(o),
        **needs_of_drafts(o, is_sampled=is_sampled, is_virtual=is_virtual),
    }


def _option(*names: str, show_default: bool | str = True, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, cls=SimOption, show_default=show_default, **settings)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
