"""Purges while the store cannot be opened: the workers of a machine share them, because the store cannot."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.sharing.memory import ROOM, SharedMemory
from doi_proxy.system.background import Service

log = logging.getLogger(__name__)

#: Purges that are shared, if there is room for so many. A worker reads them every second.
MAX_SHARED: Final = 1_000
#: Seconds for which a purge reaches a worker whose store is open. It may have been opened just before.
_RECENT: Final = 10.0
_EVERY: Final = 1.0


class SharedPurges(Service):
    """Announces the purges of this worker while it waits for the store, and repeats those of the others.

    `repeat` gets the body of a request to purge, and its name or "".
    """

    def __init__(
        self,
        memory: SharedMemory,
        cache: TieredStore,
        clock: Callable[[], float],
        repeat: Callable[[dict[str, Any], str], Awaitable[object]],
    ) -> None:
        """`memory` is shared by the workers."""
        self._memory = memory
        self._version = 0
        self._cache = cache
        self._clock = clock
        self._repeat = repeat
        #: The number of the last purge that this worker knows, and those of its own that are later.
        self._seen = 0
        self._own = set[int]()

    def announce(self, body: dict[str, Any], name: str) -> None:
        """Let the other workers repeat a purge, if this one waits for the store."""
        if not self._cache.waits_for_store:
            return

        def add(content: bytes) -> bytes:
            purges = _read(content)
            number = purges[-1][0] + 1 if purges else 1
            self._own.add(number)
            return _write([*purges, (number, self._clock(), body, name)][-MAX_SHARED:])

        if not self._memory.change(add, waits=True):
            log.error("a purge does not reach the other workers of this machine: one that was stopped holds the memory")

    async def run(self) -> None:
        """Follow the other workers until the end."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.follow()

    async def follow(self) -> None:
        """Repeat the purges of other workers since the last call. The store has those that were made before it opened.

        A worker that starts later repeats them all: its store can be one that is only read.
        """
        if (version := self._memory.version) == self._version:
            return
        self._version = version
        for number, at, body, name in _read(self._memory.read()):
            is_needed = self._cache.waits_for_store or self._clock() - at < _RECENT
            if number > self._seen and number not in self._own and is_needed:
                await self._repeat(body, name)
            self._seen = max(self._seen, number)
        self._own = {number for number in self._own if number > self._seen}


def _write(purges: list[tuple[int, float, dict[str, Any], str]]) -> bytes:
    """The newest purges for which there is room."""
    while len(content := json.dumps(purges).encode()) > ROOM and purges:
        purges = purges[len(purges) // 2 + 1 :]
    return content


def _read(content: bytes) -> list[tuple[int, float, dict[str, Any], str]]:
    """The purges in the content of the memory, in their order."""
    return [(number, at, body, name) for number, at, body, name in json.loads(content or b"[]")]
