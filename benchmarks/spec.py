"""What drafting and verification cost, each beside what it cannot be faster than or what others do."""

import numpy as np

from benchmarks.harness import Figure, compare, show
from spec import (
    BestFirst,
    Drafter,
    DraftTree,
    Pcg32,
    Round,
    SamplingParams,
    SpecConfig,
    verify_batch,
    verify_draft,
    verify_tree,
)

GREEDY = SamplingParams(temperature=0)
SAMPLED = SamplingParams(temperature=0.8)
M = 4


def windows_lookup(ctx, k, max_ngram=3, min_ngram=1):
    """Scan the whole context with numpy windows, the way prompt lookup is usually written."""
    for n in range(max_ngram, min_ngram - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(ctx, n)
        starts = np.flatnonzero((windows[: len(ctx) - n] == ctx[-n:]).all(axis=1))
        if len(starts):
            start = int(starts[-1]) + n
            return ctx[start : start + k].tolist()
    return []


def drafting() -> list[Figure]:
    """Time a round of drafting (propose 4, append 4) at two lengths of context, and against scanning."""
    rng = np.random.default_rng(1)
    figures = []

    def round_of(cfg, text, fresh):
        drafter, at = Drafter(cfg, text), iter(fresh)
        draft = drafter.propose if cfg.shape is None else lambda k: drafter.draft(k, k)

        def one_round():
            draft(cfg.k)
            drafter.append(next(at))

        return one_round

    #   fresh tokens, and phrases that come again and again: what a short context has of them, a long one has oftener
    phrases = [rng.integers(0, 5000, rng.integers(3, 40)).tolist() for _ in range(40)]

    def tokens_of(phrased, num_tokens):
        if not phrased:
            return rng.integers(0, 5000, num_tokens).tolist()
        text = []
        while len(text) < num_tokens:
            text += phrases[rng.integers(len(phrases))][rng.integers(3) :]
        return text[:num_tokens]

    for name, cfg in (
        ("prompt_lookup", SpecConfig.parse("prompt_lookup", M)),
        ("prompt_lookup, max_ngram 10", SpecConfig("prompt_lookup", M, max_ngram=10)),
        ("ngram", SpecConfig.parse("ngram", M)),
        ("suffix", SpecConfig.parse("suffix", 16)),
        ("suffix, best first", SpecConfig("suffix", shape=BestFirst(16))),
    ):
        for kind, phrased in (("random tokens", False), ("phrases", True)):
            text = tokens_of(phrased, 131_072)
            fresh = tokens_of(phrased, 10_000 * M)
            rounds = [fresh[i : i + M] for i in range(0, len(fresh), M)]
            figures.append(
                compare(
                    f"{name}, {kind}: a round at 131,072 tokens against 1,024",
                    round_of(cfg, text, rounds),
                    round_of(cfg, text[:1024], rounds[:5_000]),
                    goal="<= 1.5",
                    number=50,
                    repeat=31,
                )
            )
    text = rng.integers(0, 5000, 32_768)
    ctx = text.astype(np.int32)
    figures.append(
        compare(
            "prompt_lookup: a numpy scan of 32,768 tokens against a round",
            lambda: windows_lookup(ctx, M),
            round_of(SpecConfig.parse("prompt_lookup", M), text.tolist(), rounds),
            goal=">= 50",
            number=20,
        )
    )
    return figures


def verifying() -> list[Figure]:
    """Time one sequence's verification against the least that numpy could do."""
    figures = []
    for vocab in (32_000, 128_256):
        rows = np.random.default_rng(2).normal(0, 4, (M + 1, vocab)).astype(np.float32)
        best = rows.argmax(axis=1).tolist()
        rng = Pcg32(1)
        figures.append(
            compare(
                f"greedy, V {vocab:,}, all {M} accepted, against argmax",
                lambda rows=rows, best=best, rng=rng: verify_draft(rows, best[:M], None, GREEDY, [1], [], rng),
                lambda rows=rows: rows.argmax(axis=1),
                goal="<= 2",
                number=50,
            )
        )
        figures.append(
            compare(
                f"greedy, V {vocab:,}, with log-probabilities read, against argmax",
                lambda rows=rows, best=best, rng=rng: verify_draft(rows, best[:M], None, GREEDY, [1], [], rng).logprobs,
                lambda rows=rows: rows.argmax(axis=1),
                goal="-",
                number=10,
            )
        )
        for name, draft, num_looked_at in (
            ("rejected at once", rows.argmin(axis=1).tolist()[:M], 1),
            ("all accepted", best[:M], M + 1),
        ):
            peaked = rows.copy()
            if num_looked_at > 1:
                peaked[np.arange(M + 1), best] += 60
            figures.append(
                compare(
                    f"sampled, V {vocab:,}, {name}, against a float64 softmax of the rows looked at",
                    lambda rows=peaked, draft=draft, rng=rng: verify_draft(rows, draft, None, SAMPLED, [1], [], rng),
                    lambda rows=peaked, n=num_looked_at: softmax(rows[:n]),
                    goal="<= 3",
                    number=10,
                )
            )
    return figures


def softmax(rows):
    x = rows.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=1, keepdims=True)
    return x


