"""A byte-level BPE tokenizer from the tables of a GGUF file."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from models.extras import need

# How each kind of file cuts text before it merges bytes. The names are the values of `tokenizer.ggml.pre`.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS_ANY_CASE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS = {
    "default": [_WORDS],
    "gpt-2": [_WORDS],
    "smollm": [r"\p{N}", _WORDS],
    "llama-bpe": [_WORDS_ANY_CASE.replace("DIGITS", r"\p{N}{1,3}")],
    "qwen2": [_WORDS_ANY_CASE.replace("DIGITS", r"\p{N}")],
}
SAME_CUTS = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}
"""Further names of ways to cut text."""

_WHOLE_WORDS_FIRST = ("llama-bpe",)  # a word that is a token is that token, whatever its merges would give
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # token types of the format

END_TEXTS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>")
"""Control tokens that end a text, whether or not a file says so."""


class TokenTypes(NamedTuple):
    """Tokens with a part of their own: control tokens, texts that are one token, ids that stand for nothing."""

    control: list[str]
    added: list[str]
    unused: list[int]

    @classmethod
    def of(cls, tokens: Sequence[str], types: Sequence[int] | None, named: Iterable[int | None]) -> "TokenTypes":
        """Sort the tokens by their types; without types, control tokens are `named` ids and those that end a text.

        Raises ValueError for types of another number than the tokens.
        """
        if types is None:
            ids = {i for i in named if i is not None} | {i for i, token in enumerate(tokens) if token in END_TEXTS}
            return cls([tokens[i] for i in sorted(ids)], [], [])
        if len(types) != len(tokens):
            raise ValueError(f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens")
        return cls(
            [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL],
            [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED],
            [i for i, kind in enumerate(types) if kind == _UNUSED],
        )


def merge_pairs(tokens: Sequence[str], merges: Sequence[str]) -> list[tuple[str, str]]:
    """Cut each merge at its space: of several, at the one with a token on either side.

    Raises ValueError for a merge that no cut makes one of tokens.
    """
    known = frozenset(tokens)
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if " " in right or not right:
            cuts = [(merge[:i], merge[i + 1 :]) for i, character in enumerate(merge) if character == " "]
            fitting = [cut for cut in cuts if known.issuperset((*cut, "".join(cut)))]
            if not fitting:
                raise ValueError(f"tokenizer.ggml.merges has {merge!r}, which joins no two tokens")
            left, right = fitting[0]
        pairs.append((left, right))
    return pairs


def byte_pair_tokenizer(tokens: Sequence[str], merges: Sequence[tuple[str, str]], cut: str, types: TokenTypes) -> Any:
    """Build a `tokenizers.Tokenizer` of byte-level BPE. ValueError for an unknown way to cut text."""
    if cut not in _CUTS:
        raise ValueError(f"tokenizer.ggml.pre {cut}: known are {', '.join([*_CUTS, *SAME_CUTS])}")
    library = need("tokenizers", "real")
    cutters = library.pre_tokenizers
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        model = library.models.BPE(vocabulary, list(merges), ignore_merges=cut in _WHOLE_WORDS_FIRST)
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"tokenizer.ggml.merges: {error}") from None
    built = library.Tokenizer(model)
    built.pre_tokenizer = cutters.Sequence(
        [cutters.Split(library.Regex(expression), "isolated") for expression in _CUTS[cut]]
        + [cutters.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    built.decoder = library.decoders.ByteLevel()
    built.add_special_tokens([library.AddedToken(text, special=True, normalized=False) for text in types.control])
    built.add_tokens([library.AddedToken(text, special=False, normalized=False) for text in types.added])
    return built
