"""One pass and the verification of its rounds: the whole of what a model runner computes."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from models.protocol import Chunk, Emission, Model, SelfVerifyingModel, SlotMove
from spec import Round, SpecError, compaction, verify_batch, verify_round


def execute(model: Model, chunks: Sequence[Chunk], rounds: Sequence[Round]) -> list[Emission | SpecError]:
    """Feed `chunks` in one pass and verify `rounds`, one for each chunk with rows, in the order of the chunks.

    What a round accepts of a tree is then moved together, so that all of a sequence's KV goes on without a gap from
    slot to slot; what it holds behind that is rejected. A round that cannot be verified (a row of NaN, say) gives its
    error and disturbs no other; its generator has not moved. What the pass itself raises is raised.
    """
    if isinstance(model, SelfVerifyingModel):
        results = list(model.forward_and_verify(chunks, rounds))
    else:
        results = _verify(model.forward(chunks), rounds)
    moves = list(_moves([chunk for chunk in chunks if chunk.num_rows], rounds, results))
    if moves:
        model.move_slots(moves)
    return results


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
