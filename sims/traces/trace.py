"""Recorded traffic: when requests came, how long they were, and which of them began alike."""

from collections import Counter

import msgspec

from sims.prompts import mix, text_of


class TraceRow(msgspec.Struct, frozen=True):
    """One request: its arrival in seconds from the trace's first, its lengths in tokens, its prompt's hash ids.

    A row of a `session` comes after the answer to the session's row before it: `delay_s` after, or, where that is None,
    at `at_s` if the answer is there by then.
    """

    at_s: float
    num_prompt: int
    num_output: int
    hash_ids: list[int] = []
    session: str | None = None
    delay_s: float | None = None


class Trace(msgspec.Struct):
    """A trace in order of arrival, a session's rows in order.

    With hashes, every id stands for `hash_block` tokens of the prompt and for all that came before them; without,
    that is 0. `unused` counts the rows of the file that cannot be served, by reason.
    """

    name: str
    format: str
    rows: list[TraceRow]
    hash_block: int
    has_times: bool
    num_rows: int
    unused: dict[str, int]

    def without_too_long(self, max_model_len: int, num_positions: int) -> "Trace":
        """Set aside the rows that a sequence, or the whole pool, has no room for: the last token needs none."""
        unused = Counter(self.unused)
        rows = []
        for row in self.rows:
            needed = row.num_prompt + row.num_output - 1
            if needed > max_model_len:
                unused[f"longer than max_model_len ({max_model_len})"] += 1
            elif needed > num_positions:
                unused[f"longer than the pool ({num_positions} positions)"] += 1
            else:
                rows.append(row)
        return msgspec.structs.replace(self, rows=rows, unused=dict(unused))

    def prompt(self, index: int, vocab_size: int) -> list[int]:
        """Write the prompt of a row with hashes: equal leading ids give equal tokens, and nothing else does.

        hash blocks   |---- id 0 ----|---- id 1 ----|- id 2 -|        the last may be cut short, or be missing:
        KV blocks     |--|--|--|--|--|--|--|--|--|--|--|--|--         what no id covers is the row's own
        """
        row = self.rows[index]
        tokens: list[int] = []
        state = 0
        for hash_id in row.hash_ids:
            state = mix(state, hash_id)
            tokens += text_of(state, min(self.hash_block, row.num_prompt - len(tokens)), vocab_size).tolist()
        if len(tokens) < row.num_prompt:
            own = mix(mix(state, -1), index)
            tokens += text_of(own, row.num_prompt - len(tokens), vocab_size).tolist()
        return tokens
