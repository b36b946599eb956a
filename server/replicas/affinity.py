"""Which replica a prompt goes to: one that has read its beginning, unless that one is much busier than the others."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

_CHUNK_BYTES = 256
_MAX_CHUNKS = 64
_MAX_KEYS = 65536
_MAX_LEAD = 8  # requests that a replica may have more than the idlest and still get one for its prefix


class _Beginning(msgspec.Struct):
    """What of a body decides what a prefix cache may have; as it was sent, and nothing of it read."""

    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()


def prefix_keys(body: bytes, salt: bytes) -> list[bytes]:
    """Name each beginning of a request's prompt, a chunk longer than the one before; none where it is short or no JSON.

    `salt` keeps apart those whose prefixes are cached apart.
    """
    try:
        said = msgspec.json.decode(body, type=_Beginning)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    text = bytes(said.prompt) or bytes(said.messages)
    hashed = hashlib.blake2b(salt, digest_size=8)
    keys = []
    for end in range(_CHUNK_BYTES, min(len(text), _CHUNK_BYTES * _MAX_CHUNKS) + 1, _CHUNK_BYTES):
        hashed.update(text[end - _CHUNK_BYTES : end])
        keys.append(hashed.digest())
    return keys


class Affinity:
    """Remembers which replica last got each beginning; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._replica_of: OrderedDict[bytes, str] = OrderedDict()
        self._num_routed: Counter[str] = Counter()

    def rank(self, keys: Sequence[bytes], num_open: Mapping[str, int]) -> list[str]:
        """Order the replicas of `num_open`, the best first: who has the longest beginning, then who has least to do."""
        by_load = sorted(num_open, key=lambda replica: (num_open[replica], self._num_routed[replica], replica))
        known = next((self._replica_of[key] for key in reversed(keys) if self._replica_of.get(key) in num_open), None)
        if known is None or num_open[known] - num_open[by_load[0]] > _MAX_LEAD:
            return by_load
        return [known, *(replica for replica in by_load if replica != known)]

    def note(self, keys: Sequence[bytes], replica: str) -> None:
        """Remember where a request has gone."""
        self._num_routed[replica] += 1
        for key in keys:
            self._replica_of[key] = replica
            self._replica_of.move_to_end(key)
        while len(self._replica_of) > _MAX_KEYS:
            self._replica_of.popitem(last=False)
