"""A plan as one page that needs nothing else, in light and dark."""

import re
from collections.abc import Iterable
from functools import partial
from html import escape
from pathlib import Path
from typing import get_args

from plans.answers import Estimate, Plan, SizeAnswer, Verdict
from plans.methods import BEST
from sims import plots
from sims.page import both, document, legend, section, table
from sims.plots import Layer

_COLOURS = ("s1", "s2", "s3", "s4", "s5", "s6", "s7", "s9", "s10")
_LIMIT = "s8"
_FLAG = re.compile(r"--[\w-]+")  # is not broken at its hyphens
_ENGINES = {
    "outrider": "Outrider, runtime.toml",
    "vllm": "vLLM, vllm serve",
    "sglang": "SGLang, python -m sglang.launch_server",
    "llama.cpp": "llama.cpp, llama-server",
}


def page(plan: Plan) -> str:
    """Write the page: a function of the plan alone."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    sections = (_speed, _sizes, _requests, _categories, _under_load, _configuration, _rests_on)
    return document("Outrider plan", "\n".join([_head(plan), *(write(plan) for write in sections)]), style)


def _head(plan: Plan) -> str:
    log, to = plan.log, plan.recommendation
    kind = "good" if to.method is not None else "partial"
    said = "Recommended: " if to.method is not None else "Recommended: do not speculate. "
    reason = to.reason.removeprefix("do not: ")
    if to.method is not None:
        reason += f". Up to {to.size} tokens are guessed at a time; {to.method} is {plan.methods[to.method]}"
    chosen = _chosen(plan)
    costs = "none" if chosen.costs_from is None else f"{chosen.costs_from:,}"
    tiles = [
        (f"{log.num_requests:,}", "requests recorded"),
        (f"{log.num_tokens:,}", "tokens of answers"),
        (f"{log.mean_context:,.0f}", "tokens of context, on average"),
        (f"{chosen.tokens_per_round.value:.2f}", "tokens a pass with the best drafts"),
        (f"{chosen.speed[plan.batches.index(to.batch)].value:.2f}x", f"their speed at batch {to.batch}"),
        (costs, "sequences at a time from which they are slower than no drafts"),
    ]
    warnings = "".join(f'<div class="verdict partial">{escape(warning)}</div>' for warning in log.warnings)
    return (
        f'<h1>What speculation would gain</h1><p class="note">In speculative decoding a few tokens are guessed, which '
        "is a draft, and checked in one pass of the model; the text stays the same, and where guesses come true there "
        f"are fewer passes. How many would have come true is counted in the answers of {log.num_requests:,} recorded "
        f"requests. What a pass takes is computed or measured: {escape(plan.cost[0])}.</p>"
        f'<div class="verdict {kind}">{said}{escape(reason)}</div>{warnings}<div class="tiles">'
        + "".join(f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles)
        + "</div>"
    )


def _chosen(plan: Plan) -> SizeAnswer:
    """Give the best of a fixed size at the batch that is planned for."""
    at = plan.batches.index(plan.recommendation.batch)
    return max(plan.sizes, key=lambda answer: answer.speed[at].value)


def _of_method(plan: Plan, name: str) -> list[SizeAnswer]:
    return [answer for answer in plan.sizes if answer.method == name]


def _colour(plan: Plan, name: str) -> str:
    turn, at = divmod(list(plan.methods).index(name), len(_COLOURS))
    return f"{_COLOURS[at]} dotted" if turn else _COLOURS[at]  # more than there are colours


def _limits(plan: Plan) -> list[SizeAnswer]:
    return [limit for limit in plan.limits if limit.method == BEST or len(plan.limits) == 1]


def _speed(plan: Plan) -> str:
    layers = []
    for name in plan.methods:
        answers = _of_method(plan, name)
        best = [max(answer.speed[i].value for answer in answers) for i in range(len(plan.batches))]
        layers.append(Layer(name, _colour(plan, name), best))
    layers += [Layer("limit", _LIMIT, [speed.value for speed in limit.speed]) for limit in _limits(plan)]
    drawn = partial(
        plots.curves, "Speed against plain decoding by batch", [str(b) for b in plan.batches], layers, mark=1.0
    )
    rows = [
        (
            str(at.batch),
            f"{at.plain_ms:.3g} ms",
            f"{at.method} {at.size}",
            _told(at.speed),
            "" if at.adaptive is None else f"{at.adaptive_method}: {_told(at.adaptive)}",
            at.verdict,
        )
        for at in plan.best
    ]
    return section(
        "Speed by batch",
        "Speed of decoding over that without drafts (the dashed line at 1), by how many sequences run at a time: each "
        "method with the size that is best there. Guesses cost rows of a pass. While few sequences run, the pass "
        "waits for memory and rows are nearly free; when many run, rows take time of their own. The dashed curve is "
        "the limit of drafts of text: in each round the one that does best, and no guess that fails.",
        legend(layers)
        + both(drawn)
        + '<p class="axis">across: sequences in a batch; up: speed, where 1 is decoding without drafts</p>'
        + f"<h3>The methods</h3>{table(('', ''), plan.methods.items())}",
        "",
    ) + section(
        "The best at each batch",
        "In brackets: between which values the speed would lie for 95 of 100 logs of such requests. Adaptive: the "
        "best method that was replayed, its drafts cut in each round to what has been worth its cost so far.",
        _with_verdicts(("batch", "plain pass", "best", "speed", "adaptive", ""), rows),
    )


def _sizes(plan: Plan) -> str:
    replayed = [name for name in plan.methods if _of_method(plan, name)[0].drafted_by_position]
    sizes = [answer.size for answer in _of_method(plan, replayed[0])] if replayed else []
    layers = [
        Layer(name, _colour(plan, name), [answer.tokens_per_round.value for answer in _of_method(plan, name)])
        for name in replayed
    ]
    drawn = partial(plots.curves, "Tokens a round by size", [str(size) for size in sizes], layers, mark=1.0)
    chosen = _chosen(plan)
    notes = [
        f"{accepted:,} of {drafted:,} accepted"
        for drafted, accepted in zip(chosen.drafted_by_position, chosen.accepted_by_position, strict=True)
    ]
    shares = [
        accepted / drafted if drafted else 0.0
        for drafted, accepted in zip(chosen.drafted_by_position, chosen.accepted_by_position, strict=True)
    ]
    labels = [str(i) for i in range(1, len(shares) + 1)]
    columns = plots.columns("Accepted by position", labels, shares, notes) if shares else ""
    rows = [
        (
            f"{answer.method} {answer.size}",
            _told(answer.tokens_per_round),
            f"{answer.drafted_per_token:.2f}",
            f"{answer.accept_rate:.0%}",
            "none" if answer.costs_from is None else str(answer.costs_from),
        )
        for name in plan.methods
        for answer in [max(_of_method(plan, name), key=lambda a: a.tokens_per_round.value)]
    ]
    head = ("longest drafts", "tokens a round", "drafted per token", "accepted", "costs from batch")
    named = escape(f"{chosen.method} {chosen.size}")
    return section(
        "Tokens a round, by size",
        "A round is a pass with its draft. How many tokens it gives on average, by how many it may guess (the dashed "
        "line: without guesses).",
        legend(layers)
        + both(drawn)
        + '<p class="axis">across: most tokens guessed in a round; up: tokens that a round gives</p><div class="pair">'
        + (f"<div><h3>Accepted, by position in the draft: {named}</h3>{columns}</div>" if columns else "")
        + f'</div><div class="scroll">{table(head, rows)}</div>',
    )


def _requests(plan: Plan) -> str:
    chosen, edges = _chosen(plan), plan.speed_edges
    total = sum(chosen.requests_by_speed)
    if not total:
        return section("Gain per request", "Rates that are given say nothing of single requests.", "")
    pairs = list(zip(edges, edges[1:], chosen.requests_by_speed, strict=False))
    used = [i for i, (_, _, count) in enumerate(pairs) if count]
    first, last = min(used[0], len(pairs) // 3 - 1), max(used[-1], len(pairs) // 3 + 1)
    pairs = pairs[first : last + 1]
    labels = [f"{low:.2g}" for low, _, _ in pairs]
    notes = [f"{low:.2f}x to {high:.2f}x: {count:,} of {total:,}" for low, high, count in pairs]
    shares = [count / total for _, _, count in pairs]
    most = next(top for top in (0.2, 0.4, 1.0) if max(shares) <= top)
    drawn = plots.columns("Requests by speed", labels, shares, notes, most)
    slower = sum(count for _, high, count in pairs if high <= 1 + 1e-9) / total
    named = escape(f"{chosen.method} {chosen.size}")
    return section(
        "Gain per request",
        f"Shares of requests by their own speed with {named} at batch {plan.recommendation.batch}; below a column, the "
        f"least speed in it. {slower:.1%} of requests are slower than without drafts.",
        f'<div class="pair"><div>{drawn}</div></div>',
    )


def _categories(plan: Plan) -> str:
    if not plan.categories:
        return ""
    rows = [
        (
            of.category,
            f"{of.num_requests:,}",
            f"{of.num_tokens:,}",
            _told(of.tokens_per_round),
            _told(of.speed),
            of.verdict,
        )
        for of in plan.categories
    ]
    head = ("category", "requests", "tokens", "tokens a round", "speed", "")
    chosen = _chosen(plan)
    return section(
        "By category",
        f"The same, {escape(f'{chosen.method} {chosen.size}')} at batch {plan.recommendation.batch}, for each kind of "
        "request that the log names.",
        _with_verdicts(head, rows),
    )


def _under_load(plan: Plan) -> str:
    load = plan.load
    if load is None:
        return ""
    rows = []
    for answer in load.answers:
        rate = "the trace's times" if answer.rate is None else f"{answer.rate:g}"
        for name, of, speed in (("plain", answer.plain, ""), (load.choice, answer.drafted, f"{answer.speed:.2f}x")):
            times = (of.ttft_ms.p50, of.ttft_ms.p99, of.tpot_ms.p50, of.tpot_ms.p99, of.itl_ms.p99)
            told = ("" if ms is None else f"{ms:,.1f}" for ms in times)
            tail = (f"{of.tokens_per_s:,.0f}", f"{of.goodput_per_s:.2f}", f"{of.good_share:.0%}", speed)
            rows.append((rate, name, f"{of.mean_batch:.1f}", *told, *tail))
    labels = ["trace" if answer.rate is None else f"{answer.rate:g}" for answer in load.answers]
    layers = [
        Layer("plain", _LIMIT, [answer.plain.tpot_ms.p50 or 0.0 for answer in load.answers]),
        Layer(load.choice, _COLOURS[0], [answer.drafted.tpot_ms.p50 or 0.0 for answer in load.answers]),
    ]
    drawn = partial(plots.curves, "Time per output token by requests a second", labels, layers)
    head = (
        "requests a second", "", "batch", "TTFT p50", "p99", "TPOT p50", "p99", "ITL p99", "tokens/s", "goodput",
        "good", "speed",
    )  # fmt: skip
    choice = "The recommended choice" if load.is_recommended else "The best drafts of text"
    return section(
        "Under load",
        f"{choice} and plain decoding serve the same {load.answers[0].num_requests:,} requests of the log as they "
        "come, in an engine whose passes take what the cost says. Faster answers leave sooner, so that fewer run at a "
        "time: the batch follows from the load. Times are milliseconds: to the first token (TTFT), per token after it "
        "(TPOT), between two arrivals of tokens (ITL). Good are requests with a first token within "
        f"{load.slo_ttft_ms:g} ms and {load.slo_tpot_ms:g} ms a token after it; goodput is how many of them are "
        "answered a second. Speed is the mean time to a whole answer, plain over drafted. The curves: the median of "
        "the time per output token, in ms.",
        (legend(layers) + both(drawn) if len(load.answers) > 1 else "")
        + f'<div class="scroll">{table(head, rows)}</div>',
    )


def _configuration(plan: Plan) -> str:
    parts = "".join(
        f"<h3>{escape(_ENGINES[engine])}</h3><pre>{_unbroken(text)}</pre>"
        for engine, text in plan.recommendation.configuration.items()
    )
    return section(
        "What to configure",
        "Where an engine does not draft in the same way, what comes nearest; the comment says how it differs.",
        parts,
    )


def _unbroken(text: str) -> str:
    return _FLAG.sub(r"<span>\g<0></span>", escape(text.rstrip()))


def _rests_on(plan: Plan) -> str:
    log = plan.log
    unused = "; ".join(f"{count:,} {reason}" for reason, count in log.unused.items())
    facts = [
        ("requests, tokens of answers", f"{log.num_requests:,}, {log.num_tokens:,}"),
        ("tokens of prompts", f"{log.num_prompt_tokens:,}"),
        ("not used", unused or "none"),
        *([] if log.sample is None else [("models", log.sample.told())]),
        ("tokenizer", "none: the log has ids" if log.tokenizer is None else log.tokenizer),
    ]
    cost = "".join(f"<li>{escape(line)}</li>" for line in plan.cost)
    return section(
        "What it rests on",
        "Acceptance is exact for these answers. Intervals are of the choice of requests (a bootstrap); that the cost "
        "of passes is right they do not say.",
        table(("", ""), facts) + f"<details><summary>the cost of passes</summary><ul>{cost}</ul></details>",
    )


def _with_verdicts(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table whose last column says what gains."""
    written = table(head, rows)
    for verdict in get_args(Verdict):
        written = written.replace(f"<td>{verdict}</td></tr>", f'<td class="{verdict}">{verdict}</td></tr>')
    return f'<div class="scroll">{written}</div>'


def _told(of: Estimate) -> str:
    return f"{of.value:.2f}" if of.low is None else f"{of.value:.2f} ({of.low:.2f} to {of.high:.2f})"
