"""Mistakes in reading models, tokenizers and templates from files."""

from tests.mutants.mutant import Mutant

LOADING = "models/loading/"


def mutant(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """`tests` are written `module::name` or `module`, within tests/models."""
    paths = []
    for test in tests:
        module, _, function = test.partition("::")
        paths.append(f"tests/models/test_{module}.py" + (f"::test_{function}" if function else ""))
    return Mutant(name, LOADING + file, old, new, tuple(paths))


MUTANTS = [
    mutant(
        "believe generation_config alone about what ends a text",
        "safetensors_folder.py",
        "for file in (generation, self._settings)",
        "for file in (generation,)",
        "tokenizers::ids_that_end_a_text_are_those_of_all_files",
    ),
    mutant(
        "tell a template the least end id for the tokenizer's",
        "safetensors_folder.py",
        "            eos_id=eos,\n",
        "            eos_id=min([eos or 0, *(e for e in stated if isinstance(e, int))]),\n",
        "tokenizers::ids_that_end_a_text_are_those_of_all_files",
        "tokenizers::a_file_need_not_say_what_ends_a_text_and_cannot_say_what_the_model_has_not",
    ),
    mutant(
        "believe any value of a config.json",
        "folder_files.py",
        "        return msgspec.convert(",
        "        return kind(**content) if kind is ConfigFile else msgspec.convert(",
        "checkpoints::a_value_of_another_kind_is_refused_with_its_file_and_key",
    ),
    mutant(
        "believe any size of a GGUF file",
        "gguf_file.py",
        "        if not isinstance(value, kind):",
        "        if not isinstance(value, object):",
        "gguf_files::a_value_of_another_kind_is_refused_by_name",
    ),
    mutant(
        "overlook the BOS of a post-processor",
        "safetensors_folder.py",
        "    return list(framed[:first])\n",
        "    return []\n",
        "tokenizers::bos_comes_where_the_post_processor_puts_it_and_only_once",
    ),
    mutant(
        "put a second BOS before one that is there",
        "safetensors_folder.py",
        " and bos not in framed[:first]:",
        ":",
        "tokenizers::bos_comes_where_the_folder_asks_for_it",
    ),
    mutant(
        "cut a prompt where a file for training would",
        "tokenizer.py",
        "        built.no_truncation()",
        "        pass",
        "tokenizers::a_file_made_for_training_neither_cuts_nor_pads_here",
    ),
    mutant(
        "stumble over an id that the tokenizer does not know",
        "tokenizer.py",
        '        if spelled is None:\n            return b""\n',
        "        if spelled is None:\n            raise ValueError(token)\n",
        "tokenizers::ids_past_the_tokenizers_own_have_no_text",
        "gguf_files::padding_has_no_text",
    ),
    mutant(
        "merge a llama's words before looking for whole ones",
        "byte_pairs.py",
        "ignore_merges=cut in _WHOLE_WORDS_FIRST",
        "ignore_merges=False",
        "gguf_files::llama_takes_whole_words_before_merges",
    ),
    mutant(
        "cut a merge at its first space",
        "byte_pairs.py",
        "            if not fitting:",
        "            fitting = cuts[:1]\n            if not fitting:",
        "gguf_files::a_merge_of_no_tokens_is_refused",
    ),
    mutant(
        "read a layer's tensors and leave the rest of the file out",
        "assembly.py",
        "    if unused := sorted(",
        "    if unused := [] and sorted(",
        "gguf_files::a_tensor_that_would_be_left_out_is_refused",
        "checkpoints::a_tensor_that_would_be_left_out_is_refused",
    ),
    mutant(
        "take tensors of any shape",
        "assembly.py",
        "        if tensors[name].shape != shape:",
        "        if False:",
        "checkpoints::sizes_that_do_not_fit_name_the_tensor",
    ),
    mutant(
        "ignore the keys of a configuration that nobody knows",
        "config_keys.py",
        "            case _:\n                is_fine = False\n",
        "            case _:\n                is_fine = True\n",
        "checkpoints::a_key_that_may_change_logits_is_refused_by_name",
    ),
    mutant(
        "take a sliding window for none in every model",
        "config_keys.py",
        'settings["model_type"] == "qwen2" and not',
        "not",
        "checkpoints::a_key_that_may_change_logits_is_refused_by_name",
    ),
    mutant(
        "load the shards that are there",
        "safetensors_folder.py",
        "if missing := [name for name in named if not (self._path / name).is_file()]:",
        "if missing := []:",
        "checkpoints::a_download_that_broke_off_says_what_is_missing",
    ),
    mutant(
        "forget that tensors begin at a multiple of the file's alignment",
        "gguf_header.py",
        'fields.get("general.alignment", 32)',
        "32",
        "gguf_files::the_header_says_what_the_gguf_package_reads",
    ),
    mutant(
        "read bfloat16 as whole numbers",
        "gguf_file.py",
        "decode=widen_bf16 if place.format == _BF16 else None",
        "decode=None",
        "gguf_files::norms_and_matrices_may_be_bf16",
    ),
    mutant(
        "escape JSON in a template for HTML",
        "chat_template.py",
        '        environment.filters["tojson"] = _to_json\n',
        "",
        "tokenizers::the_dialect_of_templates",
    ),
    mutant(
        "write a call of a tool with a template that has no place for it",
        "chat_template.py",
        'if message.get("tool_calls") and not self._knows_tool_calls:',
        "if False:",
        "tokenizers::tool_calls_are_written_by_a_template_that_knows_them_and_refused_by_another",
    ),
    mutant(
        "stretch the short waves and keep the long ones",
        "rope.py",
        "1.0 / (kept + (1.0 - kept) / factor)",
        "1.0 / (1.0 - kept + kept / factor)",
        "rope::llama3_stretches_long_waves_only",
    ),
    mutant(
        "take a GGUF file's scale for none where it has no type",
        "gguf_file.py",
        'self._size("rope.scaling.type", "linear", str)',
        'self._size("rope.scaling.type", "none", str)',
        "rope::a_gguf_file_says_how_it_is_stretched",
    ),
    mutant(
        "take control tokens from their own file before the tokenizer's",
        "safetensors_folder.py",
        '{**self._json("special_tokens_map.json", {}), **self._json("tokenizer_config.json", {})}',
        '{**self._json("tokenizer_config.json", {}), **self._json("special_tokens_map.json", {})}',
        "tokenizers::older_folders_name_their_control_tokens_in_a_file_of_its_own",
    ),
]
