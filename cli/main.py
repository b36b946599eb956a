"""The `outrider` command: each command is a thin file of options and output."""

import click

from cli.sim import sim


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="outrider", message="%(prog)s %(version)s")
def main() -> None:
    """Decode with many actors, speculate for speed only, and lose no block."""


main.add_command(sim)
