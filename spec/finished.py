"""What finished requests have said, indexed for those that still run."""

from array import array
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable

from spec.config import MAX_MATCH_TOKENS
from spec.errors import check_int
from spec.suffix_index import SuffixIndex

DEFAULT_FINISHED_TOKENS = 65_536


class FinishedRequests:
    """The texts of finished requests, apart by `cache_salt`; the oldest go first beyond `most_tokens`.

    `add` costs next to nothing; the texts wait until `take_in` indexes them, as much at a time as its caller can spare.
    A salt's newest quarter of `most_tokens` is always there; where many salts share the room, those go whole that have
    gained nothing for longest. Of a text longer than an eighth the end is kept.
    """

    def __init__(self, most_tokens: int = DEFAULT_FINISHED_TOKENS) -> None:
        check_int("most_tokens", most_tokens, 8)
        self._most_tokens = most_tokens
        self._by_salt: OrderedDict[Hashable, _Texts] = OrderedDict()
        self._waiting: deque[tuple[Hashable, array[int]]] = deque()
        self._num_waiting = 0
        self._num_taken = 0  # tokens of the first waiting text that are indexed already

    @property
    def num_waiting(self) -> int:
        """Tokens that are still to be taken in."""
        return self._num_waiting

    @property
    def num_tokens(self) -> int:
        """Tokens that drafts are made of."""
        return sum(len(texts.current.text) for texts in self._by_salt.values())

    def add(self, salt: Hashable, tokens: Iterable[int]) -> None:
        """Let a finished request's tokens wait to be taken in; of too many that wait the oldest are dropped."""
        text = array("i", tokens)[-(self._most_tokens // 8) :]
        if not text:
            return
        self._waiting.append((salt, text))
        self._num_waiting += len(text)
        while self._num_waiting > self._most_tokens:
            at = 1 if self._num_taken else 0  # the first one is half indexed
            self._num_waiting -= len(self._waiting[at][1])
            del self._waiting[at]

    def take_in(self, num_tokens: int) -> None:
        """Index at most `num_tokens` of the tokens that wait: some microseconds each."""
        while num_tokens > 0 and self._waiting:
            salt, text = self._waiting[0]
            if not self._num_taken:
                self._make_room(salt, len(text))
            texts = self._by_salt[salt]
            piece = text[self._num_taken : self._num_taken + num_tokens]
            texts.append(piece)
            num_tokens -= len(piece)
            self._num_waiting -= len(piece)
            self._num_taken += len(piece)
            if self._num_taken == len(text):
                texts.end()
                self._waiting.popleft()
                self._num_taken = 0

    def _make_room(self, salt: Hashable, num_tokens: int) -> None:
        if salt not in self._by_salt:
            self._by_salt[salt] = _Texts(self._most_tokens)
        self._by_salt.move_to_end(salt)
        self._by_salt[salt].begin(num_tokens)
        while len(self._by_salt) > 1 and self.num_tokens + num_tokens > self._most_tokens:
            self._by_salt.popitem(last=False)

    def index(self, salt: Hashable) -> SuffixIndex | None:
        """Give the index of a salt's texts; None where there are none."""
        texts = self._by_salt.get(salt)
        return None if texts is None else texts.current


class _Texts:
    """The texts of one salt.

    An index forgets nothing, so a second one is begun when the first is half full, and takes its place when that is
    full: a text is indexed twice at most, and at no moment are all of them indexed anew.
    """

    __slots__ = ("_filled", "_heir", "_most_tokens", "current")

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self.current = SuffixIndex(MAX_MATCH_TOKENS)
        self._heir = SuffixIndex(MAX_MATCH_TOKENS)
        self._filled: tuple[SuffixIndex, ...] = ()

    def begin(self, num_tokens: int) -> None:
        """Begin a text of at most an eighth of `most_tokens`."""
        if len(self.current.text) + num_tokens > self._most_tokens:
            self.current, self._heir = self._heir, SuffixIndex(MAX_MATCH_TOKENS)
        is_half_full = len(self.current.text) + num_tokens > self._most_tokens // 2
        self._filled = (self.current, self._heir) if is_half_full else (self.current,)

    def append(self, tokens: "array[int]") -> None:
        """Add to the text that was begun."""
        for index in self._filled:
            index.append(tokens)

    def end(self) -> None:
        """End the text."""
        for index in self._filled:
            index.end_text()
