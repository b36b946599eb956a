"""Run every case, or those whose name has all of the words given."""

import sys
import time

from tests.real_texts.cases import cases, run


def main() -> None:
    """Say of each what it found; the exit status is 1 if a text was another."""
    chosen = [case for case in cases() if all(word in case.name.split() for word in sys.argv[1:])]
    num_wrong, start_s = 0, time.perf_counter()
    for case in chosen:
        try:
            print(f"{case.name}: {run(case)}", flush=True)
        except AssertionError as error:
            num_wrong += 1
            print(f"WRONG {error}", flush=True)
    print(f"{len(chosen)} ways to draft in {time.perf_counter() - start_s:.0f} s: {num_wrong} gave another text")
    sys.exit(bool(num_wrong) or not chosen)


if __name__ == "__main__":
    main()
