"""How every command ends: one convention for the exit status, and no traceback.

0: it ran, and all was as it must be. 1: it ran, and something was not. 2: it was asked for what cannot be. 130: Ctrl-C,
after what there was to tell. 141: whoever read the output has closed it. `outrider serve` has two more of its own.
"""

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click

BROKEN = 1
UNUSABLE = 2
INTERRUPTED = 130
UNREAD = 141


class Unusable(click.ClickException):
    """A value, a file or an address that cannot be used; the message names it."""

    exit_code = UNUSABLE


class Broken(click.ClickException):
    """Something that must never be."""

    exit_code = BROKEN


class Commands(click.Group):
    """A group of commands that end by the convention, whatever they raise."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that is asked for."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("broken off", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else it is flushed once more at the end
            ctx.exit(UNREAD)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except MemoryError:
            raise Unusable("this takes more memory than there is: ask for less") from None
        except OSError as error:
            raise Unusable(str(error)) from None
        except Exception as error:
            raise Broken(f"a fault of Outrider's own, {_place(error)}: {type(error).__name__}: {error}") from None


def _place(error: Exception) -> str:
    """Say where an error was raised, and keep the whole traceback in a file for whoever reports it."""
    with tempfile.NamedTemporaryFile("w", prefix="outrider-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {Path(frame.filename).name}:{frame.lineno} (its traceback is in {file.name})"
