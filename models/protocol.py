"""What the engine asks of a model: one pass over many sequences, against paged KV memory it keeps itself."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from spec import Round, SpecError


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """What one sequence feeds in one pass.

    The ids go to positions `start .. start + len(ids) - 1`; everything before `start` is already in the blocks of
    `table`, position `p` in slot `p % block_tokens` of `table[p // block_tokens]`. The table covers the fed ids too.

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


class BlockCopy(NamedTuple):
    """The first `num_tokens` slots of block `source` are to be written to block `destination`."""

    source: int
    destination: int
    num_tokens: int


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

        Raises ValueError for a chunk it cannot feed (a tree where it knows chains only, an id out of the vocabulary).
        """

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Carry out the copies, in order, before the next pass."""


class Emission(Protocol):
    """What a verified round emits; `spec.Verified` is one."""

    @property
    def tokens(self) -> list[int]:
        """The accepted run of the draft and one token more."""

    @property
    def logprobs(self) -> list[float]:
        """One log-probability per token."""


@runtime_checkable
class SelfVerifyingModel(Model, Protocol):
    """A model that verifies where its results are, and never makes a row of logits."""

    def forward_and_verify(self, chunks: Sequence[Chunk], rounds: Sequence[Round]) -> Sequence[Emission | SpecError]:
        """Do a pass and verify its rounds, one for each chunk with `num_rows > 0`, in the order of the chunks.

        A round it cannot verify gets an error in place of tokens, and disturbs no other.
        """
