"""The packages point one way, and the pure ones know neither a loop, nor a clock, nor chance."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PURE = {"spec", "kvpool", "scheduler", "models"}
MAY_IMPORT = {
    "spec": set(),
    "kvpool": set(),
    "scheduler": {"spec", "kvpool"},
    "models": {"spec"},
    "actors": PURE,
    "server": PURE | {"actors"},
    "sims": PURE | {"actors"},
    "plans": PURE | {"sims"},
    "cli": PURE | {"actors", "server", "sims", "plans", "outrider"},
    "outrider": PURE | {"actors", "server", "sims", "plans", "cli"},
}
NOT_SHIPPED = {"tests", "benchmarks"}
LOOPS_CLOCKS_CHANCE = {"asyncio", "anyio", "threading", "time", "datetime", "random", "secrets", "uuid"}
OTHER_PROCESSES = {"subprocess", "multiprocessing", "concurrent", "socket"}
IMPURE = dict.fromkeys(PURE, LOOPS_CLOCKS_CHANCE | OTHER_PROCESSES)
IMPURE["plans"] = LOOPS_CLOCKS_CHANCE | OTHER_PROCESSES
IMPURE["models"] = LOOPS_CLOCKS_CHANCE  # a model is loaded, by whatever means


def imported(tree, package):
    """`(line, dotted name)` of every import in a file of `package`, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield node.lineno, f"{package}.{module}" if node.level else module


def offences(package, source):
    tree = ast.parse(source)
    allowed = MAY_IMPORT[package] | {package}
    for line, name in imported(tree, package):
        top = name.partition(".")[0]
        if top in MAY_IMPORT.keys() | NOT_SHIPPED and top not in allowed:
            yield f"line {line}: {package} imports {name}"
        if top in IMPURE.get(package, ()) or (package in PURE and name.startswith("numpy.random")):
            yield f"line {line}: {package} is pure and imports {name}"
    for node in ast.walk(tree) if package in PURE else ():
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            yield f"line {node.lineno}: {package} is pure and awaits"
        if isinstance(node, ast.Global):
            yield f"line {node.lineno}: {package} is pure and has global state"


def files_of(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package):
    found = [
        f"{path.relative_to(ROOT)}, {offence}"
        for path in files_of(package)
        for offence in offences(package, path.read_text())
    ]
    assert not found, "\n".join(found)


def test_every_package_is_in_the_table():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - NOT_SHIPPED
    assert packages <= MAY_IMPORT.keys()
    assert files_of("spec")


@pytest.mark.parametrize(
    ("package", "source", "num_offences"),
    [
        ("spec", "import kvpool", 1),
        ("spec", "from kvpool.pool import KvPool", 1),
        ("spec", "def f():\n    import asyncio.queues", 1),
        ("spec", "from . import rng\nfrom spec.rng import stream\nimport numpy as np", 0),
        ("scheduler", "import spec, kvpool, models, tests.reference", 2),
        ("models", "from time import monotonic\nimport subprocess", 1),
        ("scheduler", "import subprocess", 1),
        ("kvpool", "async def f():\n    await g()", 2),
        ("actors", "import asyncio, spec, models\nasync def f(): ...", 0),
        ("actors", "import server", 1),
        ("server", "from sims.clock import Clock", 1),
        ("sims", "import server", 1),
        ("plans", "from actors import Engine\nimport time", 2),
        ("plans", "import spec, sims, numpy.random", 0),
        ("cli", "import server, sims, actors, spec", 0),
    ],
)
def test_offences_are_seen(package, source, num_offences):
    assert len(list(offences(package, source))) == num_offences
