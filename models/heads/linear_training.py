"""Linear heads from features: ridge regression in closed form, then gradient steps on the laws."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from models.heads.features import Features
from models.heads.fitting import Accuracy, Batch, NormalEquations, Refinement, accuracy, mean_accuracy, with_one
from models.heads.parts import unit
from models.heads.weights import Affine, LinearHeads, Words
from models.llama import rms_norm
from models.protocol import Ints
from models.weights import F32, LlamaConfig, LlamaWeights, Matrix

_ROWS = 512
_RIDGES = (3.0, 30.0, 300.0)
_RATE = 4e-4


class Stage(NamedTuple):
    """How far it is: what is being fitted, and its accuracy on text held out."""

    name: str
    held_out: Accuracy
    loss: float | None


class LinearTraining:
    """Fits both maps of `LinearHeads` to a target's features; `ids` are the draft vocabulary."""

    def __init__(
        self, features: Features, config: LlamaConfig, weights: LlamaWeights, ids: Ints, rng: np.random.Generator
    ) -> None:
        if features.taps[-1] != config.num_layers:
            raise ValueError(f"taps {features.taps}: the last must be {config.num_layers}, all layers")
        self._features = features
        self._config = config
        self._norm = weights.norm
        self._embedding = weights.embedding
        self._output = (weights.output or weights.embedding).rows(ids)
        self._whole = (weights.output or weights.embedding).dense()
        self._ids = ids
        self._rng = rng

    def run(self, num_epochs: int, watch: Callable[[Stage], None]) -> LinearHeads:
        """Fit the first map and then the later one, on what the first gives."""
        first = self._fit("first", self._first_inputs, 1, num_epochs, watch)

        def later_inputs(rows: Ints) -> F32:
            return self._joined(with_one(self._first_inputs(rows - 1)) @ first, rows)

        later = self._fit("later", later_inputs, 2, num_epochs, watch)
        return LinearHeads(self._features.taps, _affine(first), _affine(later), Words(self._ids, None))

    def _fit(
        self,
        name: str,
        inputs: Callable[[Ints], F32],
        depth: int,
        num_epochs: int,
        watch: Callable[[Stage], None],
    ) -> F32:
        rows = self._features.rows(held_out=False, depth=depth)
        judged = self._features.rows(held_out=True, depth=depth)
        if not len(rows) or not len(judged):
            raise ValueError("too little text: some is fitted to, and some is held out")

        def batches(chosen: Ints) -> Iterator[Batch]:
            for start in range(0, len(chosen), _ROWS):
                part = chosen[start : start + _ROWS]
                yield Batch(inputs(part), self._states(part))

        def judge(weights: F32) -> Accuracy:
            parts = []
            for batch in batches(judged):
                logits: F32 = np.matmul(with_one(batch.inputs) @ weights, self._output.T)
                parts.append(accuracy(logits, self._choices(batch.states), self._ids))
            return mean_accuracy(parts)

        equations = NormalEquations(inputs(rows[:1]).shape[1], self._config.dim)
        for batch in batches(rows):
            equations.add(batch)
        solved = [equations.solve(ridge) for ridge in _RIDGES]
        judgements = [judge(weights) for weights in solved]
        best = max(range(len(solved)), key=lambda i: judgements[i].top_1)
        watch(Stage(f"{name}, closed form", judgements[best], None))
        refinement = Refinement(solved[best], self._output)
        kept, kept_accuracy = solved[best], judgements[best]
        num_steps = num_epochs * -(-len(rows) // _ROWS)
        step = 0
        for epoch in range(num_epochs):
            losses = []
            for batch in batches(self._rng.permutation(rows)):
                losses.append(refinement.step(batch, _RATE * (1 - step / num_steps)))
                step += 1
            judged_now = judge(refinement.weights)
            watch(Stage(f"{name}, epoch {epoch + 1} of {num_epochs}", judged_now, float(np.mean(losses))))
            if judged_now.top_1 >= kept_accuracy.top_1:
                kept, kept_accuracy = refinement.weights.copy(), judged_now
        return kept

    def _first_inputs(self, rows: Ints) -> F32:
        """Join the states of the tokens before rows and the embeddings of the rows' own."""
        states = self._features.states(rows - 1)
        return np.concatenate([states.reshape(len(rows), -1), self._embedded(rows)], axis=1)

    def _joined(self, states: F32, rows: Ints) -> F32:
        return np.concatenate([unit(states, self._config.norm_eps), self._embedded(rows)], axis=1)

    def _embedded(self, rows: Ints) -> F32:
        return unit(self._embedding.rows(self._features.ids[rows].astype(np.int64)), self._config.norm_eps)

    def _states(self, rows: Ints) -> F32:
        """Normed final states, from which the next tokens follow."""
        return rms_norm(self._features.states(rows)[:, -1], self._norm, self._config.norm_eps)

    def _choices(self, states: F32) -> Ints:
        """Give the target's own best tokens, of its whole vocabulary."""
        return np.asarray((states @ self._whole.T).argmax(axis=1))


def _affine(weights: F32) -> Affine:
    return Affine(Matrix(np.ascontiguousarray(weights[:-1].T)), np.ascontiguousarray(weights[-1]))
