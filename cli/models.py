"""`outrider models`: the models known by name."""

import click

from cli.endings import Unusable
from models.loading import RELEASES, locate
from models.loading import pull as pull_release


@click.group()
def models() -> None:
    """Fetch and list the models known by name."""


@models.command(name="list")
def list_() -> None:
    """List the known models and where they are kept."""
    for name, release in RELEASES.items():
        click.echo(f"{name}: {release.about}; {locate(name) or 'not pulled'}")


@models.command()
@click.argument("name", type=click.Choice(list(RELEASES)))
def pull(name: str) -> None:
    """Fetch a model into the user's cache and check its sha256."""
    try:
        click.echo(pull_release(name, lambda text: click.echo(text, err=True)))
    except (RuntimeError, ValueError, OSError) as error:
        raise Unusable(str(error)) from None
