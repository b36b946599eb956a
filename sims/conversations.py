"""Which requests of a trace without sessions are turns of one conversation."""

from collections.abc import Sequence


class Conversations:
    """A prompt that begins with all of an earlier one carries on its conversation; each prompt is carried on once."""

    def __init__(self) -> None:
        self._by_prompt: dict[int, str] = {}
        self._num = 0

    def of(self, blocks: Sequence[int]) -> str:
        """Name the conversation of the next prompt, given as the ids of its full blocks."""
        keys = [0]
        for block in blocks:
            keys.append(hash((keys[-1], block)))
        #   the longest prompt that this one begins with; one without a full block says nothing
        before = next((key for key in reversed(keys[1:]) if key in self._by_prompt), None)
        if before is None:
            self._num += 1
            name = f"c{self._num}"
        else:
            name = self._by_prompt.pop(before)
        if len(keys) > 1:
            self._by_prompt[keys[-1]] = name
        return name
