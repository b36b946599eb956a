"""`python -m tests.mutants`: every mistake is planted and must be caught; exits with 1 where one is not."""

import argparse
import importlib
import os
import pkgutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests import mutants
from tests.mutants.mutant import Mutant, check_copy_is_imported, copy_of_project, run_tests, try_mutant

NUM_WORKERS = 2


def collect() -> list[Mutant]:
    """The `MUTANTS` of every module here."""
    modules = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__) if module.name != "__main__")
    found = [
        mutant
        for name in modules
        for mutant in getattr(importlib.import_module(f"tests.mutants.{name}"), "MUTANTS", ())
    ]
    names = [mutant.name for mutant in found]
    if len(set(names)) < len(names):
        raise SystemExit(f"two mutants have one name: {sorted(name for name in names if names.count(name) > 1)}")
    return found


def check_tests_pass(chosen: list[Mutant]) -> None:
    """A test that fails on the code as it is would seem to catch anything: exit where there is one."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    print(f"first, {len(tests)} tests that are to notice are run on the code as it is", flush=True)
    with copy_of_project() as copy:
        check_copy_is_imported(copy)
        result = run_tests(copy, tests)
    if result.returncode:
        raise SystemExit(f"the tests must pass before mistakes are planted:\n{result.stdout}{result.stderr}")


def try_all(chosen: list[Mutant]) -> int:
    """Print a row per mutant as it is tried, and how long the rest will take; the number that was not caught."""
    width = max(len(mutant.name) for mutant in chosen)
    num_missed = 0
    started_s = time.monotonic()
    with ThreadPoolExecutor(NUM_WORKERS) as workers:
        for num_tried, verdict in enumerate(workers.map(try_mutant, chosen), 1):
            left_s = round((time.monotonic() - started_s) / num_tried * (len(chosen) - num_tried))
            caught_by = ", ".join(verdict.caught_by) if verdict.is_caught else f"{verdict.outcome} {verdict.detail}"
            print(
                f"{num_tried:>4} of {len(chosen)}, {left_s // 60}:{left_s % 60:02} left | "
                f"{verdict.mutant.name:<{width}} | {caught_by.rstrip()}",
                flush=True,
            )
            num_missed += not verdict.is_caught
    print(f"{len(chosen) - num_missed} of {len(chosen)} caught")
    return num_missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="try the mutants whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the names and their files, and try nothing")
    options = parser.parse_args()
    chosen = [mutant for mutant in collect() if not options.only or any(part in mutant.name for part in options.only)]
    if not chosen:
        raise SystemExit(f"no mutant has {' or '.join(options.only or ())} in its name")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.path}: {mutant.name}")
        return 0
    try:
        check_tests_pass(chosen)
        return 1 if try_all(chosen) else 0
    except KeyboardInterrupt:
        print("broken off", file=sys.stderr)
        os._exit(130)  # the tests under way are not waited for


if __name__ == "__main__":
    sys.exit(main())
