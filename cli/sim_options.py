"""The options of `outrider sim`, and the simulation they describe."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.options import LengthsType
from scheduler import EngineConfig
from sims.arrivals import Closed, Open, Recorded
from sims.config import Cost, Fake, SimConfig
from sims.faults import Rates
from sims.leaving import Leaving
from sims.prompts import Prompts
from spec import SpecConfig

Command = TypeVar("Command", bound=Callable[..., Any])

_SHARE = click.FloatRange(0, 1)
_COUNT = click.IntRange(min=1)
_COUNT_OR_0 = click.IntRange(min=0)
_NUMBER = click.FloatRange(min=0)
_POSITIVE = click.FloatRange(min=0, min_open=True)
_FILE = click.Path(exists=True, dir_okay=False)
_LENGTHS = LengthsType()


def traffic(command: Command) -> Command:
    """Add what requests look like, and when they come."""
    return _with(
        command,
        _option("--requests", type=_COUNT, help="Requests in all, at most.", show_default="2000, or all of a file's"),
        _option(
            "--arrivals",
            type=click.Choice(["closed", "poisson", "gamma", "trace"]),
            help="When requests come: as others end, at random, in bursts, or at a trace's own times.",
            show_default="closed, or trace with --trace",
        ),
        _option("--concurrency", type=_COUNT, default=256, help="closed: requests open at any time."),
        _option("--rate", type=_POSITIVE, default=100.0, help="poisson, gamma: requests a second."),
        _option("--burstiness", type=_NUMBER, default=2.0, help="gamma: how uneven the gaps are; 1 is poisson."),
        _option("--speedup", type=_POSITIVE, default=1.0, help="trace: how much faster than recorded."),
        _option("--trace", type=_FILE, help="Lengths, times and prefixes of a Mooncake, Azure or ShareGPT trace."),
        _option("--replay", type=_FILE, help='JSONL of {"prompt", "completion"} to recite, as text or token ids.'),
        _option(
            "--prompt-tokens",
            type=_LENGTHS,
            default="lognormal:24:0.6",
            help="Prompt lengths: N, LOW-HIGH or lognormal:MEDIAN:SIGMA.",
        ),
        _option("--output-tokens", type=_LENGTHS, default="lognormal:128:0.5", help="Most tokens to generate."),
        _option("--repetition", type=_SHARE, default=0.5, help="Share of a prompt copied from earlier in it."),
        _option("--shared-rate", type=_SHARE, default=0.5, help="Share of prompts that begin with a shared text."),
        _option("--shared-tokens", type=_COUNT_OR_0, default=16, help="Length of the shared texts."),
        _option("--shared-texts", type=_COUNT, default=8, help="How many shared texts there are."),
        _option(
            "--temperature",
            "temperatures",
            type=_NUMBER,
            multiple=True,
            help="Sampling temperature; of several, each request draws one.",
            show_default="0 and 0.8; 0 with --replay",
        ),
        _option("--tenants", type=_COUNT, default=1, help="Groups of clients; prefixes are shared within one only."),
        _option("--priorities", type=_COUNT, default=1, help="Levels of priority; each request draws one."),
    )


def leaving(command: Command) -> Command:
    """Add how clients misbehave."""
    return _with(
        command,
        _option("--cancel-rate", type=_SHARE, default=0.3, help="Share of clients that leave before the end."),
        _option("--slow-rate", type=_SHARE, default=0.0, help="Share of clients that read slowly."),
        _option(
            "--slow-delay-ms", type=_NUMBER, default=50.0, help="What a slow reader takes for a token, on average."
        ),
        _option("--vanish-at", type=_NUMBER, multiple=True, help="Second at which every open client leaves at once."),
    )


def faults(command: Command) -> Command:
    """Add what goes wrong, and when the engine gives up."""
    return _with(
        command,
        _option("--fault-raise", type=_SHARE, default=0.0, help="Share of passes in which the model raises."),
        _option("--fault-raise-late", type=_SHARE, default=0.0, help="The same, after the pass has written."),
        _option("--fault-hang", type=_SHARE, default=0.0, help="virtual: share of passes that hang and are given up."),
        _option("--fault-die-runner", type=_SHARE, default=0.0, help="Deaths of the runner per message it takes."),
        _option("--fault-die-blocks", type=_SHARE, default=0.0, help="The same of the block manager."),
        _option("--fault-die-scheduler", type=_SHARE, default=0.0, help="The same of the scheduler."),
        _option(
            "--fault-out-of-blocks", type=_SHARE, default=0.0, help="Share of blocks allocated when there is none."
        ),
        _option("--pass-timeout-ms", type=_POSITIVE, help="When a pass is given up.", show_default="never"),
        _option("--max-restarts", type=_COUNT_OR_0, default=3, help="Crashes within 5 s that the engine survives."),
    )


def engine(command: Command) -> Command:
    """Add the engine's measures, its drafts, and its target."""
    return _with(
        command,
        _option(
            "--draft",
            type=click.Choice(["none", "ngram", "prompt_lookup"]),
            default="prompt_lookup",
            help="Where drafts come from.",
        ),
        _option("--k", type=click.IntRange(1, 16), default=4, help="Most tokens of a draft."),
        _option("--adaptive/--fixed", help="Feed only the drafts that pay, by what a pass costs.", default=False),
        _option(
            "--verify",
            type=click.Choice(["resample", "match"]),
            default="resample",
            help="Rule for sampled rounds; match gives the text that plain sampling gives.",
        ),
        _option("--blocks", type=_COUNT, default=512, help="KV blocks in the pool."),
        _option("--block-tokens", type=_COUNT, default=16, help="Positions of a block."),
        _option("--batch-tokens", type=_COUNT, default=2048, help="Most tokens of a pass, drafts included."),
        _option("--max-running", type=_COUNT, default=256, help="Most sequences running at a time."),
        _option("--max-model-len", type=_COUNT, default=8192, help="Most positions of a sequence."),
        _option(
            "--max-waiting", type=_COUNT_OR_0, help="Most requests waiting; one more is refused.", show_default="any"
        ),
        _option("--stream-tokens", type=_COUNT, default=256, help="Tokens a client may leave unread."),
        _option("--prefix-cache/--no-prefix-cache", default=True, help="Share the blocks of equal beginnings."),
        _option("--audit-every", type=_COUNT, default=64, help="Messages between two full audits of the pool."),
        _option("--vocab", type=_COUNT, default=128, help="Fake target: token ids."),
        _option("--order", type=_COUNT, default=1, help="Fake target: how many last tokens its logits depend on."),
        _option("--sharp", type=_POSITIVE, default=100.0, help="Fake target: spread of its logits."),
    )


