"""`outrider config`: what a configuration file may hold."""

import json

import click

from server.config import RuntimeConfig
from server.schema import reference as reference_of
from server.schema import schema_of

_HEAD = """# Configuration

Every key that `runtime.toml` may hold. `outrider config schema` prints the same as a JSON schema, for editors and
tools; `outrider serve --set KEY=VALUE` sets any one, as in `--set engine.num_blocks=512`; `outrider serve --check`
tells every mistake, or what would be run.
"""


@click.group(short_help="Tell what a configuration file may hold.")
def config() -> None:
    """Tell what a configuration file may hold."""


@config.command()
def schema() -> None:
    """Print the JSON schema of runtime.toml."""
    click.echo(json.dumps(schema_of(RuntimeConfig), indent=2))


@config.command()
def reference() -> None:
    """Print the page about runtime.toml, as in docs/configuration.md."""
    click.echo(_HEAD)
    click.echo("\n".join(reference_of(RuntimeConfig)).rstrip())
