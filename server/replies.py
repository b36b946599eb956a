"""The JSON of answers, whole and in chunks, in the shapes of OpenAI's API."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from actors import Stream, Token
from server.job import Job
from server.scoring import Scored
from server.text import Ruler
from server.tokens import Tokenizer

Json = dict[str, Any]


class Choice:
    """What one choice has said so far: its text and tokens, and why it ended."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text = ""
        self.tokens: list[Token] = []
        self.num_tokens = 0
        self.scored: list[Scored] = []
        """Of the prompt's tokens and its own, where alternatives are wanted."""
        self.ruler = Ruler()
        self.is_over = False
        """Nothing is said any more but what is left of the text, and why it ended."""
        self.finish_reason: str | None = None


class Replies:
    """Builds the answers to one job."""

    def __init__(self, job: Job, model_name: str, tokenizer: Tokenizer) -> None:
        self._job = job
        self._tokenizer = tokenizer
        self._head = {"id": job.id, "object": "", "created": int(time.time()), "model": model_name}

    def first_chunk(self, index: int) -> Json:
        """Say who speaks (chat only)."""
        delta = {"role": "assistant", "content": ""}
        said = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._chunk([said], self._usage_so_far(index, 0))

    def chunk(self, choice: Choice, text: str, tokens: Sequence[Token]) -> Json:
        """Give a choice's next text, and the tokens it took; the reason with the last of it."""
        said: Json = {"index": choice.index}
        if self._job.is_chat:
            said["delta"] = {"content": text} if text or choice.finish_reason is None else {}
        else:
            said["text"] = text
        return self._chunk(
            [self._with_tokens(said, choice, tokens)], self._usage_so_far(choice.index, choice.num_tokens)
        )

    def usage_chunk(self, choices: Sequence[Choice], streams: Sequence[Stream]) -> Json:
        """Give what the whole request cost: the last chunk."""
        return {**self._chunk([], self._usage(choices, streams)), "metrics": self._metrics(choices, streams)}

    def whole(self, choices: Sequence[Choice], streams: Sequence[Stream]) -> Json:
        """Give everything at once."""
        said = []
        for choice in choices:
            one: Json = {"index": choice.index}
            if self._job.is_chat:
                one["message"] = {"role": "assistant", "content": choice.text}
            else:
                one["text"] = choice.text
            said.append(self._with_tokens(one, choice, choice.tokens))
        kind = "chat.completion" if self._job.is_chat else "text_completion"
        usage, metrics = self._usage(choices, streams), self._metrics(choices, streams)
        return {**self._head, "object": kind, "choices": said, "usage": usage, "metrics": metrics}

    def token_bytes(self, token: Token) -> bytes:
        """Bytes of a token."""
        return self.bytes_of(token.id)

    def bytes_of(self, token: int) -> bytes:
        """Bytes of an id; those that only pad a model's vocabulary have none."""
        return self._tokenizer.token_bytes(token) if token < self._tokenizer.vocab_size else b""

    def echo(self, choice: Choice, prompt: Sequence[int]) -> list[Token]:
        """Give a prompt's tokens, to be said before a choice's own; their places are counted from its end."""
        logprobs = [scored.logprob for scored in choice.scored] or [None] * len(prompt)
        return [
            Token(id_, logprob, i - len(prompt)) for i, (id_, logprob) in enumerate(zip(prompt, logprobs, strict=True))
        ]

    def text_of(self, tokens: Sequence[Token]) -> str:
        """Text of tokens."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")

    def _chunk(self, choices: list[Json], usage: Json | None) -> Json:
        kind = "chat.completion.chunk" if self._job.is_chat else "text_completion"
        chunk = {**self._head, "object": kind, "choices": choices}
        return {**chunk, "usage": usage} if self._job.includes_usage else chunk

    def _usage_so_far(self, index: int, num_tokens: int) -> Json | None:
        """Say what one choice alone has cost up to here, to who asks for it with every chunk."""
        if not self._job.counts_as_it_goes:
            return None
        num_prompt_tokens = len(self._job.requests[index].prompt)
        return _counts(num_prompt_tokens, num_tokens)

    def _with_tokens(self, said: Json, choice: Choice, tokens: Sequence[Token]) -> Json:
        said["logprobs"] = self._logprobs(choice, tokens) if self._job.wants_logprobs else None
        said["finish_reason"] = choice.finish_reason
        if self._job.returns_tokens:
            said["tokens"] = [
                {"id": token.id, "text": self._text(token), "accepted": token.is_accepted}
                for token in tokens
                if token.index >= 0
            ]
        return said

    def _logprobs(self, choice: Choice, tokens: Sequence[Token]) -> Json:
        texts = [self._text(token) for token in tokens]
        logprobs = [token.logprob for token in tokens]
        tops = [self._top(choice, token) for token in tokens]
        if self._job.is_chat:
            content = [
                {"token": text, "logprob": logprob, "bytes": list(self.token_bytes(token)), "top_logprobs": top}
                for token, text, logprob, top in zip(tokens, texts, logprobs, map(self._entries, tops), strict=True)
            ]
            return {"content": content, "refusal": None}
        by_text = list(map(self._by_text, tops)) if self._job.num_top else None
        offsets = [choice.ruler.advance(self.token_bytes(token)) for token in tokens]
        return {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": by_text, "text_offset": offsets}

    def _top(self, choice: Choice, token: Token) -> list[tuple[int, float]]:
        """List the likeliest tokens in the place of one; itself, where it is not among them, comes last."""
        if not self._job.num_top or token.logprob is None:
            return []
        scored = choice.scored[len(self._job.requests[choice.index].prompt) + token.index]
        top = [(i, token.logprob if i == token.id else logprob) for i, logprob in scored.top]
        is_there = self._job.is_chat or any(i == token.id for i, _ in top)
        return top if is_there else [*top, (token.id, token.logprob)]

    def _entries(self, top: Sequence[tuple[int, float]]) -> list[Json]:
        data = [(self.bytes_of(i), logprob) for i, logprob in top]
        return [
            {"token": part.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(part)}
            for part, logprob in data
        ]

    def _by_text(self, top: Sequence[tuple[int, float]]) -> dict[str, float] | None:
        found: dict[str, float] = {}
        for i, logprob in top:  # of several tokens with one text, the likeliest
            text = self.bytes_of(i).decode("utf-8", "replace")
            found[text] = max(logprob, found.get(text, logprob))
        return found or None

    def _text(self, token: Token) -> str:
        return self.token_bytes(token).decode("utf-8", "replace")

    def _usage(self, choices: Sequence[Choice], streams: Sequence[Stream]) -> Json:
        prompt, completion = self._job.num_prompt_tokens, sum(choice.num_tokens for choice in choices)
        per_prompt = len(streams) // self._job.num_prompts
        #   a prompt counts once, however many choices it has: so does what the cache had of it
        cached = sum(stream.num_cached_tokens or 0 for stream in streams[::per_prompt])
        return {**_counts(prompt, completion), "prompt_tokens_details": {"cached_tokens": cached}}

    def _metrics(self, choices: Sequence[Choice], streams: Sequence[Stream]) -> Json:
        #   of the rounds whose tokens were given out: a stop string may have cut the last one, or what came behind it
        told = [stream.speculation(choice.num_tokens) for choice, stream in zip(choices, streams, strict=True)]
        accepted = [num for one in told for num in one.accepted_by_draft]
        num_drafted = sum(one.num_drafted for one in told)
        by_count = Counter(accepted)
        return {
            "speculative_decoding": {
                "draft_acceptance_rate": sum(accepted) / num_drafted if num_drafted else 0.0,
                "mean_acceptance_length": 1 + sum(accepted) / len(accepted) if accepted else 1.0,
                "acceptance_histogram": [by_count[i] for i in range(self._job.num_spec_tokens + 1)],
                "num_spec_steps": len(accepted),
                "num_draft_tokens": num_drafted,
                "num_accepted_draft_tokens": sum(accepted),
                "num_spec_tokens": self._job.num_spec_tokens,
            }
        }


def _counts(prompt: int, completion: int) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
