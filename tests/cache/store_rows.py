"""The stores of the contract: how a test opens one, lets its time pass, and damages it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from redis.crc import key_slot

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import MAX_ANNOUNCEMENTS, Store
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.features.valkey.store import KEY_PREFIX, ValkeyStore
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import NEVER
from tests.features.valkey.valkey_cluster import PRIMARIES
from tests.world.loop import WorldLoop
from tests.world.network import Network
from tests.world.valkey import URL, Valkey

#: A loaded test machine may take longer than a server on the same network; nothing here waits for it.
_TIMEOUT: Final = 5.0
_SLOTS: Final = 16_384


class Row:
    """A kind of store. The stores that it opens are those of several processes that share their entries."""

    #: Announcements after a cursor that are certainly kept, and how many more make one of them certainly lost.
    kept, more = MAX_ANNOUNCEMENTS, 1

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._opened = AsyncExitStack()

    async def open(self) -> Store:
        """The store of one more process."""
        store = self._create()
        self._opened.push_async_callback(store.close)
        return store

    async def close(self) -> None:
        """Close all stores. More can be opened afterwards."""
        await self._opened.aclose()

    def advance(self, seconds: float) -> None:
        """Let time pass for every process, or set all clocks back."""
        self.clock.advance(seconds)

    def overwrite(self, data: Mapping[str, bytes]) -> None:
        """Replace the bytes of entries."""
        raise NotImplementedError

    def _create(self) -> Store:
        raise NotImplementedError


class MemoryRow(Row):
    """Memory, which is shared by being the same."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._store = MemoryStore(10_000_000, clock=clock)

    def _create(self) -> Store:
        return self._store


class SqliteRow(Row):
    """One file."""

    def __init__(self, clock: Clock, path: Path) -> None:
        super().__init__(clock)
        self.path = path

    def overwrite(self, data: Mapping[str, bytes]) -> None:
        self._execute("UPDATE entries SET data = ? WHERE key = ?", [(value, key) for key, value in data.items()])

    def _execute(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(statement, rows)

    def _create(self) -> Store:
        return SqliteStore(self.path, clock=self.clock, max_bytes=100_000_000, gather=NEVER)


class ServerRow(Row):
    """One server, the primary that Sentinel names, or a cluster: `clients` are those of its primaries."""

    # The announcement at the cursor is kept too. A stream is trimmed by whole nodes of 100.
    kept, more = MAX_ANNOUNCEMENTS - 1, 201

    def __init__(self, clock: Clock, url: str, clients: Sequence[Any]) -> None:
        super().__init__(clock)
        self._url, self._clients = url, clients
        for client in clients:
            client.flushdb()

    def advance(self, seconds: float) -> None:
        """The clock of a server cannot be set, so the end of every key moves back."""
        super().advance(seconds)
        for client in self._clients:
            for key in list(client.scan_iter()):
                if (left := client.pttl(key)) > 0:
                    client.pexpire(key, left - int(seconds * 1000))

    def overwrite(self, data: Mapping[str, bytes]) -> None:
        for key, value in data.items():
            name = f"{KEY_PREFIX}entry:{key}"
            client = self._clients[key_slot(name.encode()) * len(self._clients) // _SLOTS]
            client.set(name, value)

    def _create(self) -> Store:
        return ValkeyStore(self._url, clock=self.clock, timeout=_TIMEOUT)


class _ModelClient:
    """Commands to the model of a server, as its client sends them."""

    def __init__(self, server: Valkey) -> None:
        self._call = server.keys.call
        self.flushdb, self.set = partial(self._call, "FLUSHDB"), partial(self._call, "SET")


class ModelRow(ServerRow):
    """The model of a server that worlds use, so what simulations find holds for a server."""

    def __init__(self, clock: Clock, network: Network) -> None:
        self._server = Valkey(network, time.time)
        super().__init__(clock, URL, [_ModelClient(self._server)])

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._server.ahead += seconds


def open_row(name: str, clock: Clock, folder: Path, request: pytest.FixtureRequest) -> Row:
    """An empty store of this kind."""
    match name:
        case "memory":
            return MemoryRow(clock)
        case "sqlite":
            return SqliteRow(clock, folder / "store.sqlite3")
        case "model":
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WorldLoop)
            return ModelRow(clock, loop.network)
        case "valkey":
            return ServerRow(clock, request.getfixturevalue("valkey_url"), [request.getfixturevalue("valkey_client")])
        case "sentinel":
            sentinels = request.getfixturevalue("session_sentinels")
            return ServerRow(clock, sentinels.url, [sentinels.primary.client])
        case _:
            cluster = request.getfixturevalue("session_cluster")
            primaries = cluster.primaries()
            assert len(primaries) == PRIMARIES
            return ServerRow(clock, cluster.url, [server.client for server in primaries])
