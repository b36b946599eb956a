"""Which keys of a `config.json` are read here, which change no logits, and which do unless they have one value.

The keys are those of the llama and qwen2 configurations of the transformers library, and what tools write beside them.
"""

from collections.abc import Mapping
from typing import Any

_READ = frozenset(
    [
        "model_type",
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "max_position_embeddings",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "rms_norm_eps",
        "tie_word_embeddings",
        "eos_token_id",
    ]
)
_ABOUT_TEXT = frozenset(
    [
        "bos_token_id",
        "pad_token_id",
        "sep_token_id",
        "unk_token_id",
        "decoder_start_token_id",
        "tokenizer_class",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "prefix",
    ]
)
# How to sample where a request does not say: here the request says.
_ABOUT_SAMPLING = frozenset(
    [
        "do_sample",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "max_length",
        "min_length",
        "max_new_tokens",
        "early_stopping",
        "num_return_sequences",
        "bad_words_ids",
        "suppress_tokens",
        "begin_suppress_tokens",
        "exponential_decay_length_penalty",
        "remove_invalid_values",
        "output_scores",
        "return_dict_in_generate",
        "penalty_alpha",
    ]
)
_ABOUT_TRAINING_AND_FORM = frozenset(
    [
        "architectures",
        "torch_dtype",
        "dtype",
        "transformers_version",
        "_name_or_path",
        "_commit_hash",
        "use_cache",
        "initializer_range",
        "attention_dropout",
        "hidden_dropout",
        "classifier_dropout",
        "pretraining_tp",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "torchscript",
        "use_bfloat16",
        "tf_legacy_loss",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "finetuning_task",
        "task_specific_params",
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "_attn_implementation",
        "attn_implementation",
        "_attn_implementation_autoset",
        "_flash_attn_2_enabled",
        "use_flash_attn",
        "use_flashattn",
        "unsloth_version",
        "unsloth_fixed",
        "transformers.js_config",
        "is_llama_config",
        "max_window_layers",
        "mlx_version",
        "model_max_length",
    ]
)
_HARMLESS = _ABOUT_TEXT | _ABOUT_SAMPLING | _ABOUT_TRAINING_AND_FORM
_ONE_VALUE: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1, 1.0),
    "rope_interleaved": (False,),
    "use_sliding_window": (False,),
    "use_mrope": (False,),
    "is_decoder": (False, True),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": ({},),
}


def check_keys(settings: Mapping[str, Any]) -> None:
    """Raise ValueError for the first key that may change what a model computes and is not known to leave it alone.

    A key that is null says nothing.
    """
    for key, value in settings.items():
        if value is None or key in _READ or key in _HARMLESS or value in _ONE_VALUE.get(key, ()):
            continue
        match key:
            case "attention_bias":
                # qwen2 has biases on q, k and v and never asks; a llama that asks has one on o too
                is_fine = value is False
            case "sliding_window":
                # in use only where use_sliding_window says so, for a qwen2; always, for others that have one
                is_fine = (
                    settings["model_type"] == "qwen2" and not settings.get("use_sliding_window")
                ) or value >= settings.get("max_position_embeddings", 0)
            case "layer_types":
                is_fine = set(value) == {"full_attention"}
            case "auto_map":
                # code of the model's own, which is not run; code for its tokenizer or configuration does not matter
                is_fine = not any("Model" in name for name in value)
            case _:
                is_fine = False
        if not is_fine:
            allowed = f"can run {', '.join(map(str, _ONE_VALUE[key]))}" if key in _ONE_VALUE else "not known here"
            raise ValueError(f"{key} is {value!r}: {allowed}, and it may change what the model computes")
