"""Drafts of text on recorded edits and tool calls: tokens a round, and how much of what was drafted was accepted.

`python -m benchmarks.replay FOLDER`, a folder with `humanevalpack_python.jsonl` and `quixbugs_python.jsonl`
(HumanEvalFix and QuixBugs as bigcode-project/octopack has them), `bfcl_v4_multiple.jsonl`, `bfcl_v4_parallel.jsonl` and
their `_answers.jsonl` (the Berkeley Function-Calling Leaderboard). With a second argument it writes them as a log for
`outrider plan` instead, and with them Vicuna's answers to MT-bench: `mt_bench_question.jsonl` and
`medusa_vicuna_7b_mt_bench_answers.jsonl`, as FasterDecoding/Medusa has them. With `spec-bench` after it, what it writes
is these and tasks of `specbench_question.jsonl`, as hemingkx/Spec-Bench has it.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from spec import BestFirst, Drafter, SpecConfig
from spec.finished import FinishedRequests

WORD = re.compile(r"\w+|\s+|[^\w\s]")

CONFIGS = {
    "prompt lookup, k 10": SpecConfig("prompt_lookup", 10),
    "suffix, chain of 16": SpecConfig("suffix", 16),
    "suffix, best first, 16": SpecConfig("suffix", shape=BestFirst(16)),
    "suffix, best first, 32, factor 2": SpecConfig("suffix", shape=BestFirst(32), factor=2.0),
}


class Replayed(NamedTuple):
    """What a configuration did with a set of records."""

    num_rounds: int
    num_tokens: int
    num_drafted: int
    num_accepted: int

    def __str__(self) -> str:
        return f"{self.num_tokens / self.num_rounds:.2f} ({self.num_accepted / self.num_drafted:.0%})"


def records_of(folder: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give every set: its name, and its prompts with the completion that stands for what the target emits."""

    def lines(name):
        return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]

    yield (
        "HumanEvalFix",
        [
            (
                f"{r['declaration']}{r['buggy_solution']}{r['test']}Fix bugs in {r['entry_point']}.",
                r["declaration"] + r["canonical_solution"],
            )
            for r in lines("humanevalpack_python")
        ],
    )
    yield (
        "QuixBugs",
        [
            (f"{r['buggy_program']}{r['tests']}Fix bugs in {r['name']}.", r["solution"])
            for r in lines("quixbugs_python")
        ],
    )
    for kind in ("multiple", "parallel"):
        answers = {r["id"]: r["ground_truth"] for r in lines(f"bfcl_v4_{kind}_answers")}
        yield (
            f"BFCL {kind}",
            [
                (
                    json.dumps(r["function"]) + r["question"][0][0]["content"],
                    json.dumps([_first_allowed(call) for call in answers[r["id"]]]),
                )
                for r in lines(f"bfcl_v4_{kind}")
            ],
        )


def _first_allowed(call):
    ((name, arguments),) = call.items()
    return {"name": name, "arguments": {key: values[0] for key, values in arguments.items() if values[0] != ""}}


def replay(records, cfg: SpecConfig, finished: FinishedRequests | None = None) -> Replayed:
    """Draft and accept greedily through one record after the other; those before count as finished, where asked."""
    ids: dict[str, int] = {}
    num_rounds = num_tokens = num_drafted = num_accepted = 0
    for texts in records:
        prompt, completion = ([ids.setdefault(word, len(ids)) for word in WORD.findall(text)] for text in texts)
        drafter = Drafter(cfg, prompt, finished)
        at = 0
        while at < len(completion):
            tree = drafter.draft(cfg.k, len(completion) - at - 1).tree
            below = {
                (parent, token): i for i, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True))
            }
            node, depth = -1, 0
            while (node, completion[min(at + depth, len(completion) - 1)]) in below:
                node = below[node, completion[at + depth]]
                depth += 1
            drafter.append(completion[at : at + depth + 1])
            at += depth + 1
            num_rounds += 1
            num_drafted += len(tree)
            num_accepted += depth
        num_tokens += len(completion)
        if finished is not None:
            finished.add(None, completion)
            finished.take_in(len(completion))
    return Replayed(num_rounds, num_tokens, num_drafted, num_accepted)


def conversations_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Give Vicuna's answers to the questions of MT-bench, each with the conversation before it."""
    read = [
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("mt_bench_question", "medusa_vicuna_7b_mt_bench_answers")
    ]
    questions = {row["question_id"]: row["turns"] for row in read[0]}
    for row in read[1]:
        said = ""
        for question, answer in zip(questions[row["question_id"]], row["choices"][0]["turns"], strict=True):
            said += f"USER: {question} ASSISTANT: "
            yield said, answer
            said += f"{answer} "


def spec_bench_of(folder: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give the tasks of Spec-Bench for which there is an answer: Vicuna's own to MT-bench, else the references."""
    yield "multi-turn conversation", list(conversations_of(folder))
    rows = [json.loads(line) for line in (folder / "specbench_question.jsonl").read_text().splitlines()]
    for task in ("translation", "summarization", "math_reasoning"):
        yield (
            task,
            [(f"USER: {r['turns'][0]} ASSISTANT: ", r["reference"][0]) for r in rows if r["category"] == task],
        )


def write_log(sets: Iterable[tuple[str, list[tuple[str, str]]]], path: Path) -> None:
    """Write records as one log, as `outrider plan` takes it."""
    with path.open("w") as file:
        for category, records in sets:
            for prompt, completion in records:
                row = {"category": category, "prompt": prompt, "completion": completion}
                file.write(json.dumps(row) + "\n")


def main() -> None:
    """Replay and print, or write a log."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        example = [*records_of(folder), ("MT-bench, Vicuna", list(conversations_of(folder)))]
        write_log(spec_bench_of(folder) if sys.argv[3:] == ["spec-bench"] else example, Path(sys.argv[2]))
        return
    sets = list(records_of(folder))
    print("| |", " | ".join(name for name, _ in sets), "|")
    print("|---" * (len(sets) + 1) + "|")
    for name, cfg in CONFIGS.items():
        is_suffix = name.startswith("suffix")
        for sources in ("own", "own and finished") if is_suffix else ("own",):
            stores = (FinishedRequests() if sources == "own and finished" else None for _ in sets)
            cells = [str(replay(records, cfg, store)) for (_, records), store in zip(sets, stores, strict=True)]
            print(f"| {name}{', ' + sources if is_suffix else ''} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
