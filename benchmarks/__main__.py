"""Run every benchmark, or those named: `python -m benchmarks [spec kvpool engine limits server llama real plans]`."""

import importlib
import sys

SUITES = ("spec", "kvpool", "engine", "limits", "server", "llama", "real", "plans")


def main() -> None:
    """Measure one suite after the other; never two at a time."""
    for name in sys.argv[1:] or SUITES:
        print(f"\n## {name}\n")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
