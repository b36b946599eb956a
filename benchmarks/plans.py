"""The planner: how fast it replays, whether its memory grows, and whether what it predicts is then measured.

`python -m benchmarks plans` runs all; what needs the model pulled is left out where it is not.
"""

import asyncio
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from actors import Engine, EngineConfig, Request
from benchmarks.real import GREEDY, NAME, NUM_TOKENS, PROMPTS
from models.calibration import ROWS, measure_pass
from models.loading import load, locate
from models.proposers import load_speculative
from models.protocol import Proposer
from plans.adaptive import AdaptiveReplay
from plans.gain import Given, ShareOfPass, plain_s, speedups
from plans.hardware import HARDWARE, MODELS, ModelShape
from plans.logs import Log, Recording
from plans.measured import Measured, Point
from plans.methods import methods
from plans.model_replay import ModelMethod, ModelReplay
from plans.plan import Asked, make_plan
from plans.replay import Replay
from plans.roofline import Roofline
from plans.tokens import Words
from scheduler import NO_DRAFTS, PassCost
from sims.rounds import measure_layers, measure_rounds
from spec import SpecConfig

SIZES = list(range(1, 17))
HEADS_SIZES = (1, 2, 4)
NUM_TURNS = 5


def main() -> None:
    """Measure and print."""
    rates()
    memory()
    published()
    if locate(NAME) is not None:
        measured()
        measured_heads()


