"""Text to ids and back, and a conversation to ids, with the tables of a model's own files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from models.extras import need
from models.loading.byte_pairs import END_TEXTS

if TYPE_CHECKING:
    from models.loading.chat_template import ChatTemplate


class Tokenizer:
    """A byte-level BPE tokenizer with its control tokens and chat template."""

    def __init__(
        self,
        built: Any,
        *,
        vocab_size: int,
        end_ids: Iterable[int] = (),
        eos_id: int | None = None,
        bos_id: int | None = None,
        prefix: Sequence[int] = (),
        silent_ids: Iterable[int] = (),
        chat_template: str | None = None,
        strftime_now: Callable[[str], str] | None = None,
    ) -> None:
        """Wrap a `tokenizers.Tokenizer` for a model of `vocab_size` ids.

        `prefix` goes before every prompt, `end_ids` and `eos_id` end a text, `bos_id` and `eos_id` have a name in chat
        templates, `silent_ids` have no text; nor have ids past the tokenizer's own, which a model may have for padding.
        Raises ValueError when the tokens are not spelled byte by byte.
        """
        if '"ByteLevel"' not in built.to_str():
            raise ValueError("tokenizer: only byte-level BPE is known")
        built.no_truncation()  # a file may ask for either, for training
        built.no_padding()
        self.vocab_size = vocab_size
        """Ids are in `[0, vocab_size)`."""
        self._with_special = built
        self._plain = need("tokenizers", "real").Tokenizer.from_str(built.to_str())
        self._plain.encode_special_tokens = True  # encode their spelling as ordinary text
        self._added: Mapping[int, Any] = built.get_added_tokens_decoder()
        self._silent = frozenset(silent_ids)
        texts = {i for i, token in self._added.items() if token.special and token.content in END_TEXTS}
        ends = {*end_ids, *texts, *(() if eos_id is None else (eos_id,))}
        self.eos_ids = frozenset(i for i in ends if 0 <= i < vocab_size)
        self._prefix = list(prefix)
        self._bos_id, self._eos_id = bos_id, eos_id
        self._template, self._strftime_now = chat_template, strftime_now
        self._bytes = {spelled: byte for byte, spelled in enumerate(_spelling_of_bytes())}

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of `text`. What spells a control token is that token only with `parse_special`.

        Raises ValueError for a lone surrogate, and for a token that the model has no row for.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"text has half a surrogate pair at {error.start}, which is no character") from error
        encoder = self._with_special if parse_special else self._plain
        #   of the library's calls this one lets other threads run meanwhile
        ids: list[int] = encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if max(ids, default=0) >= self.vocab_size:
            token = self._with_special.id_to_token(max(ids))
            raise ValueError(f"text has {token!r}, id {max(ids)}: the model knows ids in [0, {self.vocab_size})")
        return ids if ids[: len(self._prefix)] == self._prefix else self._prefix + ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; control tokens have none, and broken UTF-8 becomes the replacement character."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Bytes of one id, maybe a part of a character. ValueError out of the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise ValueError(f"id {token} is out of the vocabulary [0, {self.vocab_size})")
        known = self._added.get(token)
        if known is not None:
            return b"" if known.special else known.content.encode()
        spelled = None if token in self._silent else self._with_special.id_to_token(token)
        if spelled is None:
            return b""
        try:
            return bytes(self._bytes[character] for character in spelled)
        except KeyError:  # not spelled byte by byte: it stands for itself
            return bytes(spelled.encode())

    def spelling(self, token: int) -> str | None:
        """How the tables spell an id, control tokens included; None for one that they do not have."""
        spelled: str | None = self._with_special.id_to_token(token)
        return spelled

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation up to where the assistant speaks, each message with `role` and `content`.

        A message with `tool_calls` needs no content. A message that spells a control token is taken at its word, as
        chat templates do. ValueError without a template, for a message without text, and for messages the template
        refuses.
        """
        if self._template is None:
            raise ValueError("chat: this model has no chat template")
        for index, message in enumerate(messages):
            needed = ("role",) if message.get("tool_calls") else ("role", "content")
            for field in needed:
                if not isinstance(message.get(field), str):
                    raise ValueError(f"messages[{index}].{field} {message.get(field)!r}: must be a string")
        return self.encode(self._chat_template.render(messages), parse_special=True)

    @cached_property
    def _chat_template(self) -> "ChatTemplate":
        need("jinja2", "real")
        from models.loading.chat_template import ChatTemplate  # noqa: PLC0415  # what renders it is an extra

        assert self._template is not None
        bos, eos = ("" if i is None else self._with_special.id_to_token(i) or "" for i in (self._bos_id, self._eos_id))
        return ChatTemplate(self._template, bos, eos, self._strftime_now)


def _spelling_of_bytes() -> list[str]:
    """Spell every byte as byte-level BPE does: printable Latin-1 as itself, the others from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
