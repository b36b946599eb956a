"""Parameters that other servers know: which of them change nothing here, and which would."""

from typing import Any

import msgspec

from server.wire import (
    CalledFunction,
    ChatBody,
    ChatMessage,
    CompletionBody,
    DetokenizeBody,
    Speculative,
    StreamOptions,
    TextPart,
    TokenizeBody,
    ToolCall,
)

# Taken with whatever value: no answer depends on them.
_TAKEN_BOTH = {
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "store",
    "verbosity",
    "request_id",
}
TAKEN: dict[type[msgspec.Struct], frozenset[str]] = {
    CompletionBody: frozenset(_TAKEN_BOTH),
    ChatBody: frozenset({*_TAKEN_BOTH, "parallel_tool_calls"}),
    ChatMessage: frozenset({"name", "annotations", "provider_specific_fields"}),
    ToolCall: frozenset({"index"}),
    TextPart: frozenset({"cache_control"}),
    StreamOptions: frozenset({"include_obfuscation"}),
}

# Refused by name but for the values that ask for what happens anyway.
_NEUTRAL_BOTH: dict[str, list[Any]] = {
    # vLLM, SGLang
    "add_special_tokens": [False],
    "allowed_token_ids": [],
    "bad_words": [],
    "early_stopping": [False],
    "ebnf": [],
    "guided_choice": [],
    "guided_grammar": [],
    "guided_json": [],
    "guided_regex": [],
    "include_stop_str_in_output": [False],
    "length_penalty": [1],
    "logits_processors": [],
    "lora_path": [],
    "no_repeat_ngram_size": [0],
    "prompt_logprobs": [],
    "regex": [],
    "return_token_ids": [False],
    "skip_special_tokens": [True],
    "spaces_between_special_tokens": [True],
    "stop_regex": [],
    "structured_outputs": [],
    "truncate_prompt_tokens": [],
    "use_beam_search": [False],
    # llama.cpp
    "cache_prompt": [True],
    "dry_multiplier": [0],
    "dynatemp_range": [0],
    "grammar": [],
    "json_schema": [],
    "mirostat": [0],
    "n_predict": [],
    "repeat_penalty": [1],
    "samplers": [],
    "tfs_z": [1],
    "top_n_sigma": [-1],
    "typical_p": [1],
    "xtc_probability": [0],
}
NEUTRAL: dict[type[msgspec.Struct], dict[str, list[Any]]] = {
    CompletionBody: {**_NEUTRAL_BOTH, "response_format": [{"type": "text"}], "suffix": []},
    ChatBody: {
        **_NEUTRAL_BOTH,
        "add_generation_prompt": [True],
        "audio": [],
        "best_of": [1],
        "chat_template": [],
        "chat_template_kwargs": [],
        "continue_final_message": [False],
        "documents": [],
        "echo": [False],
        "function_call": ["none", "auto"],
        "functions": [],
        "modalities": [["text"]],
        "prediction": [],
        "reasoning_effort": ["none"],
        "response_format": [{"type": "text"}],
        "thinking": [{"type": "disabled"}],
        "tool_choice": ["none", "auto"],
        "tools": [],
        "web_search_options": [],
    },
    ChatMessage: {"audio": [], "function_call": [], "refusal": []},
    TokenizeBody: {"add_special_tokens": [False]},
}

# Structs within structs, one or a list of them.
NESTED: dict[type[msgspec.Struct], dict[str, type[msgspec.Struct]]] = {
    CompletionBody: {"stream_options": StreamOptions, "speculative": Speculative},
    ChatBody: {"stream_options": StreamOptions, "speculative": Speculative, "messages": ChatMessage},
    ChatMessage: {"content": TextPart, "tool_calls": ToolCall},
    ToolCall: {"function": CalledFunction},
}

BODIES = (CompletionBody, ChatBody, TokenizeBody, DetokenizeBody)
NOTHING: list[Any] = [None, "", [], {}]
"""Values of a parameter that is as good as absent."""
