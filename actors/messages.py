"""Every message between actors. They are values: small, frozen, tagged, serialisable; one step is a handful of them.

Their parts, of which a step has many, hold no cycles and are kept out of the garbage collector's rounds.
"""

from collections.abc import Sequence

import msgspec

from kvpool import Candidate, Victim
from scheduler import Request
from spec import Children, Rule, SamplingParams, Shape


class Message(msgspec.Struct, frozen=True, tag=True):
    """A message; its tag is its name."""


# to the scheduler, from clients


class Submit(Message, frozen=True):
    """Take in a request under the engine's number for it."""

    seq: int
    request: Request


class Cancel(Message, frozen=True):
    """Let a sequence end wherever it stands. No effect on one that has ended."""

    seq: int


class Resume(Message, frozen=True):
    """A paused client has read what was left for it."""

    seq: int


class Stop(Message, frozen=True):
    """Cancel whatever is open; no step follows."""


# scheduler to block manager, and its answers


class Admit(Message, frozen=True):
    """Open a block table for each candidate, with the prefix that the cache has, as long as they fit.

    So many places are free, and so many blocks are spoken for; victims may be released to make both.
    """

    candidates: list[Candidate]
    victims: list[Victim]
    num_places: int
    num_promised: int


class Admitted(Message, frozen=True):
    """Per candidate the tokens it found cached, None if refused; and the victims that were released."""

    cached: list[int | None]
    preempted: list[int]
    available: int


class Reserve(Message, frozen=True):
    """Make room in each sequence's table for so many more positions; all must fit."""

    asks: list[tuple[int, int]]


class Reserved(Message, frozen=True):
    """The block table of each, in the order asked."""

    tables: list[list[int]]
    available: int


class Settle(Message, frozen=True):
    """Keep the verified tokens of each sequence and take back all room past them; then release whole tables.

    With the tokens comes how many positions a proposer has written: a prefix is shared up to there. None: no proposer.
    """

    commits: list[tuple[int, Sequence[int], int | None]]
    releases: list[int]


class Settled(Message, frozen=True):
    """What came back: the blocks of rejected drafts and of released sequences."""

    num_trimmed: int
    num_released: int
    available: int


class ForgetAll(Message, frozen=True):
    """The model's memory is gone: release every table and forget every prefix. Answered by Settled."""


# scheduler to model runner, and its answers


class DraftAsk(msgspec.Struct, frozen=True, gc=False):
    """One sequence that wants its draft from a model: what the proposer has not been fed, and how the tree may grow.

    `ids` go to the positions from `start` up to the end of the context, one at least. The law of a draft is made with
    `params` and, where they look back, `prompt` and `output`; children are drawn from the generator that its two
    numbers give. Where the text depends on the draft, it is needed, whatever becomes of the proposer.
    """

    seq: int
    ids: list[int]
    start: int
    table: list[int]
    shape: Shape
    children: Children
    max_depth: int
    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    is_needed: bool
    rng_state: int
    rng_inc: int


class Propose(Message, frozen=True):
    """Draft for all of these before their step. What children are drawn from stays with the runner until then."""

    number: int
    asks: list[DraftAsk]


class ProposedTree(msgspec.Struct, frozen=True, gc=False):
    """A drafted tree, the chance of each node as far as the proposer can tell, and where its generator stands now.

    Drawn nodes have no `values`: what they are may not decide whether they are fed.
    """

    seq: int
    tokens: list[int]
    parents: list[int]
    values: list[float] | None
    rng_state: int


class Proposed(Message, frozen=True):
    """The drafts, in the order of the asks; none at all, and why, where the proposer failed."""

    number: int
    trees: list[ProposedTree]
    error: str | None = None


class RoundSpec(msgspec.Struct, frozen=True, gc=False):
    """What verification needs besides the logits: the draft, the sampling, and the generator's two numbers.

    `parents` are those of a tree's nodes, None for a chain.
    """

    draft: Sequence[int]
    parents: Sequence[int] | None
    children: Children
    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    rng_state: int
    rng_inc: int
    verify: Rule
    logprobs: bool


class Feed(msgspec.Struct, frozen=True, gc=False):
    """One sequence's part of a pass; without a round it is a chunk of prefill that needs no logits.

    Where a proposer keeps state of the sequence, it `is_proposed_for`, and prefill is fed to the proposer as well.
    """

    seq: int
    ids: list[int]
    start: int
    table: list[int]
    round: RoundSpec | None
    is_proposed_for: bool = False


class Step(Message, frozen=True):
    """One forward pass over all of these, and the verification of its rounds.

    With it are made, for those `ahead`, named as they stand before it, the drafts after what it emits: nobody waits for
    a question and its answer then.
    """

    number: int
    feeds: list[Feed]
    ahead: list[DraftAsk] = []


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of a feed: the tokens its round emits and where its generator stands now.

    A round that could not be verified has an `error` and no tokens.
    """

    seq: int
    tokens: list[int]
    logprobs: list[float] | None
    rng_state: int
    error: str | None = None


class StepDone(Message, frozen=True):
    """The outcomes of a step, in the order of its feeds, the drafts made ahead, and what the proposer failed with."""

    number: int
    outcomes: list[Outcome]
    proposer_error: str | None = None
    trees: list[ProposedTree] = []


def encode(message: Message) -> bytes:
    """Serialise a message (MessagePack); the same run gives the same bytes."""
    return _encoder.encode(message)


_encoder = msgspec.msgpack.Encoder()  # a deterministic order is to be had for keys that are strings only
