"""The prefix index: which full blocks hold which tokens, as a trie with one root per cache salt.

A node stands for the exact tokens of one block after the exact tokens of its ancestors, so a path from a root spells
a prefix. Usually one block holds a node's content; several do when sequences computed the same text side by side.

    root(salt) -- [t0 .. tB-1] -- [tB .. t2B-1] -- ...
                   blocks {7}      blocks {3, 12}

Children are found by the bytes of their token ids: equal bytes are equal tokens, so no hash alone decides a match.
"""

from array import array
from collections.abc import Iterable, KeysView, Sequence

from kvpool.errors import KvPoolError

Salt = str | tuple[str | None, str] | None
"""Whom a prefix may be shared with, and, in a pair, what is kept beside its KV."""


class _Node:
    """The content of one block in its context. A root has a salt for key, no parent and no blocks."""

    __slots__ = ("_child", "_others", "key", "oldest", "parent", "younger")

    def __init__(self, key: bytes | Salt, parent: "_Node | None") -> None:
        self.key = key
        self.parent = parent
        self._child: _Node | None = None
        self._others: dict[bytes | Salt, _Node] | None = None  # by their keys; nearly always there are none
        self.oldest: int | None = None  # of the blocks with this content
        self.younger: dict[int, None] | None = None  # the others in order; nearly always there are none

    def child(self, key: bytes) -> "_Node | None":
        """Find what continues this with a block of such tokens."""
        child = self._child
        if child is not None and child.key == key:
            return child
        return None if self._others is None else self._others.get(key)

    def children(self) -> "list[_Node]":
        """Every node that continues this."""
        first = [] if self._child is None else [self._child]
        return first if self._others is None else [*first, *self._others.values()]

    @property
    def has_children(self) -> bool:
        """Whether anything continues this."""
        return self._child is not None or self._others is not None

    def link(self, child: "_Node") -> None:
        """Take one child more, of a key that none has."""
        if self._child is None:
            self._child = child
        elif self._others is None:
            self._others = {child.key: child}
        else:
            self._others[child.key] = child

    def unlink(self, child: "_Node") -> None:
        """Forget one of the children."""
        if child is self._child:
            self._child = None
        else:
            assert self._others is not None, "a child that the node does not have"
            del self._others[child.key]
            self._others = self._others or None

    def unlink_all(self) -> "list[_Node]":
        """Forget the children; which they were."""
        children = self.children()
        self._child = self._others = None
        return children

    def blocks(self) -> list[int]:
        """Every block with this content, the oldest first."""
        return [] if self.oldest is None else [self.oldest, *(self.younger or ())]

    def add(self, block: int) -> None:
        """Take one block more."""
        if self.oldest is None:
            self.oldest = block
        elif self.younger is None:
            self.younger = {block: None}
        else:
            self.younger[block] = None

    def remove(self, block: int) -> None:
        """Forget one of its blocks; the next in age is the oldest after the oldest."""
        if block != self.oldest:
            assert self.younger is not None, "a block that the node does not have"
            del self.younger[block]
        elif self.younger is None:
            self.oldest = None
        else:
            self.oldest = next(iter(self.younger))
            del self.younger[self.oldest]
        self.younger = self.younger or None


def _token_bytes(tokens: Sequence[int]) -> bytes:
    """Token ids as int32 bytes."""
    try:
        return array("i", tokens).tobytes()
    except (OverflowError, TypeError) as error:
        raise KvPoolError(f"tokens: ids must be integers of 32 bits ({error})") from error


