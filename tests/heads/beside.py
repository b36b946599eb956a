"""A tiny target and the proposer over heads beside it, fed as an engine feeds them."""

import importlib.util
from copy import copy

import numpy as np

from models import Ask, Chunk
from models.heads import build_heads
from models.kernel_choice import build_llama
from tests.heads.tiny import CONFIG, target_weights

BLOCK_TOKENS = 4
NUM_BLOCKS = 40
KERNELS = ["numpy", *(["numba"] if importlib.util.find_spec("numba") else [])]


class Beside:
    """Both models, bound to the same blocks."""

    def __init__(self, heads, kernel, model=None):
        self.weights = target_weights()
        self.proposer = build_heads(heads, CONFIG, self.weights, kernel)
        self.target = (model or build_llama(CONFIG, self.weights, kernel, 1)).with_taps(self.proposer.taps)
        self.bind()

    def bind(self):
        self.target.bind(NUM_BLOCKS, BLOCK_TOKENS)
        self.proposer.bind(NUM_BLOCKS, BLOCK_TOKENS, self.target)

    def prefill(self, ids, table, start=0):
        """Feed ids to both, as beside prefill."""
        chunk = Chunk(ids, start, table, 0)
        self.target.forward([chunk])
        self.proposer.feed([chunk])

    def begin(self, *contexts):
        """Start drafts after contexts `(ids, table)`, of which all but the last token are in both."""
        self.proposer.feed([Chunk(ids[-1:], len(ids) - 1, table, 1) for ids, table in contexts])

    def laws(self, *asks):
        """Laws of asks `(place, ids, table, tokens, parents, frontier)`."""
        laws = self.proposer.laws(
            [
                Ask(place, table[: -(-len(ids) // BLOCK_TOKENS)], len(ids), tokens, parents, frontier)
                for place, ids, table, tokens, parents, frontier in asks
            ]
        )
        words = self.proposer.vocabulary
        return laws if words is None else np.array([words.widen(law) for law in laws])

    def layers(self, place, ids, table, tree):
        """Laws after the context and then after each node of a tree, layer by layer; `tree` is tokens and parents."""
        tokens, parents = tree
        rows = {-1: self.laws((place, ids, table, [], [], [-1]))[0]}
        layer = [node for node, parent in enumerate(parents) if parent == -1]
        while layer:
            end = max(layer) + 1
            found = self.laws((place, ids, table, tokens[:end], parents[:end], layer))
            rows |= dict(zip(layer, found, strict=True))
            layer = [node for node, parent in enumerate(parents) if parent in layer]
        return np.array([rows[node] for node in range(-1, len(tokens))])

    def fresh(self, ids, tree, table=None):
        """The laws after a context that was fed in one piece, in memory of its own."""
        alone = copy(self)
        alone.target, alone.proposer = copy(self.target), copy(self.proposer)
        alone.bind()
        table = table or list(range(-(-len(ids) // BLOCK_TOKENS)))
        if len(ids) > 1:
            alone.prefill(ids[:-1], table)
        alone.begin((ids, table))
        return alone.layers(0, ids, table, tree)


def path_to(tree, node):
    tokens, parents = tree
    path = []
    while node >= 0:
        path.insert(0, tokens[node])
        node = parents[node]
    return path


def states_of(model, ids):
    """The target's states of a sequence after every number of layers, `[len(ids), layers + 1, dim]`."""
    every = model.with_taps(range(CONFIG.num_layers + 1))
    every.bind(NUM_BLOCKS, BLOCK_TOKENS)
    table = list(range(-(-len(ids) // BLOCK_TOKENS)))
    every.forward([Chunk(ids, 0, table, 0)])
    slots = np.arange(len(ids))
    return every.features(slots // BLOCK_TOKENS, slots % BLOCK_TOKENS)