def clock(command: Command) -> Command:
    """Add time and what it costs."""
    return _with(
        command,
        _option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Seed of all that is drawn."),
        _option(
            "--clock",
            type=click.Choice(["virtual", "wall"]),
            default="virtual",
            help="Jump from event to event, or take the time that it takes.",
        ),
        _option("--shuffle/--fifo", default=False, help="virtual: run what is ready in an order drawn from the seed."),
        _option("--overhead-ms", type=_NUMBER, default=5.0, help="virtual: what a pass takes, whatever is in it."),
        _option("--per-token-us", type=_NUMBER, default=20.0, help="virtual: what it takes more for each token."),
        _option("--compare", type=_COUNT_OR_0, default=250, help="Requests held against the one-sequence loop."),
    )


def needs(o: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    """Say of each option that may change nothing whether it does here, and what it needs to."""
    arrivals = _arrivals_name(o)
    trace, replay = o["trace"], o["replay"]
    is_made_up = trace is None and replay is None
    has_made_up_prompts = is_made_up or (replay is None and str(trace).endswith(".csv"))
    shares = has_made_up_prompts and o["shared_rate"] > 0
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
        "tenants": (o["prefix_cache"], "--prefix-cache"),
        "slow_delay_ms": (o["slow_rate"] > 0, "--slow-rate above 0"),
        "k": (o["draft"] != "none", "--draft ngram or prompt_lookup"),
        "adaptive": (
            o["draft"] != "none" and o["clock"] == "virtual",
            "drafts and --clock virtual, where costs are known",
        ),
        "verify": (o["draft"] != "none" and any(_temperatures(o)), "drafts and a --temperature above 0"),
        "vocab": (replay is None, "the fake target, without --replay"),
        "order": (replay is None, "the fake target, without --replay"),
        "sharp": (replay is None and any(_temperatures(o)), "the fake target and a --temperature above 0"),
        "shuffle": (o["clock"] == "virtual", "--clock virtual"),
        "overhead_ms": (o["clock"] == "virtual", "--clock virtual"),
        "per_token_us": (o["clock"] == "virtual", "--clock virtual"),
    }


