"""`outrider config`: what a configuration file may hold."""

import json

import click

from server.config import config_schema


@click.group(short_help="Tell what a configuration file may hold.")
def config() -> None:
    """Tell what a configuration file may hold."""


@config.command()
def schema() -> None:
    """Print the JSON schema of runtime.toml."""
    click.echo(json.dumps(config_schema(), indent=2))
