"""What this machine can do at the most, and how much of it a pass and a round of the engine use."""

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np

from benchmarks.engine import measure
from benchmarks.llama import NAME
from cli.collector import calm_collector
from models import Chunk
from models.kernel_choice import build_llama
from models.loading import open_model
from models.weights import Matrix

MIB = 1 << 20


class _Part(msgspec.Struct, frozen=True, gc=False):
    seq: int
    ids: list[int]
    start: int
    table: list[int]


def best_of(code: Callable[[], object], repeat: int = 7) -> float:
    """Seconds of the fastest of some runs: a limit is what is reached undisturbed."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        code()
        times.append(time.perf_counter() - start)
    return min(times)


def bandwidth(num_threads: int, num_bytes: int) -> float:
    """Bytes a second that threads read, each a part of its own: the greatest of all ids is looked for."""
    parts = np.array_split(np.ones(num_bytes // 4, np.int32), num_threads)
    with ThreadPoolExecutor(num_threads) as pool:
        return num_bytes / best_of(lambda: list(pool.map(np.max, parts)))


def arithmetic(size: int = 1024) -> float:
    """Multiplications and additions a second in a float32 product of matrices, all threads of the BLAS."""
    a = np.ones((size, size), np.float32)
    return 2 * size**3 / best_of(lambda: a @ a)


def wake_ups(num_tasks: int = 1000, num_times: int = 50) -> float:
    """Seconds for a future that is set, the task that waits for it, and its next wait."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []

        async def reader() -> None:
            for _ in range(num_times + 1):
                future = loop.create_future()
                waiting.append(future)
                await future

        async with asyncio.TaskGroup() as group:
            for _ in range(num_tasks):
                group.create_task(reader())
            await asyncio.sleep(0)
            start = time.perf_counter()
            for _ in range(num_times):
                woken, waiting[:] = waiting[:], []
                for future in woken:
                    future.set_result(None)
                await asyncio.sleep(0)
            seconds = time.perf_counter() - start
            for future in waiting:
                future.set_result(None)
        return seconds / (num_tasks * num_times)

    return asyncio.run(run())


def _call(x: int) -> int:
    return x


def _calls(n: int) -> None:
    for i in range(n):
        _call(i)


def _inserts(n: int) -> None:
    table = {}
    for i in range(n):
        table[i] = i


def _structs(n: int) -> None:
    empty: list[int] = []
    for i in range(n):
        _Part(i, empty, i, empty)


def _loop(n: int) -> None:
    for _ in range(n):
        pass


def interpreter(num: int = 200_000) -> dict[str, float]:
    """Seconds of the steps that a round is made of, the loop around them taken off."""
    empty = best_of(lambda: _loop(num))
    steps = {"a function call": _calls, "an insert into a dict": _inserts, "a message's part of four fields": _structs}
    return {name: (best_of(lambda code=code: code(num)) - empty) / num for name, code in steps.items()}


def weights() -> tuple[int, int, float] | None:
    """Bytes that a pass of the real model reads, weights in its products, and seconds of a pass of one row."""
    try:
        file = open_model(NAME)
    except (FileNotFoundError, ImportError) as error:
        print(f"without the real model: {error}\n")
        return None
    config = file.config()
    loaded = file.weights(config)
    per_layer = [matrix for layer in loaded.layers for matrix in vars(layer).values() if isinstance(matrix, Matrix)]
    matrices = [*per_layer, loaded.output or loaded.embedding]
    num_inputs = {id(layer.down): config.ffn_dim for layer in loaded.layers}
    num_weights = sum(m.num_outputs * num_inputs.get(id(m), config.dim) for m in matrices)
    model = build_llama(config, loaded, "numba" if importlib.util.find_spec("numba") else "numpy")
    model.bind(4, 16)
    model.forward([Chunk(list(range(1, 33)), 0, [0, 1, 2], 1)])
    row_s = best_of(lambda: model.forward([Chunk([7], 32, [0, 1, 2], 1)]), 40)
    return sum(m.data.nbytes for m in matrices), num_weights, row_s


def show_passes() -> None:
    """Print what memory and arithmetic allow, and what a pass takes."""
    num_threads = min(2, os.cpu_count() or 1)
    model = weights()
    num_bytes, num_weights, row_s = model or (96 * MIB, 0, 0.0)
    print("| limit | measured | a pass of one row takes at least |")
    print("|---|---|---|")
    for threads in range(1, num_threads + 1):
        for what, size in (("memory", 1024 * MIB), ("as many bytes as the weights have", num_bytes)):
            rate = bandwidth(threads, size)
            print(f"| {what}, threads: {threads} | {rate / 1e9:.1f} GB/s | {num_bytes / rate * 1e3:.1f} ms |")
    peak = arithmetic()
    print(f"| float32 products | {peak / 1e9:.0f} GFLOP/s | {2 * num_weights / peak * 1e3:.1f} ms |")
    if model:
        print(f"\nA pass of one row reads {num_bytes / 1e6:.0f} MB of weights and takes {row_s * 1e3:.1f} ms.\n")


def show_rounds() -> None:
    """Print what steps of the interpreter cost, and how many of each a round of the engine takes the time of."""
    run = measure(1000, 3000)
    a_round = (run.seconds - run.pass_seconds) / run.num_rounds
    print(f"A round outside the target, 1,000 open: {a_round * 1e6:.1f} us.\n")
    print("| step | us | a round takes as long as |")
    print("|---|---|---|")
    for name, seconds in {"a task woken by a future": wake_ups(), **interpreter()}.items():
        print(f"| {name} | {seconds * 1e6:.3f} | {a_round / seconds:,.0f} |")


def main() -> None:
    """Print the limits of passes, then those of rounds; run it on a machine with nothing else to do."""
    calm_collector()
    show_passes()
    show_rounds()


if __name__ == "__main__":
    main()
