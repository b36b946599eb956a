"""The fleet's front door: requests find their replica there, and another one where that is gone."""

import asyncio
import hashlib
import struct
from array import array
from collections.abc import Callable
from itertools import chain as joined

from actors import EngineFull, EngineStats, RequestError
from sims.clients import Answer, Measures
from sims.config import SimConfig
from sims.fleet.replica import Replica, total
from sims.fleet.routing import Ask, Router, chain
from sims.fleet.stream import RoutedStream
from sims.workload import Client, Workload


class FleetDoor:
    """Takes requests in, as an engine does, for whichever replica; and is the log that clients listen to."""

    failure = None

    def __init__(self, config: SimConfig, workload: Workload) -> None:
        assert config.fleet is not None
        engine, self._fleet = config.engine, config.fleet
        self._config = config
        self._router = Router(self._fleet.router, self._fleet.replicas, engine.block_tokens, engine.num_blocks)
        self.replicas = [
            Replica(index, config, workload, self._router, self._take_back, self._place_waiting)
            for index in range(self._fleet.replicas)
        ]
        self.moved: list[RoutedStream] = []
        """Every request that was lost by a replica, or found none at first, in that order."""
        self.num_retries = 0
        self._next_seq = 0
        self._waiting: list[RoutedStream] = []
        self._watched: dict[int, RoutedStream] = {}
        self._hash = hashlib.blake2b(digest_size=16)

    def submit(self, client: Client) -> RoutedStream:
        """Take in a client's request. Raises what an engine raises, EngineFull where all are."""
        request, salt = client.request, client.request.cache_salt
        keys = chain(request.prompt, self._config.engine.block_tokens, salt) if self._fleet.router == "prefix" else []
        routed = RoutedStream(request, self._next_seq, Ask(len(request.prompt), keys, client.conversation))
        self._place(routed)
        self._next_seq += 1
        self._watched[routed.seq] = routed
        return routed

    def measures_of(self, answer: Answer) -> Measures:
        """Give what is measured of the replica that an answer comes from."""
        assert isinstance(answer, RoutedStream)
        return self.replicas[answer.replica or 0].measures

    def stats(self) -> EngineStats:
        """Give the numbers of all replicas together."""
        return total([replica.stats() for replica in self.replicas])

    # the log

    @property
    def num_steps(self) -> int:
        """Passes of all replicas."""
        return sum(rig.log.num_steps for replica in self.replicas for rig in replica.rigs)

    @property
    def num_messages(self) -> int:
        """Messages in all replicas."""
        return sum(replica.num_messages for replica in self.replicas)

    @property
    def peak_held(self) -> int:
        """The sum over replicas of the most blocks that each held."""
        return sum(replica.peak_held for replica in self.replicas)

    @property
    def blocks_back_s(self) -> "array[float]":
        """From cancel to blocks, of all replicas."""
        return array("d", joined.from_iterable(replica.blocks_back_s for replica in self.replicas))

    @property
    def digest(self) -> str:
        """Of the messages in all replicas, and of which request went where and when."""
        whole = self._hash.copy()
        for replica in self.replicas:
            whole.update(replica.digest.encode())
        return whole.hexdigest()

    def watch(self, seq: int, watcher: Callable[[int], None]) -> None:
        """Call `watcher` with the tokens of each pass that feeds the request, wherever."""
        routed = self._watched[seq]
        routed.watcher = watcher
        if (stream := routed.engine_stream) is not None and routed.replica is not None:
            self.replicas[routed.replica].rigs[-1].log.watch(stream.seq, watcher)

    def unwatch(self, seq: int) -> None:
        """Stop watching a request."""
        routed = self._watched.pop(seq)
        routed.watcher = None
        if (stream := routed.engine_stream) is not None and routed.replica is not None:
            self.replicas[routed.replica].rigs[-1].log.unwatch(stream.seq)

    # placing

    def _place(self, routed: RoutedStream) -> None:
        """Send a request to a replica; it waits where there is none. Raises EngineFull where all are."""
        able = [replica.index for replica in self.replicas if replica.is_able]
        full: EngineFull | None = None
        while (index := self._router.choose(routed.ask, able)) is not None:
            try:
                self.replicas[index].submit(routed)
            except EngineFull as error:
                able.remove(index)
                full = error
                continue
            now_s = asyncio.get_running_loop().time()
            self._router.sent(index, routed.ask, now_s)
            self._hash.update(struct.pack("<dqq", now_s, routed.seq, index))
            return
        if full is not None:
            raise full
        self._waiting.append(routed)
        self._note_moved(routed)

    def _place_again(self, routed: RoutedStream) -> None:
        if not routed.is_between:  # its client has left
            return
        try:
            self._place(routed)
        except EngineFull:
            asyncio.get_running_loop().call_later(max(self._fleet.retry_s, 1e-3), self._place_again, routed)
        except RequestError as error:
            routed.refuse(str(error))

    def _place_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for routed in waiting:
            self._place_again(routed)

    def _take_back(self, lost: list[RoutedStream]) -> None:
        """Send again what a replica has taken along."""
        for routed in lost:
            self.num_retries += 1
            self._note_moved(routed)
            asyncio.get_running_loop().call_later(self._fleet.retry_s, self._place_again, routed)

    def _note_moved(self, routed: RoutedStream) -> None:
        if not routed.has_moved:
            routed.has_moved = True
            self.moved.append(routed)
