"""A run as a sequence diagram in text, from the first submission to what went wrong."""

from collections.abc import Iterable

from actors.messages import (
    Admit,
    Admitted,
    Cancel,
    Feed,
    ForgetAll,
    Message,
    Outcome,
    Propose,
    Proposed,
    Reserve,
    Reserved,
    Resume,
    Settle,
    Settled,
    Step,
    StepDone,
    Stop,
    Submit,
)
from sims.explore.run import run
from sims.explore.scenario import Scenario

LINES = ("clients", "scheduler", "blocks", "runner")
_WIDTH = 12
_COLUMN = {"client": 0} | {name: i for i, name in enumerate(LINES)}
_MOST_ROWS = 200


def diagram(scenario: Scenario, choices: Iterable[int] | None = None) -> str:
    """Run a scenario, in the order of `choices` where they are given, and draw it.

    A row for each message, from who sends it to whom it goes, and what it says:

    ms       clients     scheduler   blocks      runner
      0.000  o---------->|           |           |           Submit 0: 4 tokens, at most 3 more
    """
    rows: list[str] = []

    def log(time_s: float, sender: str, receiver: str, message: Message) -> None:
        rows.append(f"{time_s * 1e3:9.3f}  {_arrow(_COLUMN[sender], _COLUMN[receiver])}  {describe(message)}")

    def note(time_s: float, who: str, what: str) -> None:
        rows.append(f"{time_s * 1e3:9.3f}  {_mark(_COLUMN[who])}  {what}")

    outcome = run(scenario, log, note, choices)
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        rows[half:-half] = [f"{'':9}  ... {len(rows) - 2 * half} rows ..."]
    head = f"{'ms':9}  " + "".join(name.ljust(_WIDTH) for name in LINES)
    verdict = "every law held" if outcome.violation is None else f"VIOLATION of {outcome.violation}"
    return "\n".join([head.rstrip(), *rows, verdict])


def describe(message: Message) -> str:
    """Say in a line what a message says."""
    match message:
        case Submit(seq, request):
            return f"Submit {seq}: {len(request.prompt)} tokens, at most {request.max_tokens} more, as {request.id}"
        case Cancel(seq) | Resume(seq):
            return f"{type(message).__name__} {seq}"
        case Admit(candidates):
            return "Admit " + ", ".join(f"{c.seq} with {len(c.tokens)} tokens" for c in candidates)
        case Admitted(cached, preempted, available):
            gone = "".join(f"; release {seq}" for seq in preempted)
            return f"Admitted: {', '.join(map(str, cached))} tokens cached{gone}; {available} blocks available"
        case Reserve(asks):
            return "Reserve " + ", ".join(f"{num_tokens} tokens for {seq}" for seq, num_tokens in asks)
        case Reserved(tables, available):
            return f"Reserved: blocks {', '.join(map(str, tables))}; {available} available"
        case Propose(number, asks):
            return f"Propose {number}: " + ", ".join(f"{len(ask.ids)} tokens of {ask.seq}" for ask in asks)
        case Proposed(number, trees):
            return f"Proposed {number}: " + ", ".join(f"{tree.seq} {tree.tokens}" for tree in trees)
        case Step(number, feeds, ahead):
            drafts = f"; draft ahead for {', '.join(str(ask.seq) for ask in ahead)}" if ahead else ""
            return f"Step {number}: " + ", ".join(map(_fed, feeds)) + drafts
        case StepDone(number, outcomes, _, trees):
            drafts = "".join(f"; for {tree.seq} {tree.tokens} ahead" for tree in trees)
            return f"StepDone {number}: " + ", ".join(map(_given, outcomes)) + drafts
        case Settle(commits, releases):
            kept = [f"keep {len(tokens)} of {seq}" for seq, tokens, _ in commits]
            return "Settle: " + ", ".join(kept + [f"release {seq}" for seq in releases])
        case Settled(num_trimmed, num_released, available):
            return f"Settled: {num_trimmed} blocks trimmed, {num_released} released; {available} available"
        case ForgetAll() | Stop():
            return type(message).__name__
        case _:
            return str(message)


def _fed(feed: Feed) -> str:
    draft = "a chunk" if feed.round is None else f"draft {feed.round.draft}"
    end = feed.start + len(feed.ids)
    return f"{feed.seq} at {feed.start}..{end - 1} in {feed.table} ({draft})"


def _given(outcome: Outcome) -> str:
    return f"{outcome.seq} gives {outcome.tokens}" + ("" if outcome.error is None else f", {outcome.error}")


def _arrow(start: int, end: int) -> str:
    """Draw the lifelines with an arrow from one to another."""
    row = list(_lifelines())
    left, right = sorted((start * _WIDTH, end * _WIDTH))
    row[left : right + 1] = "-" * (right - left + 1)
    row[start * _WIDTH] = "o"
    row[end * _WIDTH + (-1 if start < end else 1)] = ">" if start < end else "<"
    row[end * _WIDTH] = "|"
    return "".join(row)


def _mark(at: int) -> str:
    row = list(_lifelines())
    row[at * _WIDTH] = "*"
    return "".join(row)


def _lifelines() -> str:
    return "".join("|".ljust(_WIDTH) for _ in LINES)
