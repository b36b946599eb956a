"""What speculation gains on a real model: two edits and open prose, plain, fixed and adaptive; and in other programs.

Every run generates NUM_TOKENS greedy tokens, whatever they are. The ways take turns within each round of the
measurement, and a figure is the median of its rounds; log-probabilities are off, as others do not compute them.
"""

import asyncio
import importlib.util
import itertools
import statistics
import sys
import time
from collections.abc import Callable

from actors import Engine, EngineConfig, Request
from models.calibration import ROWS, measure_pass
from models.kernel_choice import build_llama
from models.loading import Tokenizer, locate, open_model
from models.protocol import Model
from scheduler import NO_DRAFTS, PassCost
from spec import SamplingParams, SpecConfig

NAME = "smollm2-135m"
NUM_TOKENS = 128
GREEDY = SamplingParams(temperature=0)

JSON_EDIT = """The configuration file:
```json
{
  "services": [
    {
      "name": "gateway",
      "host": "gw-1.internal",
      "port": 8080,
      "replicas": 3,
      "tags": ["edge", "public"]
    },
    {
      "name": "billing",
      "host": "bill-2.internal",
      "port": 8443,
      "replicas": 2,
      "tags": ["payments"]
    },
    {
      "name": "search",
      "host": "idx-7.internal",
      "port": 9200,
      "replicas": 5,
      "tags": ["index", "slow"]
    },
    {
      "name": "mailer",
      "host": "smtp-1.internal",
      "port": 2525,
      "replicas": 1,
      "tags": ["batch"]
    }
  ]
}
```

The same file with the port of "billing" set to 9443:
```json
"""

CODE_EDIT = """The module as it is:
```python
def invoice(lines, rate, discount):
    \"\"\"Give the total of an invoice.\"\"\"
    total = 0
    for line in lines:
        total = total + line.price * line.quantity
    if discount > 0:
        total = total - total * discount
    total = total + total * rate
    if total < 0:
        raise ValueError("the total is negative")
    return round(total, 2)


def refund(lines, rate, discount):
    \"\"\"Give what a customer gets back.\"\"\"
    total = 0
    for line in lines:
        total = total - line.price * line.quantity
    return round(total, 2)
```

The same module, with 0.2 as the default of rate:
```python
"""

PROSE = "Write a short story about a lighthouse keeper who finds a letter on the beach after a storm."

#   the edits are continued as they stand, the story is asked for in the chat template
PROMPTS = {
    "JSON edit": JSON_EDIT,
    "code edit": CODE_EDIT,
    "open prose": f"<|im_start|>user\n{PROSE}<|im_end|>\n<|im_start|>assistant\n",
}


class Ours:
    """One kernel, through the actors."""

    def __init__(self, model: Model, tokenizer: Tokenizer) -> None:
        self.model = model
        self.prompts = {name: tokenizer.encode(text, parse_special=True) for name, text in PROMPTS.items()}
        self.cost = PassCost(ROWS, tuple(measure_pass(model, time.perf_counter, repeat=15)))

    def generate(self, name: str, speculative: SpecConfig, *, is_adaptive: bool, num_at_once: int = 1) -> float:
        """Tokens a second, prefill apart, of `num_at_once` requests of this prompt."""
        return asyncio.run(self._generate(name, speculative, is_adaptive=is_adaptive, num_at_once=num_at_once))

    async def _generate(self, name: str, speculative: SpecConfig, *, is_adaptive: bool, num_at_once: int) -> float:
        config = EngineConfig(num_blocks=64 * num_at_once, block_tokens=16, speculative=speculative, max_model_len=1024)
        cost = self.cost if is_adaptive else None
        async with Engine(self.model, config, pass_cost=cost) as engine:
            firsts: list[float] = []

            async def client(i: int) -> None:
                prompt = self.prompts[name]
                #   other salts, so that no request reads another's prompt from the cache
                request = Request(
                    prompt=prompt, params=GREEDY, max_tokens=NUM_TOKENS, logprobs=False, cache_salt=str(i)
                )
                async for token in engine.submit(request):
                    if token.index == 0:
                        firsts.append(time.perf_counter())

            async with asyncio.TaskGroup() as clients:
                for i in range(num_at_once):
                    clients.create_task(client(i))
            taken_s = time.perf_counter() - max(firsts)
        return num_at_once * (NUM_TOKENS - 1) / taken_s


class LlamaCpp:
    """llama-cpp-python on the same file, with its prompt lookup."""

    def __init__(self) -> None:
        from llama_cpp import Llama  # noqa: PLC0415  (not everybody has it)

        self.llm = Llama(str(locate(NAME)), n_ctx=1024, n_threads=2, n_threads_batch=2, logits_all=True, verbose=False)

    def generate(self, name: str, num_drafted: int) -> float:
        """Tokens a second, prefill apart."""
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # noqa: PLC0415

        llm = self.llm
        llm.draft_model = LlamaPromptLookupDecoding(num_pred_tokens=num_drafted) if num_drafted else None
        llm.reset()
        ids = llm.tokenize(PROMPTS[name].encode(), add_bos=False, special=True)
        tokens = llm.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0)
        next(tokens)
        start_s = time.perf_counter()
        for _ in itertools.islice(tokens, NUM_TOKENS - 1):
            pass
        return (NUM_TOKENS - 1) / (time.perf_counter() - start_s)


