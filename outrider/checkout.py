"""In a checkout: `outrider.spec` is the folder `spec`, the same objects and not a second copy. Not in a wheel."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_OUTRIDER = Path(__file__).parent
PARTS = frozenset(path.parent.name for path in _OUTRIDER.parent.glob("*/py.typed")) - {_OUTRIDER.name}


class _Parts(MetaPathFinder, Loader):
    """Finds `outrider.<folder>` and all below it in what `<folder>` is imported as."""

    def __init__(self) -> None:
        self._own: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, rest = fullname.partition(".")
        if package != _OUTRIDER.name or rest.partition(".")[0] not in PARTS:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.name.partition(".")[2])
        self._own[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what importing did: the module keeps the name it is known by."""
        assert module.__spec__ is not None
        module.__spec__ = self._own.pop(module.__spec__.name)


def give_folders_as_parts() -> None:
    """Let `outrider.<folder>` be imported; what is imported already is there at once, as it is when installed."""
    sys.meta_path.insert(0, _Parts())
    for part in PARTS & sys.modules.keys():
        import_module(f"{_OUTRIDER.name}.{part}")
