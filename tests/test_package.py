"""What is installed, and that a checkout gives the same objects under both names."""

import importlib
import os
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

import actors
import kvpool.pool
import models.loading
import outrider
import spec
from hatch_build import COMPILED, has_to_compile, parts, rewritten
from outrider.checkout import PARTS
from tests.test_house import MAY_IMPORT, ROOT

SUFFIXES = tuple(EXTENSION_SUFFIXES)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with nothing in it but the wheel's files."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run_installed(site, *args):
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *args], cwd=site.parent, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_one_name_and_all_of_it(site):
    names = {path.name for path in site.iterdir()}
    compiled = {"outrider__mypyc"} if has_to_compile() else set()
    assert {name.partition("-")[0].partition(".")[0] for name in names} == {"outrider", *compiled}
    shipped = {path.relative_to(ROOT) for part in parts() for path in (ROOT / part).rglob("*.*") if path.is_file()}
    shipped = {str(path) for path in shipped if "__pycache__" not in path.parts}
    assert shipped <= {str(path.relative_to(site / "outrider")) for path in (site / "outrider").rglob("*")}
    assert (site / "outrider" / "py.typed").exists()


@pytest.mark.skipif(not has_to_compile(), reason="compiled only with OUTRIDER_COMPILE=1 (make test-compiled)")
def test_what_is_compiled_is_what_runs(site):
    for name in COMPILED:
        module = name.removesuffix(".py").replace("/", ".")
        assert importlib.import_module(module).__file__.endswith(SUFFIXES), "the tests run on the extensions"
        result = run_installed(site, "-c", f"import outrider.{module} as it; print(it.__file__)")
        assert result.stdout.strip().endswith(SUFFIXES), result.stderr


def test_every_folder_of_the_house_is_shipped():
    assert set(parts()) == set(PARTS) == MAY_IMPORT.keys() - {"outrider"}
    assert set(outrider._PARTS) == set(parts())


def test_the_package_imports_its_parts_when_they_are_asked_for():
    """The command can then end before all of it is there; every name that is offered is found, and no other."""
    check = "import sys, outrider; assert 'numpy' not in sys.modules; assert outrider.Engine and 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=True)
    assert all(getattr(outrider, name) is not None for name in outrider.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        outrider.nothing  # noqa: B018


USE_EVERYTHING = f"""
import importlib, pickle, pkgutil, sys
import outrider
assert outrider.__file__.startswith(sys.argv[1]), outrider.__file__
for found in pkgutil.walk_packages(outrider.__path__, "outrider."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            assert "outrider" not in str(error.name), error
mine = {sorted(MAY_IMPORT.keys() - {"outrider"})}
assert not [name for name in sys.modules if name.partition(".")[0] in mine]
from outrider.actors import messages
request = outrider.Request(prompt=[1, 2], max_tokens=3)
assert pickle.loads(pickle.dumps(request)) == request
step = messages.Submit(4, request)
assert pickle.loads(pickle.dumps(step)) == step
assert b"Submit" in messages.encode(step)
print(outrider.__version__)
"""


def test_an_installed_package_imports_nothing_from_the_top_level(site):
    result = run_installed(site, "-c", USE_EVERYTHING, str(site))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "0.1.0\n"


def test_the_installed_command_runs(site):
    result = run_installed(site, "-m", "outrider", "sim", "--requests", "50")
    assert result.returncode == 0, result.stderr
    assert "Every block is back" in result.stdout


def test_a_checkout_gives_the_same_objects_under_both_names():
    import outrider.kvpool.pool
    import outrider.models.loading

    assert outrider.kvpool.pool is kvpool.pool
    assert outrider.models.loading is models.loading
    assert outrider.Engine is actors.Engine
    assert outrider.SpecConfig is outrider.spec.SpecConfig is spec.SpecConfig
    assert spec.__spec__.name == spec.__name__ == "spec"
    with pytest.raises(ModuleNotFoundError, match=r"outrider\.nothing"):
        import outrider.nothing


def test_imports_are_rewritten_where_they_stand():
    source = (
        'from spec import x\nif 1:\n    from models.loading import y\nimport spec\nimport specs\n"""\nfrom spec to\n"""'
    )
    wanted = source.replace("from spec import", "from outrider.spec import")
    wanted = wanted.replace("from models.", "from outrider.models.").replace(
        "import spec\n", "from outrider import spec\n"
    )
    assert rewritten(source, ["models", "spec"]) == wanted
    with pytest.raises(ValueError, match=r"say from spec import"):
        rewritten("import spec.rng", ["spec"])
