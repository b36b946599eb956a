"""One pass and the verification of its rounds: the whole of what a model runner computes."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from models.protocol import Chunk, Emission, Model, SelfVerifyingModel, SlotMove
from spec import Round, SpecError, compaction, verify_batch, verify_round


class ModelError(RuntimeError):
    """A model gave something other than what it promises."""


def execute(model: Model, chunks: Sequence[Chunk], rounds: Sequence[Round]) -> list[Emission | SpecError]:
    """Feed `chunks` in one pass and verify `rounds`, one for each chunk with rows, in the order of the chunks.

    What a round accepts of a tree is then moved together, so that all of a sequence's KV goes on without a gap from
    slot to slot; what it holds behind that is rejected. A round that cannot be verified (a row of NaN, say) gives its
    error and disturbs no other; its generator has not moved. What the pass itself raises is raised, and ModelError for
    rows or answers that are not those asked for.
    """
    if hasattr(model, "forward_and_verify"):  # isinstance would look for all of the protocol in every pass: 15 us
        of_itself = cast(SelfVerifyingModel, model)
        results = _checked(of_itself.forward_and_verify(chunks, rounds), rounds, model.vocab_size)
    else:
        rows = check_rows(model.forward(chunks), sum(chunk.num_rows for chunk in chunks), model.vocab_size)
        results = _verify(rows, rounds)
    moves = list(_moves([chunk for chunk in chunks if chunk.num_rows], rounds, results))
    if moves:
        model.move_slots(moves)
    return results


def check_rows(rows: object, num_rows: int, vocab_size: int) -> NDArray[np.float32]:
    """Give a model's rows back. Raises ModelError unless they are float32 `[num_rows, vocab_size]`."""
    if not isinstance(rows, np.ndarray):
        raise ModelError(f"forward gave a {type(rows).__name__}, not a numpy array")
    if rows.shape != (num_rows, vocab_size) or rows.dtype != np.float32:
        raise ModelError(
            f"forward gave {rows.dtype} rows of shape {rows.shape}, not float32 of shape {(num_rows, vocab_size)}: "
            "vocab_size logits for each of the last num_rows ids of every chunk"
        )
    return rows


def _checked(
    answers: Sequence[Emission | SpecError], rounds: Sequence[Round], vocab_size: int
) -> list[Emission | SpecError]:
    if len(answers) != len(rounds):
        raise ModelError(f"forward_and_verify gave {len(answers)} answers for {len(rounds)} rounds")
    emissions = [answer for answer in answers if not isinstance(answer, SpecError)]
    are_ids = _are_ids(list(chain.from_iterable(emission.tokens for emission in emissions)), vocab_size)
    results: list[Emission | SpecError] = []
    for answer, round_ in zip(answers, rounds, strict=True):
        if not isinstance(answer, SpecError) and not (are_ids and _follows_chain(answer, round_)):
            flaw = _flaw(answer.tokens, answer.path, round_, vocab_size)
            if flaw is not None:
                results.append(SpecError(f"the model verified a round wrongly: {flaw}"))
                continue
        results.append(answer)
    return results


def _are_ids(tokens: Sequence[int], vocab_size: int) -> bool:
    """Whether these are ids, and there is one."""
    return set(map(type, tokens)) == {int} and min(tokens) >= 0 and max(tokens) < vocab_size


def _follows_chain(answer: Emission, round_: Round) -> bool:
    """Tell of ids, fast, that they are the beginning of a chain and one more: what is told of most rounds."""
    num_accepted = len(answer.tokens) - 1
    return (
        round_.parents is None
        and num_accepted >= 0
        and answer.path == range(num_accepted)
        and answer.tokens[:-1] == round_.draft[:num_accepted]
    )


def _flaw(tokens: Sequence[int], path: Sequence[int], round_: Round, vocab_size: int) -> str | None:
    """Tell why tokens are not a path of the draft from its root and one token more; None where they are."""
    if not _are_ids(tokens, vocab_size):
        return f"tokens {tokens} are not int ids in [0, {vocab_size}), one or more"
    if len(path) != len(tokens) - 1:
        return f"{len(tokens)} tokens and {len(path)} accepted nodes"
    parents = range(-1, len(round_.draft) - 1) if round_.parents is None else round_.parents
    above = -1
    for node, token in zip(path, tokens, strict=False):
        if not 0 <= node < len(round_.draft) or parents[node] != above or round_.draft[node] != token:
            return f"tokens {tokens} accept nodes {list(path)}, which the draft does not have in a row"
        above = node
    return None


def _moves(
    chunks: Sequence[Chunk], rounds: Sequence[Round], results: Sequence[Emission | SpecError]
) -> Iterator[SlotMove]:
    """Give the moves of accepted nodes, a tree's at the end of what its chunk feeds."""
    for chunk, round_, result in zip(chunks, rounds, results, strict=True):
        if round_.parents is not None and not isinstance(result, SpecError):
            num_pending = len(chunk.ids) - len(round_.draft)
            #   the whole path, though the caller may keep less of it: that is then where it would be anyhow
            moves, _ = compaction(chunk.start, num_pending, result.path, len(result.tokens))
            for source, destination in moves:
                yield SlotMove(chunk.table, source, destination)


def _verify(rows: NDArray[np.float32], rounds: Sequence[Round]) -> list[Emission | SpecError]:
    try:
        return list(verify_batch(rows, rounds))
    except SpecError:
        pass
    results: list[Emission | SpecError] = []
    at = 0
    for round_ in rounds:
        #   a bad round was found: verify one by one, so that only it fails
        own = rows[at : at + len(round_.draft) + 1]
        at += len(own)
        try:
            results.append(verify_round(own, round_))
        except SpecError as error:
            results.append(error)
    return results
