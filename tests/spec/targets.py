"""Targets for the tests, and the way from the reference's plain values to what `spec` takes."""

import math

import numpy as np

from spec import SamplingParams, SpecConfig
from tests import reference as ref


def params_of(fields):
    """`SamplingParams` from a dict of its fields as JSON has them: the keys of the bias are strings."""
    bias = {int(token): value for token, value in fields["logit_bias"].items()}
    return SamplingParams(**{**fields, "logit_bias": bias, "stop_token_ids": tuple(fields["stop_token_ids"])})


def config_of(draft, k):
    """`SpecConfig`, where k = 0 means that nothing is drafted."""
    return SpecConfig.parse(draft, k) if k else SpecConfig.parse("none", 1)


def row_of(values):
    """A float32 row; null is -inf."""
    return np.array([-math.inf if value is None else value for value in values], np.float32)


def rows_of(rows):
    return np.stack([row_of(row) for row in rows])


class ReferenceTarget:
    """A `Target` whose row after a context is `row(ctx)`, and which tells what was done to its cache."""

    def __init__(self, row, max_model_len=None):
        self.row = row
        self.ctx = []
        self.num_calls = 0
        self.longest = 0
        if max_model_len is not None:
            self.max_model_len = max_model_len

    def cached(self):
        return len(self.ctx)

    def extend(self, ids):
        self.num_calls += 1
        rows = []
        for token in ids:
            self.ctx.append(int(token))
            rows.append(self.row(self.ctx))
        self.longest = max(self.longest, len(self.ctx))
        return np.array(rows, np.float32)

    def truncate(self, length):
        assert 0 <= length <= len(self.ctx)
        del self.ctx[length:]


class ReferenceTreeTarget(ReferenceTarget):
    """The same, fed trees: what a slot holds is a token and the slot that it follows."""

    def __init__(self, row, max_model_len=None):
        super().__init__(row, max_model_len)
        self.parents = []
        self.moves = []

    def context_of(self, slot):
        tokens = []
        while slot >= 0:
            tokens.append(self.ctx[slot])
            slot = self.parents[slot]
        return tokens[::-1]

    def extend(self, ids, parents=None):
        self.num_calls += 1
        first, rows = len(self.ctx), []
        for i, token in enumerate(ids):
            parent = i - 1 if parents is None else parents[i]
            self.ctx.append(int(token))
            self.parents.append(first + parent)
            context = self.context_of(first + i)
            rows.append(self.row(context))
            self.longest = max(self.longest, len(context))
        return np.array(rows, np.float32)

    def move_slots(self, moves):
        self.moves += moves
        for source, destination in moves:
            self.ctx[destination] = self.ctx[source]
            self.parents[destination] = destination - 1

    def truncate(self, length):
        super().truncate(length)
        del self.parents[length:]
        assert self.parents == list(range(-1, length - 1)), "what is left is one text"


def fake_target(seed=1, vocab=8, order=2, sharp=12.0, max_model_len=None, make=ReferenceTarget):
    """The target whose rows come from its last `order` tokens; rows are kept once they are computed."""
    spec = {"seed": seed, "vocab": vocab, "order": order, "sharp": sharp}
    known = {}

    def row(ctx):
        tail = tuple(ctx[-order:])
        if tail not in known:
            known[tail] = ref.fake_row(spec, list(tail))
        return known[tail]

    return make(row, max_model_len)


def scripted_target(prompt, text, vocab=32):
    """A target whose greedy continuation of `prompt` is `text`, and then 0 for ever."""

    def row(ctx):
        position = len(ctx) - len(prompt)
        follows = ctx == prompt + text[:position] and position < len(text)
        best = text[position] if follows else 0
        return [4.0 if token == best else 0.25 * (token % 7) for token in range(vocab)]

    return ReferenceTarget(row)
