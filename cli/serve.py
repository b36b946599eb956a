"""`outrider serve`: the engine behind HTTP."""

import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import click

from cli.endings import Unusable
from models.extras import without
from server.config import ConfigError, RuntimeConfig, load_config, parse_override

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
@click.option("--speculative", metavar="DRAFT:K", help="Drafts, as in prompt_lookup:4; or none.")
@click.option("--num-blocks", "engine__num_blocks", type=int, help="Blocks of KV memory.")
@click.option("--max-running", "engine__max_running", type=int, help="Sequences in a pass.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Any key of the file, as in engine.block_tokens=32."
)
@click.option("--check", is_flag=True, help="Check the configuration and stop.")
def serve(path: Path | None, speculative: str | None, overrides: tuple[str, ...], check: bool, **options: Any) -> None:
    """Serve a model over HTTP, as OpenAI's API does. A client that closes its connection cancels its request.

    Options override the configuration file; `outrider config schema` says what may be in it.

    Exit status 0 if whatever was open at the end finished, 3 if some of it was cancelled at the deadline, 4 if a block
    did not come back, 2 for a configuration that cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    given: dict[str, Any] = {
        name.replace("__", "."): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ())
    }
    if speculative is not None:
        given["engine.speculative"] = _drafts(speculative)
    try:
        given |= dict(map(parse_override, overrides))
        config = load_config(path or (_FILE if _FILE.exists() else None), given)
        status = 0 if check else _run(config)
    except ConfigError as error:
        click.echo(f"Error: {error}", err=True)
        status = 2
    sys.exit(status)


def _run(config: RuntimeConfig) -> int:
    try:
        from server.serve import serve as run_server  # noqa: PLC0415  # what it takes is an extra
    except ImportError as error:
        raise Unusable(without(str(error.name), "server")) from None
    return anyio.run(run_server, config)


def _drafts(text: str) -> dict[str, Any]:
    draft, _, k = text.partition(":")
    return {"draft": draft, "k": int(k) if k.isdecimal() else k or 1}
