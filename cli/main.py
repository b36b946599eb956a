"""The `outrider` command: each command is a thin file of options and output."""

import click

from cli.chat import chat
from cli.collector import calm_collector
from cli.config import config
from cli.endings import Commands
from cli.explore import explore
from cli.generate import generate
from cli.heads import heads
from cli.load import load
from cli.measure import measure
from cli.models import models
from cli.plan import plan
from cli.serve import serve
from cli.sim import sim
from cli.sweep import sweep
from outrider import __version__


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="outrider %(version)s")
def main() -> None:
    """Decode with many actors, speculate for speed only, and lose no block."""
    calm_collector()


main.add_command(sim)
main.add_command(plan)
main.add_command(measure)
main.add_command(explore)
main.add_command(sweep)
main.add_command(serve)
main.add_command(load)
main.add_command(config)
main.add_command(generate)
main.add_command(chat)
main.add_command(models)
main.add_command(heads)
