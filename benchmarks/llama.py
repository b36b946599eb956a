"""What a pass of SmolLM2-135M costs by its number of rows, and how fast it reads and writes, for both kernels."""

import importlib.util
import statistics
import time
from collections.abc import Iterator

from models import Chunk, Model
from models.kernel_choice import build_llama
from models.loading import GgufFile, SafetensorsFolder, open_model

NAME = "smollm2-135m"
ROWS = (1, 2, 3, 5, 9, 11)
CONTEXT = 300
BLOCK_TOKENS = 16
TABLE = list(range(40))


def main() -> None:
    try:
        file = open_model(NAME)
    except (FileNotFoundError, ImportError) as error:
        print(f"skipped: {error}")
        return
    print(f"{NAME}, {CONTEXT} positions cached; ratios are to one row, medians of passes timed in turn\n")
    print("| kernel | " + " | ".join(f"{rows} rows" for rows in ROWS) + " | prefill tokens/s | decode tokens/s |")
    print("|---|" + "---|" * (len(ROWS) + 2))
    for name, model, rounds in kernels(file):
        costs_s, prefill_s = measure(model, rounds)
        cells = [f"{costs_s[rows] * 1e3:.1f} ms, {costs_s[rows] / costs_s[1]:.2f}" for rows in ROWS]
        print(f"| {name} | {' | '.join(cells)} | {CONTEXT / prefill_s:.0f} | {1 / costs_s[1]:.0f} |")


def kernels(file: GgufFile | SafetensorsFolder) -> Iterator[tuple[str, Model, int]]:
    config = file.config()
    weights = file.weights(config)
    if importlib.util.find_spec("numba"):
        yield "numba", build_llama(config, weights, "numba"), 40
        yield "numba, 1 thread", build_llama(config, weights, "numba", num_threads=1), 20
    yield "numpy", build_llama(config, weights, "numpy"), 3


def measure(model: Model, rounds: int) -> tuple[dict[int, float], float]:
    """Seconds of a pass by its number of rows, and of a prefill of CONTEXT ids."""
    model.bind(len(TABLE), BLOCK_TOKENS)
    ids = [(i * 7919) % model.vocab_size for i in range(CONTEXT + max(ROWS))]
    prefill_s = min(seconds(model, ids[:CONTEXT], 0, 1) for _ in range(2))
    times: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(rounds):
        for rows in ROWS:
            times[rows].append(seconds(model, ids[CONTEXT : CONTEXT + rows], CONTEXT, rows))
    return {rows: statistics.median(each) for rows, each in times.items()}, prefill_s


def seconds(model: Model, ids: list[int], start: int, num_rows: int) -> float:
    began = time.perf_counter()
    model.forward([Chunk(ids=ids, start=start, table=TABLE, num_rows=num_rows)])
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
