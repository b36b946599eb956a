"""The planner against llama-cpp-python: its own cost of rows in, its speed-ups with prompt lookup out.

Needs llama-cpp-python and the model pulled. Costs and runs take turns, and a figure is the median of its turns.
"""

import itertools
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding

from benchmarks.real import NAME, NUM_TOKENS, PROMPTS
from models.loading import locate
from plans.gain import speedups
from plans.logs import Recording
from plans.measured import Measured, Point
from plans.methods import methods
from plans.replay import Replay

KS = (4, 7, 10)
ROWS = (1, 2, 3, 5, 8, 11)
NUM_WARM, NUM_TIMED = 4, 6
NUM_TURNS = 5


class Wrong(LlamaDraftModel):
    """Drafts `k` tokens that are never what comes, and notes when each round begins."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.begun_s: list[float] = []
        self._lookup = LlamaPromptLookupDecoding(num_pred_tokens=k)

    def __call__(self, input_ids, /, **_):
        """Draft; the lookup that it stands for takes its time too."""
        self.begun_s.append(time.perf_counter())
        if not self.k:
            return np.array([], np.intc)
        self._lookup(input_ids)
        return np.arange(len(input_ids), len(input_ids) + self.k, dtype=np.intc) + 20_000


def generate(
    llm: Llama, ids: Sequence[int], drafts: LlamaDraftModel | None, num_tokens: int
) -> tuple[float, list[int]]:
    """Give the seconds of `num_tokens` greedy tokens after the first, and all of them."""
    llm.draft_model = drafts  # what it has of the prompt in its cache, it does not read again
    tokens = llm.generate(list(ids), temp=0.0, top_k=1, repeat_penalty=1.0)
    said = [next(tokens)]
    start_s = time.perf_counter()
    said += itertools.islice(tokens, num_tokens)
    return time.perf_counter() - start_s, said


def round_s(llm: Llama, ids: Sequence[int], num_rows: int) -> float:
    """Give the median seconds of rounds of so many rows, the first few left out."""
    drafts = Wrong(num_rows - 1)
    generate(llm, ids, drafts, NUM_WARM + NUM_TIMED + 1)
    between = [b - a for a, b in itertools.pairwise(drafts.begun_s)]
    return statistics.median(between[NUM_WARM:])


def main() -> None:
    """Measure and print; naming prompts ("JSON edit") leaves out the others."""
    llm = Llama(str(locate(NAME)), n_ctx=1024, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
    known = methods(max_ngram=2)["lookup-earliest"]  # what its prompt lookup does
    print("| prompt | drafts | predicted | measured | error |")
    print("|---|---|---|---|---|")
    errors = []
    for name in [name for name in PROMPTS if name in sys.argv] or PROMPTS:
        text = PROMPTS[name]
        ids = llm.tokenize(text.encode(), add_bos=False, special=True)
        _, said = generate(llm, ids, None, NUM_TOKENS - 1)
        #   costs at the context that the middle of the answer has
        middle = [*ids, *said[: NUM_TOKENS // 2]]
        costs: list[list[float]] = []
        taken: dict[int, list[float]] = {k: [] for k in (0, *KS)}
        texts: dict[int, list[int]] = {}
        for _ in range(NUM_TURNS):
            costs.append([round_s(llm, middle, num_rows) for num_rows in ROWS])
            for k, seconds_of in taken.items():
                drafts = LlamaPromptLookupDecoding(num_pred_tokens=k) if k else None
                seconds, texts[k] = generate(llm, ids, drafts, NUM_TOKENS - 1)
                seconds_of.append(seconds)
        cost = Measured(
            [Point(n, 1, len(middle), s) for n, s in zip(ROWS, np.median(costs, axis=0).tolist(), strict=True)], "it"
        )
        for k in KS:
            #   with other numbers of rows its sums round otherwise, and now and then another text comes of it
            recording = Recording(np.array([*ids, *texts[k]]), len(ids) + 1, None)
            rounds = Replay([known], [k]).rounds(recording)[:1]
            tokens = np.array(float(recording.num_completion))
            found = float(speedups(rounds.astype(float), tokens, np.zeros(1), cost, 1, len(middle))[0])
            real = statistics.median(a / b for a, b in zip(taken[0], taken[k], strict=True))
            errors.append(found / real - 1)
            note = "" if texts[k] == said else ", another text"
            print(f"| {name} | k {k}{note} | {found:.2f} | {real:.2f} | {errors[-1]:+.1%} |")
        plain_ms = statistics.median(taken[0]) / (NUM_TOKENS - 1) * 1e3
        told = ", ".join(f"{n}: {s * 1e3:.2f}" for n, s in zip(ROWS, np.median(costs, axis=0), strict=True))
        print(f"| {name} | a plain round, ms ({told}) | | {plain_ms:.2f} | |")
    print(f"largest error {max(map(abs, errors)):.1%}")


if __name__ == "__main__":
    main()