class PrefixIndex:
    """Which blocks can be shared, and by which tokens they are found. It knows nothing of owners."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._roots: dict[Salt, _Node] = {}
        self._nodes: dict[int, _Node] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._nodes

    def blocks(self) -> KeysView[int]:
        """Every block the index knows."""
        return self._nodes.keys()

    def add(self, block: int, tokens: Sequence[int], parent: int | None, salt: Salt) -> None:
        """Index `block` as holding `tokens` after what `parent` ends; without a parent, first under `salt`.

        Raises KvPoolError for a wrong number of tokens, a block that is known, or a parent that is not.
        """
        if len(tokens) != self._block_tokens:
            raise KvPoolError(f"tokens: {len(tokens)} ids, a block holds exactly {self._block_tokens}")
        if block in self._nodes:
            raise KvPoolError(f"block {block} is in the prefix index already")
        if parent is not None and parent not in self._nodes:
            raise KvPoolError(f"parent {parent} is not in the prefix index")
        key = _token_bytes(tokens)
        above = self._root(salt) if parent is None else self._nodes[parent]
        node = above.child(key)
        if node is None:
            node = _Node(key, above)
            above.link(node)
        node.add(block)
        self._nodes[block] = node

    def match(self, tokens: Sequence[int], salt: Salt) -> list[int]:
        """Find the longest indexed chain of full blocks that spells a proper prefix of `tokens` under `salt`."""
        size = self._block_tokens
        found: list[int] = []
        node = self._roots.get(salt)
        if node is None:
            return found
        # One token at least is left to feed: a block that ends where the prompt ends is not asked for.
        for start in range(0, len(tokens) - size, size):
            node = node.child(_token_bytes(tokens[start : start + size]))
            if node is None:
                break
            assert node.oldest is not None, "a linked node has a block"
            found.append(node.oldest)
        return found

    def discard(self, block: int) -> list[int]:
        """Forget `block`; the blocks that can no longer be reached, because it was the last of its content."""
        node = self._nodes.pop(block)
        node.remove(block)
        if node.oldest is not None:
            return []
        above = node.parent
        assert above is not None, "a root holds no block"
        above.unlink(node)
        if above.parent is None and not above.has_children:
            del self._roots[above.key]  # type: ignore[arg-type]  # and a root's key is its salt
        return self._drop([node])

    def clear(self) -> None:
        """Forget everything."""
        self._drop(list(self._roots.values()))
        self._roots.clear()

    def check(self) -> None:
        """Raise KvPoolError unless the blocks found from the roots are exactly the known ones. O(blocks known)."""
        num_reached = 0
        pending: list[tuple[Salt, _Node]] = list(self._roots.items())
        for salt, root in pending:
            if root.key != salt or root.parent is not None or root.oldest is not None or not root.has_children:
                raise KvPoolError(f"prefix index: the root of salt {salt!r} is malformed")
        stack = [child for _, root in pending for child in self._linked(root)]
        while stack:
            node = stack.pop()
            blocks = node.blocks()
            if not blocks:
                raise KvPoolError("prefix index: a node without a block")
            if any(self._nodes.get(block) is not node for block in blocks):
                raise KvPoolError(f"prefix index: blocks {blocks} are not known by their node")
            num_reached += len(blocks)
            stack.extend(self._linked(node))
        if num_reached != len(self._nodes):
            raise KvPoolError(f"prefix index: knows {len(self._nodes)} blocks, {num_reached} can be reached")

    def _linked(self, node: _Node) -> Iterable[_Node]:
        size = self._block_tokens * array("i").itemsize
        for child in node.children():
            key = child.key
            is_found = isinstance(key, bytes) and len(key) == size and node.child(key) is child
            if child.parent is not node or not is_found:
                raise KvPoolError("prefix index: a child that does not know its parent or its tokens")
            yield child

    def _root(self, salt: Salt) -> _Node:
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = _Node(salt, None)
        return root

    def _drop(self, stack: list[_Node]) -> list[int]:
        """Take subtrees apart, so that no cycle of nodes is left to a collector; the blocks they knew."""
        dropped: list[int] = []
        while stack:
            node = stack.pop()
            dropped.extend(node.blocks())
            stack.extend(node.unlink_all())
        for block in dropped:
            del self._nodes[block]
        return dropped
