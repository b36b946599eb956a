"""What a pass of a model from a file, or of heads, reads."""

from collections.abc import Iterable

from models.heads import EagleHeads, Heads, LinearHeads, MedusaHeads
from models.protocol import Ints
from models.weights import LlamaConfig, LlamaWeights, Matrix
from plans.hardware import ModelShape

_KV_BYTES = 2  # of a number in the cache


def shape_of_model(name: str, config: LlamaConfig, weights: LlamaWeights) -> ModelShape:
    """Give the shape of a model with the bits that its file has, and keys and values of two bytes."""
    read = [weights.output or weights.embedding]
    for layer in weights.layers:
        read += [layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down]
    return _shape(name, read, config.num_layers, config.num_layers * config.kv_dim)


def shape_of_heads(name: str, heads: Heads, config: LlamaConfig, weights: LlamaWeights) -> ModelShape:
    """Give the shape of a step of heads for this target: what it reads, with the matrix that makes logits.

    Linear heads read one of their two maps in a step, Medusa heads one of the heads; the first stands for all.
    """
    match heads:
        case LinearHeads():
            return _shape(name, [heads.first.weight, _output(heads.words.output, heads.words.ids, weights)], 1, 0)
        case MedusaHeads():
            maps = [block.weight for block in heads.blocks[0]]
            return _shape(name, [*maps, _output(heads.outputs[0], heads.ids, weights)], 1, 0)
        case EagleHeads():
            maps = [heads.fuse.weight, heads.q, heads.k, heads.v, heads.o, heads.gate, heads.up, heads.down]
            return _shape(name, [*maps, _output(heads.words.output, heads.words.ids, weights)], 1, heads.config.kv_dim)


def _output(own: Matrix | None, ids: Ints | None, weights: LlamaWeights) -> Matrix:
    """Give the matrix of the draft vocabulary: their own, or as many rows of the target's."""
    if own is not None:
        return own
    whole = weights.output or weights.embedding
    return whole if ids is None else whole.reordered(ids)


def _shape(name: str, read: Iterable[Matrix], num_layers: int, kv_dims: int) -> ModelShape:
    num_params = num_bytes = 0
    for matrix in read:
        num_params += matrix.num_outputs * matrix.rows(slice(0, 1)).shape[1]
        num_bytes += matrix.data.nbytes
    return ModelShape(
        name=name,
        params_b=num_params / 1e9,
        layers=num_layers,
        kv_bytes=2 * _KV_BYTES * kv_dims,
        bits=8 * num_bytes / num_params,
        source="as the file has it",
    )
