"""Feeding the same sequences in many ways and comparing the bits of every row."""

import numpy as np

from models.protocol import Chunk
from models.runner_target import RunnerTarget
from spec import SamplingParams, SpecConfig, generate


def rows_of_fresh_runs(model, ids, block_tokens):
    """One row per position, each id fed alone after the ones before it."""
    table = list(range(-(-len(ids) // block_tokens)))
    return np.concatenate(
        [model.forward([Chunk(ids=[token], start=i, table=table, num_rows=1)]) for i, token in enumerate(ids)]
    )


def assert_rows_do_not_depend_on_company(model, seed, *, max_length, block_tokens, num_sequences=4, num_trials=3):
    """Feed several sequences in random chunks and batches; every row must have the bits of its fresh run."""
    generator = np.random.default_rng(seed)
    sequences = [
        generator.integers(0, model.vocab_size, generator.integers(max_length // 2, max_length + 1)).tolist()
        for _ in range(num_sequences)
    ]
    expected = [rows_of_fresh_runs(model, ids, block_tokens) for ids in sequences]
    per_sequence = -(-max_length // block_tokens)
    for _ in range(num_trials):
        blocks = generator.permutation(num_sequences * per_sequence).reshape(num_sequences, per_sequence).tolist()
        cached = [0] * num_sequences
        while any(cached[i] < len(ids) for i, ids in enumerate(sequences)):
            chunks, checks = [], []
            for i in generator.permutation(num_sequences).tolist():
                left = len(sequences[i]) - cached[i]
                if not left or generator.random() < 0.2:
                    continue
                num_ids = min(left, int(generator.choice([1, 1, 2, 3, 5, 11, 40])))
                num_rows = int(generator.integers(0, num_ids + 1))
                end = cached[i] + num_ids
                chunks.append(
                    Chunk(ids=sequences[i][cached[i] : end], start=cached[i], table=blocks[i], num_rows=num_rows)
                )
                checks.append(expected[i][end - num_rows : end])
                cached[i] = end
            if chunks:
                np.testing.assert_array_equal(model.forward(chunks), np.concatenate(checks))


def assert_runner_target_scores_every_fed_position(model, prompt, *, max_new, k=4, block_tokens=4):
    """One row per fed id, each with the bits of a fresh run of its prefix; lookup gives plain greedy's tokens."""
    num_blocks = -(-(len(prompt) + max_new + k) // block_tokens)

    def run(draft):
        target = RunnerTarget(model, num_blocks, block_tokens)
        return generate(target, SpecConfig.parse(draft, k), prompt, SamplingParams(temperature=0.0), 0, max_new, ())

    plain, spec = run("none"), run("prompt_lookup")
    assert spec.tokens == plain.tokens
    assert spec.logprobs == plain.logprobs
    assert spec.stats.accepted > 0
    assert spec.stats.target_calls < plain.stats.target_calls == max_new

    fed = prompt + plain.tokens
    fresh = []
    for end in range(len(fed) - 9, len(fed)):
        fresh.append(RunnerTarget(model, num_blocks, block_tokens).extend(fed[: end + 1])[-1])
    target = RunnerTarget(model, num_blocks, block_tokens)
    rows = target.extend(fed[:-7])
    assert rows.shape == (len(fed) - 7, model.vocab_size)
    np.testing.assert_array_equal(rows[-2:], fresh[:2])
    target.extend([0] * k)
    target.truncate(len(fed) - 7)  # a rejected draft
    np.testing.assert_array_equal(target.extend(fed[-7:-5]), fresh[2:4])
    np.testing.assert_array_equal(target.extend(fed[-5:]), fresh[4:])