def read_config(o: dict[str, Any]) -> SimConfig:
    """Make the simulation. Raises SimError, RequestError or SpecError for values that do not go together."""
    return SimConfig(
        seed=o["seed"],
        requests=o["requests"],
        clock=o["clock"],
        shuffle=o["shuffle"],
        engine=EngineConfig(
            num_blocks=o["blocks"],
            block_tokens=o["block_tokens"],
            max_batch_tokens=o["batch_tokens"],
            max_running=o["max_running"],
            max_model_len=o["max_model_len"],
            max_waiting=o["max_waiting"],
            speculative=SpecConfig.parse(o["draft"], o["k"]),
            adaptive=o["adaptive"],
            prefix_cache=o["prefix_cache"],
            stream_tokens=o["stream_tokens"],
            audit_every=o["audit_every"],
            pass_timeout_s=None if o["pass_timeout_ms"] is None else o["pass_timeout_ms"] / 1e3,
            max_restarts=o["max_restarts"],
        ),
        target=Fake(o["vocab"], o["order"], o["sharp"]),
        arrivals=_arrivals(o),
        prompt_tokens=o["prompt_tokens"],
        output_tokens=o["output_tokens"],
        prompts=Prompts(o["repetition"], o["shared_rate"], o["shared_tokens"], o["shared_texts"]),
        temperatures=_temperatures(o),
        verify=o["verify"],
        tenants=o["tenants"],
        priorities=o["priorities"],
        leaving=Leaving(o["cancel_rate"], o["slow_rate"], o["slow_delay_ms"], o["vanish_at"]),
        faults=Rates(
            raise_=o["fault_raise"],
            raise_late=o["fault_raise_late"],
            hang=o["fault_hang"],
            die_runner=o["fault_die_runner"],
            die_blocks=o["fault_die_blocks"],
            die_scheduler=o["fault_die_scheduler"],
            out_of_blocks=o["fault_out_of_blocks"],
        ),
        cost=Cost(o["overhead_ms"], o["per_token_us"]),
        compare=o["compare"],
        trace=o["trace"],
        replay=o["replay"],
    )


def _arrivals_name(o: dict[str, Any]) -> str:
    return o["arrivals"] or ("trace" if o["trace"] is not None else "closed")


def _arrivals(o: dict[str, Any]) -> Closed | Open | Recorded:
    match _arrivals_name(o):
        case "closed":
            return Closed(o["concurrency"])
        case "poisson":
            return Open(o["rate"])
        case "gamma":
            return Open(o["rate"], o["burstiness"])
        case _:
            return Recorded(o["speedup"])


def _temperatures(o: dict[str, Any]) -> tuple[float, ...]:
    return o["temperatures"] or ((0.0,) if o["replay"] is not None else (0.0, 0.8))


def _option(*names: str, show_default: bool | str = True, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, show_default=show_default, **settings)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