def verifying_trees() -> list[Figure]:
    """Time a tree of 16 nodes, four layers of four under the first of each, against the least numpy could do."""
    figures = []
    vocab, width, depth = 32_000, 4, 4
    dice = np.random.default_rng(5)
    parents = [-1] * width + [width * (layer - 1) for layer in range(1, depth) for _ in range(width)]
    tokens = dice.permutation(vocab)[: width * depth].tolist()
    tree, rng = DraftTree(tokens, parents), Pcg32(1)
    rows = dice.normal(0, 4, (len(tree) + 1, vocab)).astype(np.float32)
    law = softmax(dice.normal(0, 4, (1, vocab)))[0]
    law = 0.999 * law + 0.001 / vocab
    laws = {"top": None, "iid": [law] * len(tree), "distinct": [law] * len(tree)}
    for name, num_accepted in (("rejected at once", 0), ("all layers accepted", depth)):
        judged = rows.copy()
        path = [-1, *(width * layer for layer in range(num_accepted))]
        for node in path[:-1]:
            judged[node + 1, tokens[node + width if node >= 0 else 0]] += 60
        figures.append(
            compare(
                f"tree of 16, greedy, V 32,000, {name}, against argmax of its rows",
                lambda rows=judged: verify_tree(rows, tree, None, GREEDY, [1], [], rng),
                lambda rows=judged: rows.argmax(axis=1),
                goal="<= 2",
                number=50,
            )
        )
        on_path = np.array(path) + 1
        for rule, children in (
            ("match", "top"),
            ("resample", "top"),
            ("resample", "iid"),
            ("resample", "distinct"),
            ("traversal", "iid"),
        ):
            figures.append(
                compare(
                    f"tree of 16, {rule}, {children}, {name}, against a softmax of the {len(path)} rows on the path",
                    lambda rows=judged, rule=rule, children=children: verify_tree(
                        rows, tree, laws[children], SAMPLED, [1], [], rng, rule=rule, children=children
                    ),
                    lambda rows=judged[on_path]: softmax(rows),
                    goal="-" if rule == "traversal" else "<= 3",
                    number=5,
                )
            )
    return figures


def batching() -> list[Figure]:
    """Time 64 sequences verified one by one against all in one call."""
    figures = []
    num_sequences, vocab = 64, 512
    rng = np.random.default_rng(3)
    for name, params, boost in (
        ("greedy", GREEDY, 0),
        ("sampled, few accepted", SAMPLED, 0),
        ("sampled, most accepted", SAMPLED, 12),
    ):
        rows = rng.normal(0, 2, (num_sequences * (M + 1), vocab)).astype(np.float32)
        drafts = rng.integers(0, vocab, (num_sequences, M))
        rows.reshape(num_sequences, M + 1, vocab)[np.arange(num_sequences)[:, None], np.arange(M), drafts] += boost
        rounds = [Round(draft.tolist(), params, [1, 2], [3], Pcg32(i)) for i, draft in enumerate(drafts)]

        def loop(rows=rows, rounds=rounds):
            return [
                verify_draft(own, r.draft, None, r.params, r.prompt, r.output, r.rng).logprobs
                for own, r in zip(rows.reshape(-1, M + 1, rows.shape[1]), rounds, strict=True)
            ]

        def batch(rows=rows, rounds=rounds):
            return [v.logprobs for v in verify_batch(rows, rounds)]

        figures.append(compare(f"{name}: a loop over 64 sequences, V 512, against the batch", loop, batch, goal=">= 3"))
    return figures


def main() -> None:
    """Measure and print."""
    show(drafting() + verifying() + verifying_trees() + batching())


if __name__ == "__main__":
    main()
