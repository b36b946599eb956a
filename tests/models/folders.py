"""Tiny models in folders as model hubs lay them out, with tokenizers that the tests make."""

import json

from tests.models.test_safetensors import write_folder

LETTERS = [*"abcdefghijklmnopqrstuvwxyz<|>_0123456789Ġ", "he", "ll", "hell"]
CONTROL = ["<s>", "</s>", "<|eot|>"]


def bpe(ignore_merges=False, vocabulary=(*LETTERS, "hello"), control=CONTROL, post_processor=None):
    """A byte-level BPE tokenizer; its control tokens come after its vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = [("h", "e"), ("l", "l"), ("he", "ll")]
    built = Tokenizer(models.BPE({t: i for i, t in enumerate(vocabulary)}, merges, ignore_merges=ignore_merges))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    if post_processor is not None:
        from tokenizers.processors import TemplateProcessing

        pieces = [(token, built.token_to_id(token)) for token in control]
        built.post_processor = TemplateProcessing(single=post_processor, pair=None, special_tokens=pieces)
    return built


def write_model(path, built=None, tokenizer_config=None, generation_config=None, **settings):
    """A folder with everything in it, `settings` in its `config.json`; gives what `write_folder` gives."""
    written = write_folder(path, **settings)
    (built or bpe()).save(str(path / "tokenizer.json"))
    if tokenizer_config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    if generation_config is not None:
        (path / "generation_config.json").write_text(json.dumps(generation_config))
    return written
