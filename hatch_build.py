"""How a wheel is made of the checkout: `spec` becomes `outrider.spec`, and so with every folder that is shipped.

In the repository the packages stand at the top level and import each other by those names. In site-packages such names
would shadow users' own and be shadowed by them, so a wheel has them inside `outrider`, their imports changed to match.
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
OUTRIDER = "outrider"
NOT_IN_A_WHEEL = {"checkout.py"}  # finds the folders where they are


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


class CustomBuildHook(BuildHookInterface[Any]):
    """Maps the folders into a wheel; an editable install leaves them where they are."""

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
                inside = Path() if part == OUTRIDER else Path(part)
                target = self._built / inside / path.relative_to(ROOT / part)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".py":
                    target.write_text(rewritten(path.read_text(encoding="utf-8"), names), encoding="utf-8")
                else:
                    shutil.copy(path, target)
        build_data["force_include"][str(self._built)] = OUTRIDER

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._built)
