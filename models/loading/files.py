"""What any file of a model may turn out to be instead."""

from pathlib import Path

_POINTER = b"version https://git-lfs"


def refuse_pointer(file: Path) -> None:
    """Raise ValueError where a file is the stand-in that git keeps for one whose content was not fetched."""
    with file.open("rb") as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            raise ValueError(f"{file} is a git-lfs pointer, not the file itself: run git lfs pull")
