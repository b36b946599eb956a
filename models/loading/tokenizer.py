"""Text to ids and back, and a conversation to ids, with the tables of a model's own files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
_END_TEXTS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>")


def byte_pair_tokenizer(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, ...]],
    cut: str,
    *,
    special: Sequence[str],
    added: Sequence[str] = (),
) -> Any:
    """Build a `tokenizers.Tokenizer` of byte-level BPE. ValueError for an unknown way to cut text."""
    if cut not in _CUTS:
        raise ValueError(f"tokenizer.ggml.pre {cut}: known are {', '.join(_CUTS)}")
    library = need("tokenizers", "real")
    cutters = library.pre_tokenizers
    built = library.Tokenizer(library.models.BPE({token: i for i, token in enumerate(tokens)}, list(merges)))
    built.pre_tokenizer = cutters.Sequence(
        [cutters.Split(library.Regex(expression), "isolated") for expression in _CUTS[cut]]
        + [cutters.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    built.decoder = library.decoders.ByteLevel()
    built.add_special_tokens([library.AddedToken(text, special=True, normalized=False) for text in special])
    built.add_tokens([library.AddedToken(text, special=False, normalized=False) for text in added])
    return built


class Tokenizer:
    """A byte-level BPE tokenizer with its control tokens and chat template."""

    def __init__(
        self,
        built: Any,
        *,
        end_ids: Iterable[int],
        bos_id: int | None = None,
        add_bos: bool = False,
        chat_template: str | None = None,
    ) -> None:
        """Wrap a `tokenizers.Tokenizer`. ValueError when its tokens are not spelled byte by byte."""
        if '"ByteLevel"' not in built.to_str():
            raise ValueError("tokenizer: only byte-level BPE is known")
        self._with_special = built
        self._plain = need("tokenizers", "real").Tokenizer.from_str(built.to_str())
        self._plain.encode_special_tokens = True  # encode their spelling as ordinary text
        self._added: Mapping[int, Any] = built.get_added_tokens_decoder()
        texts = {i for i, token in self._added.items() if token.special and token.content in _END_TEXTS}
        self.eos_ids = frozenset(end_ids) | texts
        self._bos = bos_id if add_bos else None
        self._bos_text, self._eos_text = (
            self._with_special.id_to_token(i) if i is not None else "" for i in (bos_id, min(end_ids, default=None))
        )
        self._template = chat_template
        self._bytes = {spelled: byte for byte, spelled in enumerate(_spelling_of_bytes())}

    @property
    def vocab_size(self) -> int:
        """Ids are in `[0, vocab_size)`."""
        return int(self._with_special.get_vocab_size())

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of `text`. What spells a control token is that token only with `parse_special`.

        Raises ValueError for a lone surrogate.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"text has half a surrogate pair at {error.start}, which is no character") from error
        encoder = self._with_special if parse_special else self._plain
        ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        return ids if self._bos is None or ids[:1] == [self._bos] else [self._bos, *ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; control tokens have none, and broken UTF-8 becomes the replacement character."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Bytes of one id, maybe a part of a character. ValueError out of the vocabulary."""
        known = self._added.get(token)
        if known is not None:
            return b"" if known.special else known.content.encode()
        spelled = self._with_special.id_to_token(token) if token >= 0 else None
        if spelled is None:
            raise ValueError(f"id {token} is out of the vocabulary [0, {self.vocab_size})")
        return bytes(self._bytes[character] for character in spelled)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of a conversation up to where the assistant speaks, each message with `role` and `content`.

        A message that spells a control token is taken at its word, as chat templates do. ValueError without a
        template, for a message without text, and for messages the template refuses.
        """
        if self._template is None:
            raise ValueError("chat: this model has no chat template")
        for index, message in enumerate(messages):
            for field in ("role", "content"):
                if not isinstance(message.get(field), str):
                    raise ValueError(f"messages[{index}].{field} {message.get(field)!r}: must be a string")
        jinja2 = need("jinja2", "real")
        sandbox = need("jinja2.sandbox", "real").ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        sandbox.globals["raise_exception"] = _refuse
        try:
            text = sandbox.from_string(self._template).render(
                messages=list(messages),
                add_generation_prompt=True,
                bos_token=self._bos_text,
                eos_token=self._eos_text,
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"chat template: {error}") from error
        return self.encode(text, parse_special=True)


def _refuse(message: str) -> None:
    raise ValueError(f"chat template: {message}")


def _spelling_of_bytes() -> list[str]:
    """Spell every byte as byte-level BPE does: printable Latin-1 as itself, the others from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