def rates() -> None:
    """Output tokens a second of one core, by context: lookup with 16 sizes at once, and the others with 4."""
    rng = np.random.default_rng(0)
    known = methods()
    print("| method, sizes | context | tokens/s | tokens/s and size |")
    print("|---|---|---|---|")
    for context in (500, 5_000, 50_000, 200_000, 1_000_000):
        prompt = rng.zipf(1.3, context) % 32_000
        answer = np.concatenate([prompt[context // 3 :][:300], rng.zipf(1.3, 300) % 32_000])
        recording = Recording(np.concatenate([prompt, answer]), context, None)
        for name, sizes in (
            ("lookup", SIZES),
            ("lookup", [10]),
            ("suffix", [4, 8, 12, 16]),
            ("ngram", [4, 8]),
        ):
            replay = Replay([known[name]], sizes)
            replay.rounds(recording)
            start, num = time.process_time(), 0
            while time.process_time() - start < 0.5:
                replay.rounds(recording)
                num += len(answer)
            per_s = num / (time.process_time() - start)
            print(f"| {name}, {len(sizes)} | {context:,} | {per_s:,.0f} | {per_s * len(sizes):,.0f} |")


def memory() -> None:
    """Peak memory after logs of rising length."""
    asked = Asked([methods()["lookup"]], SIZES, [], Roofline(HARDWARE["h100"], MODELS["llama-3.1-8b"]), [1], 1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for num in (2_000, 2_000, 8_000, 16_000):
            path = Path(folder, "log.jsonl")
            with path.open("w") as file:
                for _ in range(num):
                    ids = rng.integers(0, 500, 300).tolist()
                    file.write(json.dumps({"prompt": ids[:200], "completion": ids[200:]}) + "\n")
            make_plan(Log([path], None, Words()), asked)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{num:,} requests, {path.stat().st_size / 1e6:.1f} MB: peak {peak:.0f} MB")


def published() -> None:
    """Tables that others have published, predicted: EAGLE's chain of 3 in SGLang, and Spec-Bench's prompt lookup."""
    cost = Roofline(HARDWARE["h100"], MODELS["llama-3.1-8b"])
    #   a layer of the target's sizes, the map that joins a feature and an embedding, and the target's output matrix
    head = ModelShape(name="eagle", params_b=0.218 + 0.034 + 0.525, layers=1, kv_bytes=2 * 8 * 128 * 2)
    layers = Roofline(HARDWARE["h100"], head)
    table = {2: 1.40, 16: 1.02, 24: 0.93, 48: 0.88}
    fitted_on = (2, 24)
    rates, context = (0.80, 0.74, 0.68), 500.0

    #   speed = tokens a round x plain / (pass + 3 steps + batch x time of a sequence): two unknowns, two rows
    def rest_s(batch: int) -> float:
        pass_s = float(cost.pass_s(np.array([4.0 * batch]), batch, context)[0])
        return Given("", rates).tokens_per_round(3) * plain_s(cost, batch, context) / table[batch] - pass_s

    (a, b), (rest_a, rest_b) = fitted_on, map(rest_s, fitted_on)
    per_sequence_s = (rest_b - rest_a) / (b - a)
    step_s = (rest_a - a * per_sequence_s) / 3
    print(f"\nEAGLE, chain of 3: a step {step_s * 1e3:.2f} ms, a sequence {per_sequence_s * 1e6:.0f} us of a round")
    print("| batch | published | step 0.08 | error | the head's weights | error | fitted | error | |")
    print("|---|---|---|---|---|---|---|---|---|")
    for batch, value in table.items():
        plain = plain_s(cost, batch, context)
        alone = Given("", rates, 0.08).speedup(3, cost, batch, context)
        pass_s = float(cost.pass_s(np.array([4.0 * batch]), batch, context)[0])
        draft_s = 3 * float(layers.pass_s(np.array([float(batch)]), batch, context)[0])
        own = Given("", rates).tokens_per_round(3) * plain / (pass_s + draft_s)
        fitted = Given("", rates).tokens_per_round(3) * plain / (pass_s + 3 * step_s + batch * per_sequence_s)
        kind = "fitted on" if batch in fitted_on else "judged by"
        print(
            f"| {batch} | {value:.2f} | {alone:.2f} | {alone / value - 1:+.0%} | {own:.2f} | {own / value - 1:+.0%} | "
            f"{fitted:.2f} | {fitted / value - 1:+.0%} | {kind} |"
        )
    alone = 1 / plain_s(cost, 1, context)
    print(f"plain, one sequence: {alone:.1f} tokens/s; published 158.3: {alone / 158.34 - 1:+.0%}")
    cost = Roofline(HARDWARE["a100"], MODELS["vicuna-7b"])
    rows = float(cost.pass_s(np.array([11.0]), 1, 700.0)[0]) / plain_s(cost, 1, 700.0)
    speeds = (1.60, 1.06, 2.66, 1.19, 1.62, 1.86)
    mean = statistics.fmean(speeds)
    print(f"\nprompt lookup, A100, 7B: 1.75 tokens a round / {rows:.3f} plain passes = {1.75 / rows:.2f}")
    print(f"published, mean of the tasks: {mean:.2f}; error {1.75 / rows / mean - 1:+.0%}")


def measured() -> None:
    """SmolLM2 in the engine: speed-ups predicted from the plain run's text and the cost of rounds, and measured."""
    loaded = load(NAME)
    model, known = loaded.model, methods()["lookup"]
    of_engine = PassCost(ROWS, tuple(measure_pass(model, time.perf_counter)))
    ways: dict[str, tuple[SpecConfig, bool]] = {"plain": (NO_DRAFTS, False)}
    ways |= {f"k {k}": (known.config(k), False) for k in (4, 7, 10)} | {"adaptive": (known.config(10), True)}
    print("\n| prompt | drafts | predicted | measured | error |")
    print("|---|---|---|---|---|")
    errors = []
    for name, text in PROMPTS.items():
        prompt = loaded.tokenizer.encode(text, parse_special=True)
        context = len(prompt) + NUM_TOKENS // 2
        rows = (1, 2, 3, 5, 8, 9, 11)
        taken: dict[str, list[float]] = {way: [] for way in ways}
        costs: list[list[float]] = []
        said: list[int] = []
        for _ in range(NUM_TURNS):  # costs and runs in turn: a machine that drifts drifts for both
            costs.append(asyncio.run(measure_rounds(model, time.perf_counter, context=context, rows=rows)))
            for way, (spec, is_adaptive) in ways.items():
                seconds_taken, ids = asyncio.run(_run(model, prompt, spec, of_engine if is_adaptive else None))
                taken[way].append(seconds_taken)
                said = said or ids
                assert ids == said, "drafts change no text"
        seconds = np.median(costs, axis=0).tolist()
        cost = Measured([Point(n, 1, context, s) for n, s in zip(rows, seconds, strict=True)], "here")
        #   the first token comes with the prompt's pass
        recording = Recording(np.array(prompt + said), len(prompt) + 1, None)
        for way, (spec, is_adaptive) in ways.items():
            if way == "plain":
                continue
            if is_adaptive:
                rounds = AdaptiveReplay([(1, known)], spec.k, cost, context).rounds(recording)
            else:
                rounds = Replay([known], [spec.k]).rounds(recording)[:1]
            tokens = np.array(float(recording.num_completion))
            draft_s = np.array([known.draft_us * 1e-6])
            found = float(speedups(rounds.astype(float), tokens, draft_s, cost, 1, context)[0])
            real = statistics.median(a / b for a, b in zip(taken["plain"], taken[way], strict=True))
            errors.append(found / real - 1)
            print(f"| {name} | {way} | {found:.2f} | {real:.2f} | {errors[-1]:+.1%} |")
        plain_ms = statistics.median(taken["plain"]) / (NUM_TOKENS - 1) * 1e3
        print(f"| {name} | a plain round, ms | {plain_s(cost, 1, context) * 1e3:.2f} | {plain_ms:.2f} | |")
    print(f"largest error {max(map(abs, errors)):.1%}")


def measured_heads() -> None:
    """Predict the heads that come along, from the plain run's text and the cost of their layers, and measure them."""
    chain = SpecConfig("linear", max(HEADS_SIZES), rule="match")
    loaded = load_speculative(NAME, chain)
    model, proposer = loaded.model, loaded.proposer
    print("\n| prompt | heads, k | predicted | measured | error |")
    print("|---|---|---|---|---|")
    errors = []
    for name, text in PROMPTS.items():
        prompt = loaded.tokenizer.encode(text, parse_special=True)
        context = len(prompt) + NUM_TOKENS // 2
        rows = [1, *(k + 1 for k in HEADS_SIZES)]
        taken: dict[int, list[float]] = {k: [] for k in (0, *HEADS_SIZES)}
        costs: list[list[float]] = []
        layers: list[tuple[float, float]] = []
        said: list[int] = []
        for _ in range(NUM_TURNS):
            costs.append(asyncio.run(measure_rounds(model, time.perf_counter, context=context, rows=rows)))
            layers.append(asyncio.run(measure_layers(model, proposer, chain, time.perf_counter, context=context)))
            for k, of_k in taken.items():
                spec = SpecConfig("linear", k, rule="match") if k else NO_DRAFTS
                seconds_taken, ids = asyncio.run(_run(model, prompt, spec, None, proposer if k else None))
                of_k.append(seconds_taken)
                said = said or ids
                assert ids == said, "drafts change no text"
        seconds, (first_s, later_s) = (np.median(each, axis=0).tolist() for each in (costs, layers))
        cost = Measured([Point(n, 1, context, s) for n, s in zip(rows, seconds, strict=True)], "here")
        recording = Recording(np.array(prompt + said), len(prompt) + 1, None)
        method = ModelMethod("linear", "", chain.draft, "", proposer, chain.k, *[ShareOfPass(0, cost)] * 2)
        rounds = ModelReplay(model, [method], HEADS_SIZES).rounds(recording)
        draft_s = np.array([first_s + (k - 1) * later_s for k in HEADS_SIZES])
        tokens = np.array(float(recording.num_completion))
        found = speedups(rounds.astype(float), tokens, draft_s, cost, 1, context).tolist()
        for k, predicted in zip(HEADS_SIZES, found, strict=True):
            real = statistics.median(a / b for a, b in zip(taken[0], taken[k], strict=True))
            errors.append(predicted / real - 1)
            print(f"| {name} | {k} | {predicted:.2f} | {real:.2f} | {errors[-1]:+.1%} |")
        print(f"| {name} | layers, ms | {first_s * 1e3:.2f}, {later_s * 1e3:.2f} | | |")
    print(f"largest error {max(map(abs, errors)):.1%}")


async def _run(
    model, prompt, spec: SpecConfig, cost: PassCost | None, proposer: Proposer | None = None
) -> tuple[float, list[int]]:
    config = EngineConfig(
        num_blocks=64, block_tokens=16, speculative=spec, max_model_len=1024, adaptive=cost is not None
    )
    async with Engine(model, config, proposer=proposer, pass_cost=cost) as engine:
        request = Request(prompt=prompt, params=GREEDY, max_tokens=NUM_TOKENS, logprobs=False, verify="match")
        ids, first = [], 0.0
        async for token in engine.submit(request):
            first = first or time.perf_counter()
            ids.append(token.id)
        return time.perf_counter() - first, ids


if __name__ == "__main__":
    main()
