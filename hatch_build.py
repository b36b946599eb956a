"""How a wheel is made of the checkout: `spec` becomes `outrider.spec`, and so with every folder that is shipped.

In the repository the packages stand at the top level and import each other by those names. In site-packages such names
would shadow users' own and be shadowed by them, so a wheel has them inside `outrider`, their imports changed to match.

With OUTRIDER_COMPILE=1 the modules in which the engine spends its time are compiled too, from the same source, and a
wheel has the extensions beside it. `python hatch_build.py FOLDER` makes such a copy of the checkout, to be tested.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
OUTRIDER = "outrider"
NOT_IN_A_WHEEL = {"checkout.py"}  # finds the folders where they are
COMPILED = [  # what mypyc makes faster; messages' parts stay as they are, for their types are looked at as they come in
    *("kvpool/errors.py", "kvpool/ledger.py", "kvpool/pool.py", "kvpool/prefix.py", "kvpool/table.py"),
    *("scheduler/core.py", "scheduler/plan.py", "scheduler/proposal.py", "scheduler/sequence.py"),
    "spec/lookup_index.py",
]
COMPILE = """
import sys
from mypyc.build import mypycify
from setuptools import setup
extensions = mypycify(["--ignore-missing-imports", *sys.argv[1:]], group_name="outrider", opt_level="2")
setup(name="outrider", packages=[], py_modules=[], ext_modules=extensions, script_args=["build_ext", "--inplace"])
"""


def parts() -> list[str]:
    """Give the folders that are shipped: those that say they are typed."""
    return sorted(path.parent.name for path in ROOT.glob("*/py.typed") if path.parent.name != OUTRIDER)


def rewritten(source: str, names: list[str]) -> str:
    """Let a module import the packages of these names from inside `outrider`. Lines keep their numbers.

    Raises ValueError for an import that cannot be written in one line with the same meaning (`import spec.rng`).
    """
    either = "|".join(names)
    source = re.sub(rf"^(\s*from )({either})((?:\.\w+)* import )", rf"\1{OUTRIDER}.\2\3", source, flags=re.MULTILINE)
    source = re.sub(rf"^(\s*)import ({either})$", rf"\1from {OUTRIDER} import \2", source, flags=re.MULTILINE)
    left = re.search(rf"^\s*import .*\b({either})\b.*$", source, re.MULTILINE)
    if left is not None:
        raise ValueError(f"{left[0].strip()!r}: say from {left[1]} import ...")
    return source


def has_to_compile() -> bool:
    """Tell whether whoever builds wants extensions."""
    return os.environ.get("OUTRIDER_COMPILE", "0") not in {"", "0"}


def compile_in(root: Path, package: str) -> None:
    """Make extensions of what is COMPILED beside the sources in `root / package`, and the one they share in `root`.

    Raises subprocess.CalledProcessError where there is no mypy, or no C compiler; it has said why.
    """
    files = [str(Path(package, name)) for name in COMPILED]
    subprocess.run([sys.executable, "-c", COMPILE, *files], cwd=root, check=True)
    for by_product in ("build", ".mypy_cache"):
        shutil.rmtree(root / by_product, ignore_errors=True)


class CustomBuildHook(BuildHookInterface[Any]):
    """Maps the folders into a wheel; an editable install leaves them where they are."""

    def dependencies(self) -> list[str]:
        """Name what compiling needs: mypy, and what the types of the modules come from."""
        return ["mypy>=1.15", "setuptools", "msgspec>=0.19", "numpy>=2.0"] if has_to_compile() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the modules as the wheel has them, and name them to the builder."""
        if version == "editable":
            return
        self._built = Path(tempfile.mkdtemp(prefix="outrider-wheel-"))
        names = parts()
        for part in [OUTRIDER, *names]:
            for path in sorted((ROOT / part).rglob("*")):
                if path.is_dir() or "__pycache__" in path.parts or path.name in NOT_IN_A_WHEEL:
                    continue
                inside = Path(OUTRIDER) if part == OUTRIDER else Path(OUTRIDER, part)
                target = self._built / inside / path.relative_to(ROOT / part)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".py":
                    target.write_text(rewritten(path.read_text(encoding="utf-8"), names), encoding="utf-8")
                else:
                    shutil.copy(path, target)
        if has_to_compile():
            compile_in(self._built, OUTRIDER)
            build_data.update(pure_python=False, infer_tag=True)
        build_data["force_include"].update({str(path): path.name for path in self._built.iterdir()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._built)


if __name__ == "__main__":
    copy = Path(sys.argv[1])
    made = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "out", "*.so", "*.pyd")
    shutil.copytree(ROOT, copy, ignore=made)
    compile_in(copy, "")