class Transformers:
    """The transformers library on the same file, de-quantised, with its prompt lookup."""

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        import torch  # noqa: PLC0415  (not everybody has it)
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        path = locate(NAME)
        self.model = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=getattr(torch, dtype)
        )
        self.prompts = {
            name: torch.tensor([tokenizer.encode(text, parse_special=True)]) for name, text in PROMPTS.items()
        }

    def generate(self, name: str, num_drafted: int) -> float:
        """Tokens a second, prefill apart: a run of one token is taken off."""
        return (NUM_TOKENS - 1) / (self._seconds(name, num_drafted, NUM_TOKENS) - self._seconds(name, 0, 1))

    def _seconds(self, name: str, num_drafted: int, num_tokens: int) -> float:
        options = {"prompt_lookup_num_tokens": num_drafted} if num_drafted else {}
        ids = self.prompts[name]
        start_s = time.perf_counter()
        self.model.generate(
            ids,
            attention_mask=ids * 0 + 1,
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            pad_token_id=0,
            **options,
        )
        return time.perf_counter() - start_s


def main() -> None:
    """Measure and print. `--quick` is one round; naming a kernel ("numpy") leaves out all else."""
    try:
        file = open_model(NAME)
    except (FileNotFoundError, ImportError) as error:
        print(f"skipped: {error}")
        return
    num_rounds = 1 if "--quick" in sys.argv else 5
    config = file.config()
    weights = file.weights(config)
    named = [kernel for kernel in ("numba", "numpy") if kernel in sys.argv]
    kernels = named or (["numba"] if importlib.util.find_spec("numba") else ["numpy"])
    ways: dict[str, Callable[[str], float]] = {}
    for kernel in kernels:
        ours = Ours(build_llama(config, weights, kernel), file.tokenizer())
        costs = ", ".join(
            f"{rows}: {s / ours.cost.seconds[0]:.2f}" for rows, s in zip(ROWS, ours.cost.seconds, strict=True)
        )
        print(f"{kernel}: a row takes {ours.cost.seconds[0] * 1e3:.1f} ms; passes by rows, in rows: {costs}")
        ways |= _ways(kernel, ours)
    if importlib.util.find_spec("llama_cpp") and not named:
        llama_cpp = LlamaCpp()
        for k in (0, 4, 7, 10):
            ways[f"llama-cpp-python, {f'lookup {k}' if k else 'plain'}"] = lambda name, k=k: llama_cpp.generate(name, k)
    if importlib.util.find_spec("transformers") and not named:
        for dtype in ("float32", "bfloat16"):
            peer = Transformers(file.tokenizer(), dtype)
            for k in (0, 10):
                way = f"transformers {dtype}, {f'lookup {k}' if k else 'plain'}"
                ways[way] = lambda name, peer=peer, k=k: peer.generate(name, k)
    _table(ways, num_rounds)
    if kernels == ["numba"]:
        _throughput(ours)


def _ways(kernel: str, ours: Ours) -> dict[str, Callable[[str], float]]:
    def fixed(k: int) -> Callable[[str], float]:
        return lambda name: ours.generate(name, SpecConfig.parse("prompt_lookup", k), is_adaptive=False)

    return {
        f"{kernel}, plain": lambda name: ours.generate(name, NO_DRAFTS, is_adaptive=False),
        f"{kernel}, k 4": fixed(4),
        f"{kernel}, k 10": fixed(10),
        f"{kernel}, adaptive": lambda name: ours.generate(
            name, SpecConfig.parse("prompt_lookup", 10), is_adaptive=True
        ),
    }


def _table(ways: dict[str, Callable[[str], float]], num_rounds: int) -> None:
    print(f"\ntokens/s, and in brackets how often the plain way of the same program; median of {num_rounds} rounds\n")
    print("| way | " + " | ".join(PROMPTS) + " |")
    print("|---|" + "---|" * len(PROMPTS))
    speeds: dict[tuple[str, str], list[float]] = {(way, name): [] for way in ways for name in PROMPTS}
    for _ in range(num_rounds):
        for name in PROMPTS:
            for way, generate in ways.items():
                speeds[way, name].append(generate(name))
    for way in ways:
        plain = f"{way.split(',')[0]}, plain"
        cells = []
        for name in PROMPTS:
            ratio = statistics.median(a / b for a, b in zip(speeds[way, name], speeds[plain, name], strict=True))
            cells.append(f"{statistics.median(speeds[way, name]):.0f} ({ratio:.2f})")
        print(f"| {way} | {' | '.join(cells)} |")


def _throughput(ours: Ours) -> None:
    print("\ntokens/s of requests at once, numba, code edit\n\n| at once | plain | adaptive |\n|---|---|---|")
    for num_at_once in (1, 4, 16):
        plain = ours.generate("code edit", NO_DRAFTS, is_adaptive=False, num_at_once=num_at_once)
        adaptive = ours.generate(
            "code edit", SpecConfig.parse("prompt_lookup", 10), is_adaptive=True, num_at_once=num_at_once
        )
        print(f"| {num_at_once} | {plain:.0f} | {adaptive:.0f} |")


if __name__ == "__main__":
    main()
