"""One pass and the verification of its rounds: the whole of what a model runner computes."""

from collections.abc import Sequence

from models.protocol import Chunk, Emission, Model, SelfVerifyingModel
from spec import Round, SpecError, verify_batch, verify_round


def execute(model: Model, chunks: Sequence[Chunk], rounds: Sequence[Round]) -> list[Emission | SpecError]:
    """Feed `chunks` in one pass and verify `rounds`, one for each chunk with rows, in the order of the chunks.

    A round that cannot be verified (a row of NaN, say) gives its error and disturbs no other; its generator has not
    moved. What the pass itself raises is raised.
    """
    if isinstance(model, SelfVerifyingModel):
        return list(model.forward_and_verify(chunks, rounds))
    rows = model.forward(chunks)
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
