"""What the engine asks of a model: one pass over many sequences, against paged KV memory it keeps itself."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from spec import DraftVocabulary, Round, SamplingParams, SpecError

Ints = NDArray[np.intp]


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """What one sequence feeds in one pass: a chain of ids, or a chain and the token tree that grows from its end.

    Everything before `start` is already in the blocks of `table`, position `p` in slot `p`; slot `s` is number
    `s % block_tokens` of `table[s // block_tokens]`. Id `i` goes to slot `start + i`, and the table covers that too. In
    a chain its position is the same. In a tree it is `start` plus the number of its ancestors in `ids`, and it sees
    what is cached, these ancestors and itself, whatever lies in the slots between.

        cached                 fed ids
        0 ............ start ............ start + len(ids)
                              |--------|  the last `num_rows` of them get a row of logits
    """

    ids: Sequence[int]
    start: int
    table: Sequence[int]
    num_rows: int
    parents: Sequence[int] | None = None
    """A token tree: per id the index in `ids` of its parent, -1 for the end of what is cached. None is a chain."""


class SlotMove(NamedTuple):
    """What slot `source` of a sequence holds is to be in slot `destination`; slots are counted as in `Chunk`."""

    table: Sequence[int]
    source: int
    destination: int


def places(moves: Sequence[SlotMove], block_tokens: int) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Give the blocks and the slots in them of all sources, then of all destinations, each `[len(moves)]`."""

    def place(slots: list[int]) -> tuple[Ints, Ints]:
        blocks = [move.table[slot // block_tokens] for move, slot in zip(moves, slots, strict=True)]
        return np.array(blocks, np.intp), np.array(slots, np.intp) % block_tokens

    return place([move.source for move in moves]), place([move.destination for move in moves])


class Model(Protocol):
    """A target the runner can drive. It is called from one thread at a time."""

    @property
    def vocab_size(self) -> int:
        """Ids are in `[0, vocab_size)`."""

    @property
    def max_model_len(self) -> int:
        """Positions a sequence can have in the cache."""

    def bind(self, num_blocks: int, block_tokens: int) -> None:
        """Take fresh KV memory of `num_blocks` blocks; whatever was cached before is gone."""

    def forward(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Write the KV of every fed id; logits float32 `[sum(num_rows), vocab_size]`, chunk after chunk.

        Raises ValueError for a chunk it cannot feed (a parent after its child, an id out of the vocabulary).
        """

    def move_slots(self, moves: Sequence[SlotMove]) -> None:
        """Move KV within sequences before the next pass. All sources are read before any destination is written."""


@runtime_checkable
class TappedModel(Model, Protocol):
    """A model whose hidden states can be kept beside its KV, for heads that draft from them.

    A tap is a number of layers: 0 keeps the embedding of a token, the last what the final norm is given.
    """

    def with_taps(self, taps: Sequence[int]) -> Self:
        """Give a copy that keeps these from its next `bind` on. Raises ValueError for a tap that it does not have."""

    def features(self, blocks: Ints, slots: Ints) -> NDArray[np.float32]:
        """Read what is kept of slots in blocks, both `[n]`: float32 `[n, taps, dim]`."""


class Emission(Protocol):
    """What a verified round emits; `spec.Verified` is one."""

    @property
    def tokens(self) -> list[int]:
        """The accepted tokens of the draft and one token more."""

    @property
    def logprobs(self) -> list[float]:
        """One log-probability per token."""

    @property
    def path(self) -> Sequence[int]:
        """The draft's accepted tokens, by their place in it: `0, 1, ...` where the draft is a chain."""


@runtime_checkable
class SelfVerifyingModel(Model, Protocol):
    """A model that verifies where its results are, and never makes a row of logits."""

    def forward_and_verify(self, chunks: Sequence[Chunk], rounds: Sequence[Round]) -> Sequence[Emission | SpecError]:
        """Do a pass and verify its rounds, one for each chunk with `num_rows > 0`, in the order of the chunks.

        A round it cannot verify gets an error in place of tokens, and disturbs no other.
        """


class Ask(NamedTuple):
    """A tree that a sequence grows, as far as it is, and the nodes after which the laws of the next token are wanted.

    Node -1 is the end of the context. A node is asked for in a later call than its parent, and at most once.
    """

    place: int
    """A number of the sequence's own, from 0, that stays the same from one `Proposer.feed` to the next."""
    table: Sequence[int]
    """The blocks of the context, `ceil(length / block_tokens)` of them."""
    length: int
    """Tokens of the context, all of them fed."""
    tokens: Sequence[int]
    parents: Sequence[int]
    frontier: Sequence[int]
    params: SamplingParams = SamplingParams()
    """Those of the draft: the request's, at the temperature of drafts."""
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    """What the context is made of, where the parameters look back at it; else both are empty."""

    def output_at(self, node: int) -> list[int]:
        """Give the output and the tokens on the path to a node."""
        path = []
        while node >= 0:
            path.append(self.tokens[node])
            node = self.parents[node]
        return [*self.output, *reversed(path)]


class Proposer(Protocol):
    """A model that proposes, called in the runner's thread for all sequences of a step.

    It keeps state beside the target's KV, in memory of its own under the same block tables: a slot's state depends on
    the token of that slot and on what comes before it, and on nothing else, for blocks are shared by what they hold.
    The state of drafted nodes is nobody's after the round: it lies in scratch, or in slots past the context.
    """

    @property
    def vocab_size(self) -> int:
        """The target's."""

    @property
    def max_model_len(self) -> int:
        """Positions that a context, and a draft after it, can have."""

    @property
    def taps(self) -> tuple[int, ...]:
        """The hidden states of the target that are read, as in `TappedModel`; none where it only looks at tokens."""

    @property
    def vocabulary(self) -> DraftVocabulary | None:
        """The tokens that laws are over; None is all of the target's."""

    @property
    def keeps_state(self) -> bool:
        """It writes something of its own into the blocks, and is to be fed every token once."""

    def bind(self, num_blocks: int, block_tokens: int, target: Model) -> None:
        """Take fresh memory; whatever was fed before is gone. `target` is bound to the blocks that this is beside."""

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Write the state of tokens that are kept, each chunk a chain, and forget all drafted nodes.

        The target holds every token before the last of each chunk, but for a lone proposer that has no taps. A chunk
        with a row is the end of a context after which a tree is to grow: the first such chunk is that of place 0, and
        so on.
        """

    def laws(self, asks: Sequence[Ask]) -> NDArray[np.float64]:
        """Give the law of the next token after each node asked for, ask after ask, float64 `[nodes, words]`.

        A word is a token of `vocabulary`.
        """
