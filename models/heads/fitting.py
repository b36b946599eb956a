"""Affine maps fitted to a target's states: in closed form, and then on to the laws that follow from them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.weights import F32

F64 = NDArray[np.float64]

_BETAS = 0.9, 0.99
_TINY = 1e-8


class Batch(NamedTuple):
    """Inputs `[n, num_inputs]` and the states that they are to give `[n, dim]`."""

    inputs: F32
    states: F32


class NormalEquations:
    """Sums over batches from which a ridge regression with a bias follows, for any strength of the ridge."""

    def __init__(self, num_inputs: int, dim: int) -> None:
        self._inner = np.zeros((num_inputs + 1, num_inputs + 1))
        self._outer = np.zeros((num_inputs + 1, dim))
        self._num_rows = 0

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        inputs = with_one(batch.inputs)
        self._inner += inputs.T @ inputs
        self._outer += inputs.T @ batch.states
        self._num_rows += len(inputs)

    def solve(self, ridge: float) -> F32:
        """Give the map `[num_inputs + 1, dim]`, its last row the bias; `ridge` is added to the square of each input."""
        inner = self._inner.copy()
        inner[np.diag_indices(len(inner) - 1)] += ridge
        inner[-1, -1] += 1e-6 * (1 + self._num_rows)
        solved: F32 = np.linalg.solve(inner, self._outer).astype(np.float32)
        return solved


def with_one(inputs: F32) -> F32:
    """Append the input that is always one: the bias is its weight."""
    return np.concatenate([inputs, np.ones((len(inputs), 1), np.float32)], axis=1)


class Refinement:
    """Goes on from a map by gradient steps (Adam) on the cross-entropy between two laws over the draft vocabulary.

    The one is the target's, of its state, the other follows from the state that the map gives; `output` `[words, dim]`
    makes logits of both.
    """

    def __init__(self, weights: F32, output: F32) -> None:
        self.weights = weights.copy()
        self._output = output
        self._first = np.zeros_like(weights)
        self._second = np.zeros_like(weights)
        self._num_steps = 0

    def step(self, batch: Batch, rate: float) -> float:
        """Take a step of at most about `rate` in every weight; the cross-entropy before it, in nats."""
        inputs = with_one(batch.inputs)
        logits: F32 = np.matmul(inputs @ self.weights, self._output.T)
        wanted = softmax(batch.states @ self._output.T)
        loss = cross_entropy(logits, wanted)
        law = softmax(logits)
        law -= wanted
        gradient = inputs.T @ (law @ self._output) / np.float32(len(inputs))
        self._num_steps += 1
        for moment, beta, value in zip((self._first, self._second), _BETAS, (gradient, gradient**2), strict=True):
            np.add(moment * np.float32(beta), np.float32(1 - beta) * value, out=moment)
        first, second = (1 - beta**self._num_steps for beta in _BETAS)
        self.weights -= np.float32(rate / first) * self._first / (np.sqrt(self._second / np.float32(second)) + _TINY)
        return loss


def softmax(logits: F32) -> F32:
    """Give the law of each row."""
    law: F32 = logits - logits.max(axis=1, keepdims=True)
    np.exp(law, out=law)
    law /= law.sum(axis=1, keepdims=True)
    return law


def cross_entropy(logits: F32, wanted: F32) -> float:
    """Give the mean over rows, in nats."""
    top = logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(axis=1, keepdims=True)) + top
    return float(((log_sum - logits) * wanted).sum() / len(logits))


class Accuracy(NamedTuple):
    """Of drafted tokens: shares that were the target's choice, or among the three that the heads thought best."""

    top_1: float
    top_3: float
    num_tokens: int


def accuracy(logits: F32, choices: Sequence[int] | NDArray[np.intp], ids: NDArray[np.intp]) -> Accuracy:
    """Hold logits over draft words, `ids` in the target's vocabulary, against the tokens that were chosen."""
    best = np.argsort(-logits, axis=1, kind="stable")[:, :3]
    hits = ids[best] == np.asarray(choices)[:, None]
    return Accuracy(float(hits[:, 0].mean()), float(hits.any(axis=1).mean()), len(hits))


def mean_accuracy(parts: Iterable[Accuracy]) -> Accuracy:
    """Join the accuracies of several batches."""
    parts = list(parts)
    total = max(1, sum(part.num_tokens for part in parts))
    top_1, top_3 = (sum(part[i] * part.num_tokens for part in parts) / total for i in range(2))
    return Accuracy(top_1, top_3, total)
