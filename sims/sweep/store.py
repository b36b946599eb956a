"""What cells came to, on disk: a file for each, whole or not there."""

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any, Self

import msgspec

from sims.errors import SimError

FORMAT = 1
"""Of a result. What was written in another one belongs to other cells."""


class Came(msgspec.Struct, frozen=True):
    """What a run came to: a function of its options and its seed. Times of this machine are not in it."""

    figures: dict[str, float]
    report: Any

    def encoded(self) -> bytes:
        """Write it in the one way that equal ones have in common."""
        return msgspec.json.encode(self, order="sorted")


class Trouble(msgspec.Struct, frozen=True):
    """Why a run came to nothing."""

    error: str
    traceback: str = ""


class Result(msgspec.Struct, frozen=True):
    """A cell that was run."""

    format: int
    id: str
    command: str
    """To run it alone."""
    options: dict[str, Any]
    seed: int | None
    digest: str
    """SHA-256 of `came`, byte for byte."""
    came: msgspec.Raw

    @property
    def figures(self) -> dict[str, float]:
        """What was measured, by name."""
        return msgspec.json.decode(self.came, type=Came).figures


class Failure(msgspec.Struct, frozen=True):
    """A cell that failed: with its seed, its command line and what went wrong."""

    id: str
    command: str
    options: dict[str, Any]
    seed: int | None
    error: str
    traceback: str


def digest(came: bytes) -> str:
    """Give the digest of what a run came to."""
    return hashlib.sha256(came).hexdigest()


class Store:
    """A folder of results, for one sweep at a time.

    `cells/ID.json` is a result and `failed/ID.json` a failure; whenever the process ends, a file is there as a whole or
    not at all.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder, or make one. SimError where another sweep is at work in it."""
        self._done, self._failed = folder / "cells", folder / "failed"
        self._done.mkdir(parents=True, exist_ok=True)
        self._failed.mkdir(exist_ok=True)
        self._lock = (folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise SimError(f"{folder}: another sweep is at work in this folder") from None
        for left_over in [*self._done.glob("*.new"), *self._failed.glob("*.new"), *folder.glob("*.new")]:
            left_over.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def find(self, id: str) -> Result | None:  # noqa: A002
        """Give a cell's result; None where there is none, or none that is whole."""
        try:
            result = msgspec.json.decode((self._done / f"{id}.json").read_bytes(), type=Result)
        except (OSError, msgspec.MsgspecError):
            return None
        is_whole = result.format == FORMAT and result.id == id and result.digest == digest(bytes(result.came))
        return result if is_whole else None

    def has_file(self, id: str) -> bool:  # noqa: A002
        """Tell whether there is a file of a cell, whatever is in it."""
        return (self._done / f"{id}.json").exists()

    def keep(self, result: Result) -> None:
        """Write a result; that the cell failed before is past."""
        replace(self._done / f"{result.id}.json", msgspec.json.encode(result) + b"\n")
        (self._failed / f"{result.id}.json").unlink(missing_ok=True)

    def keep_failed(self, failure: Failure) -> None:
        """Write a failure, apart from the results."""
        replace(self._failed / f"{failure.id}.json", msgspec.json.format(msgspec.json.encode(failure)) + b"\n")


def replace(path: Path, data: bytes) -> None:
    """Write a file: whenever this ends, the old one or the new one is there, whole, and stays after a power cut."""
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
