"""Files that a command writes at its end: opened before it begins, so that nothing is computed in vain."""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import click

from cli.endings import Unusable


class Output:
    """A file that can be written, or standard output. What was in it stays until there is something new."""

    def __init__(self, path: str) -> None:
        self.is_stdout = path == "-"
        self._path = path
        self._is_new = not self.is_stdout and not Path(path).exists()
        self._is_unwritten = True
        self._file = sys.stdout.buffer if self.is_stdout else _appending(path)
        if not self.is_stdout:
            os.write(self._file.fileno(), b"")  # a device may say already here that it takes nothing

    def write(self, data: bytes) -> None:
        """Write on; the first time over what the file held."""
        if self._is_unwritten and not self.is_stdout and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.truncate(0)
        self._is_unwritten = False
        self._try(self._file.write, data)

    def close(self) -> None:
        """Write what is buffered, and close; a file that was made for nothing is taken away again."""
        if self.is_stdout:
            self._try(self._file.flush)
            return
        self._try(self._file.close)
        if self._is_new and self._is_unwritten:
            Path(self._path).unlink(missing_ok=True)

    def _try(self, action: Callable[..., Any], *args: Any) -> None:
        try:
            action(*args)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unusable(f"{self._path}: {error.strerror}") from None


def _appending(path: str) -> BinaryIO:
    return Path(path).open("ab")


class OutFile(click.ParamType[Output]):
    """The path of an output, or - for standard output."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Open it; a usage error says what stands against it."""
        if isinstance(value, Output):
            return value
        folder = Path(value).parent
        if not folder.is_dir():
            self.fail(f"folder {str(folder)!r} does not exist", param, ctx)
        try:
            output = Output(value)
        except OSError as error:
            self.fail(f"{value}: {error.strerror}", param, ctx)
        if ctx is not None:
            ctx.call_on_close(output.close)
        return output


class ResumeFile(click.Path):
    """A file that is read at the start, if it is there, and replaced as a whole: a regular one."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it; a usage error says what stands against it."""
        path = Path(str(super().convert(value, param, ctx)))
        if path.exists() and not path.is_file():
            self.fail(f"{str(path)!r} is no regular file: it is read, and replaced as a whole", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"folder {str(path.parent)!r} does not exist or cannot be written", param, ctx)
        return str(path)
