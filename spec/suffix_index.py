"""Every substring of some texts, how often it occurs and what follows it most often: a suffix automaton with counts."""

from array import array
from collections.abc import Iterator, Sequence

MAX_LEADERS = 64
"""Followers of a state that are kept in order where it has more: no draft has more nodes."""


class SuffixIndex:
    """The substrings of texts, in classes of those that end at the same positions (Blumer et al. 1985).

    A state is a class: the strings of more than `length[link]` and up to `length` tokens that are suffixes of one
    another. `link` leads to the class of the next shorter suffix, a successor to the class of the strings with a
    token more, so that one text of N tokens has fewer than 2N states whatever the lengths that are asked for. Along the
    links from the state of the text's last `depth` tokens lie all the classes that one more token changes: an append
    takes that walk, and in a text that does not repeat itself it is short.

    What is said of strings up to `depth` tokens is exact. An occurrence counts from when its follower arrives, or its
    text ends: between appends `count` leaves out the suffixes of the last text.
    """

    __slots__ = (
        "_anchor",
        "_first_token",
        "_last",
        "_leaders",
        "_more",
        "best",
        "count",
        "depth",
        "first",
        "length",
        "link",
        "num_states",
        "successor",
        "text",
    )

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.text = array("i")
        #   of each state; 0 is the root, the empty string, and as a successor it is none
        self.length = array("i", (0,))
        self.link = array("i", (-1,))
        self.count = array("i", (0,))
        self.first = array("i", (0,))  # where it ends first
        self.best = array("i", (0,))  # its most frequent successor, ties to the lowest token
        self.successor = array("i", (0,))  # its oldest one,
        self._first_token = array("i", (0,))  # and the token that leads there
        self.num_states = 1
        self._more: dict[int, dict[int, int]] = {}  # the others, by token, of the states that have them
        self._leaders: dict[int, list[int]] = {}  # the best ones in order, of the states that have very many
        self._last = 0  # the state of the whole text
        self._anchor = 0  # and of its last `depth` tokens

    def append(self, tokens: Sequence[int]) -> None:
        """Add 32-bit tokens to the end of the text."""
        text, length, link, first = self.text, self.length, self.link, self.first
        count, best = self.count, self.best
        successor, first_token, more, leaders = self.successor, self._first_token, self._more, self._leaders
        depth, last, anchor = self.depth, self._last, self._anchor
        end = len(text)
        text.extend(tokens)
        self._make_room(2 * len(tokens))
        for token in tokens:
            new = 0
            if successor[last]:  # the text so far has occurred: in another text, for this one ends here
                new = self.step(last, token)
                if new and length[new] != length[last] + 1:
                    new = self._split(last, token, new)
            if not new:
                new = self.num_states
                self.num_states = new + 1
                length[new] = length[last] + 1
                first[new] = end
                state = last
                while state >= 0:
                    if first_token[state] == token:
                        found = successor[state]
                    else:
                        others = more.get(state)
                        found = 0 if others is None else others.get(token, 0)
                    if found:
                        if length[found] != length[state] + 1:
                            found = self._split(state, token, found)
                        link[new] = found
                        break
                    if not successor[state]:
                        successor[state] = new
                        first_token[state] = token
                    elif state in more:
                        more[state][token] = new
                        if len(more[state]) == MAX_LEADERS:
                            leaders[state] = []  # put in order below
                    else:
                        more[state] = {token: new}
                    state = link[state]
            last = new
            #   the text's suffixes before this token have a follower now: from the longest to the shortest
            state = anchor
            while state > 0:
                found = successor[state] if first_token[state] == token else more[state][token]
                count[state] += 1
                leader = best[state]
                if leader != found and (
                    not leader
                    or count[found] >= count[leader]
                    or (count[found] + 1 == count[leader] and token < text[first[leader]])
                ):
                    best[state] = found
                if state in leaders:
                    self._promote(state, found)
                state = link[state]
            anchor = successor[anchor] if first_token[anchor] == token else more[anchor][token]
            while length[link[anchor]] >= depth:
                anchor = link[anchor]
            end += 1
        self._last, self._anchor = last, anchor

    def end_text(self) -> None:
        """End the text: its last suffixes count as they stand, and what is appended next begins another text."""
        for state in self.suffixes():
            self.count[state] += 1
        self._last = self._anchor = 0

    def suffixes(self) -> Iterator[int]:
        """Give the states of the text's suffixes of up to `depth` tokens, longest first; the first may hold longer."""
        return self.suffixes_of(self._anchor)

    def suffixes_of(self, state: int) -> Iterator[int]:
        """Give a state and those of its ever shorter suffixes, without the empty one."""
        while state > 0:
            yield state
            state = self.link[state]

    def match(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Give the state and the length of the longest suffix of `tokens` that occurs in a text."""
        state = num_matched = 0
        for token in tokens:
            state, num_matched = self.advance(state, num_matched, token, len(tokens))
        return state, num_matched

    def advance(self, state: int, num_matched: int, token: int, longest: int) -> tuple[int, int]:
        """Give the match that `token` leaves of one of `num_matched` tokens; it has `longest` tokens at most."""
        link, length = self.link, self.length
        found = self.step(state, token)
        while not found and state:
            state = link[state]
            num_matched = length[state]
            found = self.step(state, token)
        if not found:
            return 0, 0
        num_matched = min(num_matched + 1, longest)
        while length[link[found]] >= num_matched:
            found = link[found]
        return found, num_matched

    def token_of(self, state: int) -> int:
        """Give the token that all strings of a state end with."""
        return self.text[self.first[state]]

    def followers(self, state: int, least: int) -> list[int]:
        """Give the successors of a state that occur `least` times or more, most frequent first, ties by token.

        Of very many, the best MAX_LEADERS, some of which may occur less.
        """
        if state not in self._more:
            only = self.successor[state]
            return [only] if only and self.count[only] >= least else []
        return self._leaders.get(state) or self._in_order(state, least)

    def _in_order(self, state: int, least: int) -> list[int]:
        count, text, first = self.count, self.text, self.first
        found = [each for each in self._more[state].values() if count[each] >= least]
        if count[self.successor[state]] >= least:
            found.append(self.successor[state])
        if len(found) < 2:
            return found
        found.sort(key=lambda successor: (-count[successor], text[first[successor]]))
        return found[:MAX_LEADERS]

    def step(self, state: int, token: int) -> int:
        """Give the successor of a state by a token, 0 where there is none."""
        if self._first_token[state] == token:
            return self.successor[state]
        others = self._more.get(state)
        return 0 if others is None else others.get(token, 0)

    def _make_room(self, num_more: int) -> None:
        """Have states of their own ready for so many classes: a token adds two at most."""
        short = self.num_states + num_more - len(self.length)
        if short > 0:
            blank = bytes(self.length.itemsize * (short + len(self.length) // 8))
            for field in (self.length, self.link, self.count, self.first, self.best):
                field.frombytes(blank)
            self.successor.frombytes(blank)
            self._first_token.frombytes(blank)

    def _split(self, state: int, token: int, whole: int) -> int:
        """Part from a class the strings that `state` leads to by a token, and their suffixes: these end once more.

        They are then the most frequent successors that they were: `append` has them compared again.
        """
        link, best, more, leaders = self.link, self.best, self._more, self._leaders
        part = self.num_states
        self.num_states = part + 1
        self.length[part] = self.length[state] + 1
        link[part] = link[whole]
        link[whole] = part
        self.first[part] = self.first[whole]
        self.count[part] = self.count[whole]
        best[part] = best[whole]
        self.successor[part] = self.successor[whole]
        self._first_token[part] = self._first_token[whole]
        if whole in more:
            more[part] = more[whole].copy()
        if whole in leaders:
            leaders[part] = leaders[whole].copy()
        while state >= 0 and self.step(state, token) == whole:
            if self._first_token[state] == token:
                self.successor[state] = part
            else:
                more[state][token] = part
            if state in leaders:
                leaders[state] = [part if leader == whole else leader for leader in leaders[state]]
            state = link[state]
        return part

    def _promote(self, state: int, risen: int) -> None:
        """Put a successor that has one occurrence more than `count` says in its place among the leaders."""
        count, text, first = self.count, self.text, self.first
        order = self._leaders[state]
        num_risen = count[risen] + 1
        if not order:
            count[risen] = num_risen
            order[:] = self._in_order(state, 0)
            count[risen] = num_risen - 1
            return
        if num_risen < count[order[-1]]:
            return
        at = order.index(risen) if risen in order else len(order)
        token = text[first[risen]]
        #   the leaders before it that it has overtaken move back by one
        to = at
        while to:
            num = count[order[to - 1]]
            if num > num_risen or (num == num_risen and text[first[order[to - 1]]] < token):
                break
            to -= 1
        if at < len(order):
            if to < at:
                order.insert(to, order.pop(at))
        elif to < at:
            order.insert(to, risen)
            order.pop()
