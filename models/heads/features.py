"""Texts with the hidden states that a target has of them: what heads are fitted to."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.heads.parts import unit
from models.protocol import Chunk, Ints, TappedModel
from models.weights import F32

_BLOCK_TOKENS = 16
_PASS_TOKENS = 1024
_EPS = 1e-5


class Text(NamedTuple):
    """Ids, of which the first `num_prompt` were not the target's to choose; a text held out is for judging only."""

    ids: Sequence[int]
    num_prompt: int
    is_held_out: bool
    kind: str = ""


class Features:
    """Texts laid end to end; of every token the hidden states after some layers, each divided by its size.

    The last of `taps` is all layers: the input of the final norm.
    """

    def __init__(self, taps: Sequence[int], dim: int, most_tokens: int) -> None:
        self.taps = tuple(taps)
        self.ids = np.empty(most_tokens, np.intp)
        self._states = np.empty((most_tokens, len(taps), dim), np.float16)
        self.num_tokens = 0
        self.texts: list[tuple[int, Text]] = []
        """Of each its first row, in order."""

    @property
    def is_full(self) -> bool:
        """There is no room for another token."""
        return self.num_tokens == len(self.ids)

    def add(self, text: Text, states: F32) -> None:
        """Add a text and its states `[n, taps, dim]`, as much of both as there is room for."""
        start = self.num_tokens
        end = min(len(self.ids), start + len(text.ids))
        self.ids[start:end] = text.ids[: end - start]
        self._states[start:end] = unit(states[: end - start], _EPS)
        self.texts.append((start, text))
        self.num_tokens = end

    def states(self, rows: Ints) -> F32:
        """Give the states of rows, float32 `[n, taps, dim]`."""
        return self._states[rows].astype(np.float32)

    def rows(self, *, held_out: bool, depth: int = 1, kind: str | None = None) -> Ints:
        """List the rows of tokens with `depth` tokens before them in their text, for fitting or for judging.

        Of texts held out only answers are judged; of the others every token teaches.
        """
        parts = [
            np.arange(start + max(depth, text.num_prompt - 1 if held_out else 0), end)
            for start, end, text in self._spans()
            if text.is_held_out is held_out and kind in (None, text.kind)
        ]
        return np.concatenate([np.empty(0, np.intp), *parts])

    def _spans(self) -> Iterator[tuple[int, int, Text]]:
        """Give of each text its first row and the one after its last."""
        starts = [start for start, _ in self.texts]
        for start, end, (_, text) in zip(starts, [*starts[1:], self.num_tokens], self.texts, strict=False):
            yield start, end, text

    def counts(self, vocab_size: int) -> NDArray[np.float64]:
        """Count the tokens of the texts that are not held out, answers twice over."""
        counts = np.zeros(vocab_size)
        for start, end, text in self._spans():
            if not text.is_held_out:
                np.add.at(counts, self.ids[start:end], 1)
                np.add.at(counts, self.ids[min(end, start + text.num_prompt) : end], 1)
        return counts


def collect(
    model: TappedModel, texts: Iterable[Text], into: Features, watch: Callable[[int], None] = lambda _num: None
) -> None:
    """Run the target over texts, several in a pass, until there is no room for more; it keeps `into.taps`.

    A text is cut where the model's length ends.
    """
    longest = min(model.max_model_len, _PASS_TOKENS * 4)
    for group in _grouped(texts, longest):
        needed = [-(-len(text.ids) // _BLOCK_TOKENS) for text in group]
        model.bind(sum(needed), _BLOCK_TOKENS)
        firsts = np.cumsum([0, *needed])[:-1].tolist()
        tables = [list(range(first, first + num)) for first, num in zip(firsts, needed, strict=True)]
        model.forward([Chunk(text.ids, 0, table, 0) for text, table in zip(group, tables, strict=True)])
        for text, table in zip(group, tables, strict=True):
            slots = np.arange(len(text.ids))
            into.add(text, model.features(np.array(table)[slots // _BLOCK_TOKENS], slots % _BLOCK_TOKENS))
            watch(into.num_tokens)
            if into.is_full:
                return


def _grouped(texts: Iterable[Text], longest: int) -> Iterator[list[Text]]:
    group: list[Text] = []
    num_tokens = 0
    for text in texts:
        cut = text._replace(ids=list(text.ids[:longest]))
        if group and num_tokens + len(cut.ids) > _PASS_TOKENS:
            yield group
            group, num_tokens = [], 0
        group.append(cut)
        num_tokens += len(cut.ids)
    if group:
        yield group
