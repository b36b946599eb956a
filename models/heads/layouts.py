"""The published names of the tensors of each kind of heads, and the settings beside them.

medusa   {i}.{j}.linear.weight, .bias: block j of head i; {i}.{blocks}.weight: its output matrix
eagle    fc, layers.0.{self_attn.*_proj, mlp.*_proj, post_attention_layernorm}
eagle3   fc, midlayer.{the same, input_layernorm, hidden_norm}, norm, lm_head
linear   first, later: of this package
any      d2t, t2d: the draft vocabulary; lm_head and embed_tokens where they are not the target's
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.heads.tensors import Tensors, as_matrices, named, named_ids
from models.heads.weights import Affine, EagleHeads, Heads, LinearHeads, MedusaHeads, Words
from models.loading.rope import rope_divisors
from models.weights import LlamaConfig, Matrix, halves_to_pairs

Settings = Mapping[str, Any]
Named = dict[str, Matrix | NDArray[Any]]

_LAYER_PREFIXES = ("midlayer.", "layers.0.")
_MLP_NORM, _INPUT_NORM, _FEATURE_NORM = (
    f"{name}.weight" for name in ("post_attention_layernorm", "input_layernorm", "hidden_norm")
)


def parse(settings: Settings, tensors: Tensors, target: LlamaConfig) -> Heads:
    """Make heads for a target of their tensors, of which none may be left over; raises ValueError."""
    for key, ours in (("hidden_size", target.dim), ("vocab_size", target.vocab_size)):
        if settings.get(key, ours) != ours:
            raise ValueError(f"{tensors.source}: {key} is {settings[key]}, and the target has {ours}")
    layer = tensors.with_prefix(*_LAYER_PREFIXES)
    if "first.weight" in tensors:
        heads: Heads = _parse_linear(settings, tensors, target)
    elif "0.0.linear.weight" in tensors:
        heads = _parse_medusa(settings, tensors, target)
    elif "fc.weight" in tensors and layer:
        heads = _parse_eagle(settings, tensors, target, layer)
    else:
        raise ValueError(
            f"{tensors.source}: no heads that are known here: medusa has 0.0.linear.weight, eagle fc.weight and "
            "layers.0., eagle3 fc.weight and midlayer., linear first.weight"
        )
    tensors.finish()
    return heads


def name_all(heads: Heads, vocab_size: int) -> tuple[Settings, Named]:
    """Give the settings and the tensors of heads under their published names."""
    match heads:
        case LinearHeads():
            return _name_linear(heads, vocab_size)
        case MedusaHeads():
            return _name_medusa(heads, vocab_size)
        case EagleHeads():
            return _name_eagle(heads)


def _parse_linear(settings: Settings, tensors: Tensors, target: LlamaConfig) -> LinearHeads:
    taps = settings.get("taps")
    if not isinstance(taps, list) or not taps or not all(isinstance(tap, int) for tap in taps):
        raise ValueError(f"{tensors.source}: taps is {taps!r}: must be a list of numbers of layers")
    dim = target.dim
    first = tensors.affine("first", dim, (len(taps) + 1) * dim)
    later = tensors.affine("later", dim, 2 * dim)
    return LinearHeads(tuple(taps), first, later, _words(tensors, target))


def _name_linear(heads: LinearHeads, vocab_size: int) -> tuple[Settings, Named]:
    dim = heads.first.weight.num_outputs
    settings = {"taps": list(heads.taps), "hidden_size": dim, "vocab_size": vocab_size}
    tensors = {**named("first", heads.first), **named("later", heads.later), **_named_words(heads.words, vocab_size)}
    return settings, tensors


def _parse_medusa(settings: Settings, tensors: Tensors, target: LlamaConfig) -> MedusaHeads:
    dim = target.dim
    ids = tensors.ids(target.vocab_size)
    num_words = target.vocab_size if ids is None else len(ids)
    blocks: list[tuple[Affine, ...]] = []
    outputs: list[Matrix | None] = []
    while f"{len(blocks)}.0.linear.weight" in tensors:
        head, own = len(blocks), list[Affine]()
        while f"{head}.{len(own)}.linear.weight" in tensors:
            own.append(tensors.affine(f"{head}.{len(own)}.linear", dim, dim))
        blocks.append(tuple(own))
        name = f"{head}.{len(own)}.weight"
        outputs.append(tensors.matrix(name, num_words, dim) if name in tensors else None)
    for key, found in (("medusa_num_heads", {len(blocks)}), ("medusa_num_layers", set(map(len, blocks)))):
        stated = settings.get(key)
        if stated is not None and {stated} != found:
            raise ValueError(f"{tensors.source}: {key} is {stated}: there are {', '.join(map(str, sorted(found)))}")
    return MedusaHeads(tuple(blocks), tuple(outputs), ids)


def _name_medusa(heads: MedusaHeads, vocab_size: int) -> tuple[Settings, Named]:
    tensors: Named = {}
    for i, (blocks, output) in enumerate(zip(heads.blocks, heads.outputs, strict=True)):
        for j, block in enumerate(blocks):
            tensors |= named(f"{i}.{j}.linear", block)
        tensors |= as_matrices([(f"{i}.{len(blocks)}.weight", output)])
    dim = heads.blocks[0][0].weight.num_outputs
    settings = {
        "medusa_num_heads": len(heads.blocks),
        "medusa_num_layers": len(heads.blocks[0]),
        "hidden_size": dim,
        "vocab_size": vocab_size,
    }
    return settings, {**tensors, **named_ids(heads.ids, vocab_size)}


def _parse_eagle(settings: Settings, tensors: Tensors, target: LlamaConfig, layer: str) -> EagleHeads:
    is_third = f"{layer}{_FEATURE_NORM}" in tensors
    dim = target.dim
    config = _layer_config(settings, tensors, target, layer)
    in_dim = 2 * dim if is_third else dim
    taps = _taps(settings) if is_third else None
    fuse_dim = (3 if taps is None else len(taps)) * dim if is_third else 2 * dim

    def proj(name: str, *shape: int) -> Matrix:
        return tensors.matrix(f"{layer}{name}_proj.weight", *shape)

    def norm(name: str) -> Any:
        return tensors.vector(name, dim) if name in tensors else None

    if is_third and (missing := [n for n in (f"{layer}{_INPUT_NORM}", "norm.weight") if n not in tensors]):
        raise ValueError(f"{tensors.source}: {missing[0]} is missing")
    return EagleHeads(
        kind="eagle3" if is_third else "eagle",
        config=config,
        fuse=tensors.affine("fc", dim, fuse_dim),
        q=proj("self_attn.q", config.q_dim, in_dim).reordered(halves_to_pairs(config.num_heads, config.head_dim)),
        k=proj("self_attn.k", config.kv_dim, in_dim).reordered(halves_to_pairs(config.num_kv_heads, config.head_dim)),
        v=proj("self_attn.v", config.kv_dim, in_dim),
        o=proj("self_attn.o", dim, config.q_dim),
        gate=proj("mlp.gate", config.ffn_dim, dim),
        up=proj("mlp.up", config.ffn_dim, dim),
        down=proj("mlp.down", dim, config.ffn_dim),
        mlp_norm=tensors.vector(f"{layer}{_MLP_NORM}", dim),
        input_norm=norm(f"{layer}{_INPUT_NORM}"),
        feature_norm=norm(f"{layer}{_FEATURE_NORM}"),
        final_norm=norm("norm.weight") if is_third else None,
        embedding=tensors.matrix("embed_tokens.weight", target.vocab_size, dim)
        if "embed_tokens.weight" in tensors
        else None,
        words=_words(tensors, target),
        taps=taps,
    )


def _name_eagle(heads: EagleHeads) -> tuple[Settings, Named]:
    config, is_third = heads.config, heads.kind == "eagle3"
    layer = "midlayer." if is_third else "layers.0."
    matrices: list[tuple[str, Matrix | None]] = [
        ("self_attn.q", heads.q.reordered(np.argsort(halves_to_pairs(config.num_heads, config.head_dim)))),
        ("self_attn.k", heads.k.reordered(np.argsort(halves_to_pairs(config.num_kv_heads, config.head_dim)))),
        *((f"self_attn.{name}", getattr(heads, name)) for name in "vo"),
        *((f"mlp.{name}", getattr(heads, name)) for name in ("gate", "up", "down")),
    ]
    norms = {
        f"{layer}{_MLP_NORM}": heads.mlp_norm,
        f"{layer}{_INPUT_NORM}": heads.input_norm,
        f"{layer}{_FEATURE_NORM}": heads.feature_norm,
        "norm.weight": heads.final_norm,
    }
    tensors: Named = {
        **named("fc", heads.fuse),
        **as_matrices([(f"{layer}{name}_proj.weight", matrix) for name, matrix in matrices]),
        **{name: norm for name, norm in norms.items() if norm is not None},
        **as_matrices([("embed_tokens.weight", heads.embedding)]),
        **_named_words(heads.words, config.vocab_size),
    }
    settings: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3" if is_third else "LlamaForCausalLMEagle"],
        "model_type": "llama",
        "hidden_size": heads.fuse.weight.num_outputs,
        "num_hidden_layers": 1,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn_dim,
        "max_position_embeddings": config.max_model_len,
        "rope_theta": config.rope_base,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "vocab_size": config.vocab_size,
    }
    if heads.words.ids is not None:
        settings["draft_vocab_size"] = len(heads.words.ids)
    if heads.taps is not None:
        settings["eagle_aux_hidden_state_layer_ids"] = list(heads.taps)
    if config.rope_divisors:
        raise ValueError(f"rope_divisors {config.rope_divisors[:3]}...: heads are written with plain RoPE")
    return settings, tensors


def _layer_config(settings: Settings, tensors: Tensors, target: LlamaConfig, layer: str) -> LlamaConfig:
    """Read the sizes of an eagle layer: settings go before what the target has, and tensors must agree."""
    num_heads = settings.get("num_attention_heads") or target.num_heads
    head_dim = settings.get("head_dim")
    if head_dim is None:
        head_dim = target.dim // num_heads if "num_attention_heads" in settings else target.head_dim
    kv_heads = settings.get("num_key_value_heads")
    if kv_heads is None:
        kv_heads = tensors.shape(f"{layer}self_attn.k_proj.weight")[0] // head_dim
    ffn_dim = settings.get("intermediate_size") or tensors.shape(f"{layer}mlp.gate_proj.weight")[0]
    #   without a config.json the layer is taken to be one of the target's
    rope_base = settings.get("rope_theta") or (10000.0 if "num_attention_heads" in settings else target.rope_base)
    scaling = settings.get("rope_scaling") or {}
    try:
        return LlamaConfig(
            vocab_size=target.vocab_size,
            dim=target.dim,
            num_layers=1,
            num_heads=num_heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            ffn_dim=ffn_dim,
            max_model_len=target.max_model_len,
            rope_base=rope_base,
            norm_eps=settings.get("rms_norm_eps") or target.norm_eps,
            rope_divisors=rope_divisors(scaling, rope_base, head_dim),
        )
    except ValueError as error:
        raise ValueError(f"{tensors.source}: {error}") from None


def _taps(settings: Settings) -> tuple[int, ...] | None:
    """Find which hidden states an eagle3 fuses.

    At the top of config.json they are numbers of layers, as here and in vLLM; in its `eagle_config`, as trainers for
    SGLang write it, numbers of the layers whose outputs they are, counted from 0.
    """
    key = "eagle_aux_hidden_state_layer_ids"
    nested = (settings.get("eagle_config") or {}).get(key)
    if (own := settings.get(key)) is not None:
        return tuple(own)
    return None if nested is None else tuple(layer + 1 for layer in nested)


def _words(tensors: Tensors, target: LlamaConfig) -> Words:
    ids = tensors.ids(target.vocab_size)
    num_words = target.vocab_size if ids is None else len(ids)
    name = "lm_head.weight"
    return Words(ids, tensors.matrix(name, num_words, target.dim) if name in tensors else None)


def _named_words(words: Words, vocab_size: int) -> Named:
    return {**as_matrices([("lm_head.weight", words.output)]), **named_ids(words.ids, vocab_size)}
