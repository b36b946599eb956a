"""How commands end, and what they say while they work."""

import contextlib
import errno
import os
import pty
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from cli.endings import Broken, Commands, Unusable
from cli.main import main
from cli.options import SHARE, Number
from cli.progress import Progress

COMMAND = [sys.executable, "-c", "from cli.main import main; main()"]


def raising(error):
    @click.group(cls=Commands)
    def group():
        pass

    @group.command()
    def run():
        raise error

    return CliRunner().invoke(group, ["run"])


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "broken off"),
        (click.Abort(), 130, "broken off"),
        (Unusable("the file is none"), 2, "the file is none"),
        (click.UsageError("no such option"), 2, "no such option"),
        (Broken("a law"), 1, "a law"),
        (MemoryError(), 2, "more memory than there is"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
        (ZeroDivisionError("of our own"), 1, "a fault of Outrider's own, at test_endings.py:"),
        (RecursionError("of our own"), 1, "RecursionError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_there_is_one_convention_and_no_traceback(error, status, said):
    result = raising(error)
    assert result.exit_code == status
    assert said in result.output
    assert "Traceback" not in result.output
    if "its traceback is in " in result.output:
        os.unlink(result.output.split("its traceback is in ")[1].split(")")[0])


def test_who_closes_our_output_is_no_failure_of_ours():
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([*COMMAND, "models", "list"], stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert done.returncode == 141
    assert done.stderr == b""


def test_every_command_is_one_of_the_group_and_refuses_what_it_does_not_know():
    assert isinstance(main, Commands)
    for name in main.commands:
        result = CliRunner().invoke(main, [name, "--no-such-option"])
        assert result.exit_code == 2
        assert "Traceback" not in result.output


def test_no_number_is_not_finite_and_no_share_a_percentage():
    for text in ("nan", "inf", "-inf"):
        with pytest.raises(click.BadParameter, match=r"not a finite number|not in the range"):
            Number().convert(text, None, None)
    with pytest.raises(click.BadParameter, match=r"30 % is 0\.3"):
        SHARE.convert("30", None, None)
    with pytest.raises(click.BadParameter, match="not in the range"):
        SHARE.convert("-1", None, None)
    assert SHARE.convert("0.3", None, None) == 0.3


def shown_after(*times_s, num_all=100):
    """What is said of work of which one part is done at each of these times."""
    now = iter([0.0, 0.0, *times_s])
    with Progress(clock=lambda: next(now)) as progress:
        progress.show("parts", 0, num_all)
        for num_done, _ in enumerate(times_s, 1):
            progress.show("parts", num_done, num_all, lambda: "as told")


def test_in_a_pipe_there_is_a_line_every_ten_seconds(capsys):
    shown_after(1, 5, 9.9, 10, 11, 19.9, 20.1, 33)
    assert capsys.readouterr().err.splitlines() == [
        "4 of 100 parts: as told, 4:00 left",
        "7 of 100 parts: as told, 4:27 left",
        "8 of 100 parts: as told, 6:20 left",
    ]


def test_short_work_says_nothing(capsys):
    shown_after(1, 5, 9.9)
    assert capsys.readouterr().err == ""


def test_where_the_end_is_not_known_none_is_promised(capsys):
    shown_after(11, num_all=None)
    assert capsys.readouterr().err == "1 parts: as told\n"


BAR = """
from cli.progress import Progress
now = iter([0, 0, 1, 1.5, 2.5, 2.55, 4])
with Progress(clock=lambda: next(now)) as progress:
    for done in range(6):
        progress.show("parts", done, 10)
"""


def test_on_a_terminal_there_is_a_bar_after_two_seconds():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    bar = subprocess.Popen([sys.executable, "-c", BAR], stderr=theirs, stdout=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = ""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 1000):
            shown += piece.decode()
    os.close(ours)
    assert bar.wait(20) == 0, shown
    assert "3 of 10 parts" in shown
    assert "5 of 10 parts" in shown
    assert not [done for done in (0, 1, 2, 4) if f"{done} of 10" in shown]
    assert "0:06 left" in shown
