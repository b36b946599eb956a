"""`outrider serve`: the engine behind HTTP."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from cli.endings import UNUSABLE, Unusable
from cli.ray_option import LOCAL, connect, ray_option
from models.extras import without
from server.config import ConfigError, RuntimeConfig, load_config, parse_override
from server.model import find_model

_FILE = Path("runtime.toml")


@click.command(short_help="Serve a model over HTTP, as OpenAI's API does.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="Default: ./runtime.toml, if it is there."
)
@click.option("--model", "model__source", help="`fake`, a pulled model's name, a GGUF file, or a safetensors folder.")
@click.option("--host", "server__host", help="Default: 127.0.0.1.")
@click.option("--port", "server__port", type=int, help="Default: 8000; 0 takes a free one.")
@click.option(
    "--api-key",
    "server__api_keys",
    multiple=True,
    envvar="OUTRIDER_API_KEY",
    help="Serve only who sends it; may be repeated.",
)
@click.option(
    "--allowed-origins",
    "server__allowed_origins",
    metavar="ORIGIN",
    multiple=True,
    help="Let web pages of this origin use the server, as in https://example.org; may be repeated.",
)
@click.option(
    "--strict", "server__strict", is_flag=True, default=None, help="Refuse parameters that are not known here."
)
@click.option("--max-connections", "server__max_connections", type=int, help="Open at a time.")
@click.option("--speculative", metavar="DRAFT:K", help="Drafts, as in prompt_lookup:4; or none.")
@click.option("--num-blocks", "engine__num_blocks", type=int, help="Blocks of KV memory.")
@click.option("--max-running", "engine__max_running", type=int, help="Sequences in a pass.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Any key of the file, as in engine.block_tokens=32."
)
@ray_option("Serve with replicas on a Ray cluster, by Ray Serve.")
@click.option(
    "--replicas",
    metavar="N|MIN-MAX",
    help="Engines on the Ray cluster: so many, or between two bounds as there is work. Default: 1.",
)
@click.option("--check", is_flag=True, help="Tell every mistake of the configuration, or what would be run, and stop.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="info has a line for every request: id, status, tokens and times, never text.",
)
def serve(
    path: Path | None,
    speculative: str | None,
    overrides: tuple[str, ...],
    ray_address: str | None,
    replicas: str | None,
    check: bool,
    log_level: str,
    **options: Any,
) -> None:
    """Serve a model over HTTP, as OpenAI's API does. A client that closes its connection cancels its request.

    Options override the configuration file; `outrider config reference` tells what may be in it.

    Exit status 0 if whatever was open at the end finished, 3 if some of it was cancelled at the deadline, 4 if a block
    did not come back, 2 for a configuration that cannot be used.
    """
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if replicas is not None and ray_address is None:
        raise click.UsageError("--replicas has no effect here: it needs --ray")
    given: dict[str, Any] = {
        name.replace("__", "."): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ())
    }
    if speculative is not None:
        given["engine.speculative"] = _drafts(speculative)
    try:
        given |= dict(map(parse_override, overrides))
        found = path or (_FILE if _FILE.exists() else None)
        config = load_config(found, given)
        if check:
            status = _check(config, found)
        elif ray_address is None:
            status = _run(config)
        else:
            status = _run_replicas(config, ray_address, replicas or "1", log_level)
    except ConfigError as error:
        for mistake in [*str(error).splitlines(), *(_of_the_model(error) if check else ())]:
            click.echo(f"Error: {mistake}", err=True)
        status = UNUSABLE
    sys.exit(status)


def _of_the_model(error: ConfigError) -> list[str]:
    """Tell what is wrong with the model of a configuration in which something else is wrong."""
    try:
        if error.rest is not None:
            find_model(error.rest.model, error.rest.engine.speculative)
    except ConfigError as another:
        return str(another).splitlines()
    return []


def _check(config: RuntimeConfig, path: Path | None) -> int:
    """Open the model and say what would be run."""
    model = find_model(config.model, config.engine.speculative)
    engine, server = config.engine, config.server
    length = min(model.max_model_len, engine.max_model_len)
    drafts = engine.speculative
    rows = {
        "configuration": path or "no file: defaults and options",
        "model": f"{model.name}: {model.vocab_size:,} tokens in its vocabulary, texts of up to {length:,}",
        "memory": f"{engine.num_blocks:,} blocks of {engine.block_tokens} positions, "
        f"{engine.num_blocks * engine.block_tokens:,} in all",
        "a pass": f"up to {engine.max_batch_tokens:,} tokens of {engine.max_running:,} sequences",
        "drafts": "none" if drafts.draft == "none" else f"{drafts.draft}, up to {drafts.k} tokens",
        "address": f"http://{server.host}:{server.port}, {'with' if server.api_keys else 'without'} keys",
    }
    for name, value in rows.items():
        click.echo(f"{name:<14} {value}")
    return 0


def _run(config: RuntimeConfig) -> int:
    try:
        from server.serve import serve as run_server  # noqa: PLC0415  # what it takes is an extra
    except ImportError as error:
        raise Unusable(without(str(error.name), "server")) from None
    return anyio.run(run_server, config)


def _run_replicas(config: RuntimeConfig, address: str, replicas: str, log_level: str) -> int:
    fewest, _, most = replicas.partition("-")
    numbers = [int(number) if number.isdecimal() else 0 for number in (fewest, most or fewest)]
    if not 1 <= numbers[0] <= numbers[1]:
        raise click.BadParameter(f"{replicas!r}: a number of at least 1, or two as in 2-8", param_hint="--replicas")
    try:
        from server.replicas.run import Replicas, check_replicated, serve_replicas  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise Unusable(str(error) if error.name is None else without(error.name, "ray")) from None
    check_replicated(config.server)
    ray = connect(address, min_cpus=numbers[1])
    try:
        run = partial(serve_replicas, config, Replicas(*numbers), log_level.upper(), owns_ray=address == LOCAL)
        return anyio.run(run)
    finally:
        ray.shutdown()


def _drafts(text: str) -> dict[str, Any]:
    draft, _, k = text.partition(":")
    return {"draft": draft, "k": int(k) if k.isdecimal() else k or 1}
