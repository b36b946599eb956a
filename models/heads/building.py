"""From heads to what proposes with them."""

from functools import partial

from models.extras import need
from models.heads.eagle import EagleProposer
from models.heads.eagle_layer import Attend, attend_in_tables
from models.heads.linear import LinearProposer, Maps, RunMaps
from models.heads.medusa import MedusaProposer
from models.heads.parts import output_of
from models.heads.weights import EagleHeads, Heads, LinearHeads, MedusaHeads
from models.kernel_choice import Kernel, build_linear, is_compiled, is_int8
from models.weights import LlamaConfig, LlamaWeights

HeadsProposer = LinearProposer | MedusaProposer | EagleProposer


def build_heads(
    heads: Heads,
    config: LlamaConfig,
    weights: LlamaWeights,
    kernel: Kernel = "auto",
) -> HeadsProposer:
    """Build the proposer over heads for a target of this shape and these weights.

    The target is to keep the proposer's `taps`. Raises as `build_llama` does, and ValueError for
    heads that read what such a target does not have.
    """
    build = partial(build_linear, kernel=kernel)
    match heads:
        case LinearHeads():
            return LinearProposer(heads, config, weights, _run_maps(heads, config, weights, kernel))
        case MedusaHeads():
            return MedusaProposer(heads, config, weights, build)
        case EagleHeads():
            return EagleProposer(heads, config, weights, build, _attend(heads.config, kernel))


def _run_maps(heads: LinearHeads, config: LlamaConfig, weights: LlamaWeights, kernel: Kernel) -> RunMaps:
    maps, output = (heads.first, heads.later), output_of(heads.words, weights)
    if not is_compiled(kernel):
        return Maps(maps, output, config.norm_eps, partial(build_linear, kernel=kernel))
    packed = need("models.kernels.packed_maps", "fast").PackedMaps
    compiled: RunMaps = packed(maps, output, config.norm_eps, is_int8=is_int8(kernel))
    return compiled


def _attend(config: LlamaConfig, kernel: Kernel) -> Attend:
    """Give what lets an eagle layer attend: compiled code is for heads of whole vectors."""
    if not is_compiled(kernel) or config.head_dim % 16:
        return attend_in_tables
    compiled: Attend = need("models.kernels.place_attention", "fast").attend_places
    return compiled
