"""Random passes of chains and token trees, and what each of their rows must be."""

from typing import NamedTuple

import numpy as np

from models.protocol import Chunk


class Sequence(NamedTuple):
    """One sequence of a pass: its cached context, what is fed on it, and the context that each fed id ends."""

    context: list[int]
    chunk: Chunk
    paths: list[list[int]]


def random_parents(generator, num_ids):
    """Any tree over the ids: the first hangs on the context, and each other on any before it or on the context."""
    return [int(generator.integers(-1, i)) for i in range(num_ids)]


def tree_of_draft(generator, num_pending, num_nodes):
    """A chain of pending ids, and a tree on its last; it forks at once, late or never."""
    stem = num_pending + int(generator.integers(0, num_nodes + 1))
    parents = list(range(-1, stem - 1))
    return parents + [int(generator.integers(num_pending - 1, i)) for i in range(stem, num_pending + num_nodes)]


def random_pass(generator, vocab, block_tokens, *, num_sequences, max_context=40, max_fed=20):
    """Sequences over tables of their own, taken in a random order from one pool; some feed chains, some trees."""
    sizes = [
        (int(generator.integers(0, max_context + 1)), int(generator.integers(1, max_fed + 1)))
        for _ in range(num_sequences)
    ]
    num_blocks = sum(-(-(cached + fed) // block_tokens) for cached, fed in sizes)
    free = generator.permutation(num_blocks).tolist()
    sequences = []
    for cached, fed in sizes:
        context = generator.integers(0, vocab, cached).tolist()
        ids = generator.integers(0, vocab, fed).tolist()
        table = [free.pop() for _ in range(-(-(cached + fed) // block_tokens))]
        kind = generator.choice(["chain", "any", "draft", "draft"])
        parents = None
        if kind == "any":
            parents = random_parents(generator, fed)
        elif kind == "draft":
            num_pending = int(generator.integers(1, fed + 1))
            parents = tree_of_draft(generator, num_pending, fed - num_pending)
        chunk = Chunk(ids, cached, table, int(generator.integers(0, fed + 1)), parents)
        sequences.append(Sequence(context, chunk, paths_of(context, chunk)))
    return num_blocks, sequences


def paths_of(context, chunk):
    """The whole context that each fed id ends, itself included."""
    paths = []
    for i, token in enumerate(chunk.ids):
        parent = i - 1 if chunk.parents is None else chunk.parents[i]
        paths.append([*(paths[parent] if parent >= 0 else context), token])
    return paths


def write_contexts(model, sequences, block_tokens):
    """Feed the contexts as chains, in one pass."""
    chunks = [
        Chunk(context, 0, chunk.table[: -(-len(context) // block_tokens)], 0)
        for context, chunk, _ in sequences
        if context
    ]
    model.forward(chunks)


def rows_of_chain(model, tokens, block_tokens):
    """The last row after a chain of tokens, fed alone to fresh memory."""
    num_blocks = -(-len(tokens) // block_tokens)
    model.bind(num_blocks, block_tokens)
    return model.forward([Chunk(tokens, 0, list(range(num_blocks)), 1)])[0]


def assert_trees_are_their_paths(model, seed, block_tokens, *, num_sequences=3):
    """Each row of a pass of trees has the bits of the row that its root path gives as a chain alone."""
    generator = np.random.default_rng(seed)
    num_blocks, sequences = random_pass(generator, model.vocab_size, block_tokens, num_sequences=num_sequences)
    model.bind(num_blocks, block_tokens)
    write_contexts(model, sequences, block_tokens)
    rows = model.forward([chunk for _, chunk, _ in sequences])
    wanted = [path for _, chunk, paths in sequences for path in paths[len(paths) - chunk.num_rows :]]
    assert len(rows) == len(wanted)
    expected = [rows_of_chain(model, path, block_tokens) for path in wanted]
    np.testing.assert_array_equal(rows, np.array(expected, np.float32).reshape(rows.shape))


def greedy_draft(rows_after, context, generator, num_nodes, vocab):
    """A tree in which some nodes are what greedy decoding would say, so that paths of every kind are accepted.

    `rows_after(tokens)` is the row after a chain. Siblings differ. Gives tokens, parents and the accepted path.
    """
    parents = random_parents(generator, num_nodes)
    tokens, path = [], []
    for node, parent in enumerate(parents):
        siblings = {tokens[i] for i in range(node) if parents[i] == parent}
        best = int(np.argmax(rows_after(context + [tokens[i] for i in path])))
        if parent == (path[-1] if path else -1) and best not in siblings and generator.random() < 0.7:
            tokens.append(best)
            path.append(node)
        else:
            tokens.append(next(t for t in generator.permutation(vocab).tolist() if t not in siblings and t != best))
    return tokens, parents, path
