"""The shared store: a Valkey or Redis server that the proxies of several machines share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.cache.entry import Entry
from app.cache.store import MOST_ANNOUNCEMENTS, Changes, StoreStats
from app.cache.valkey.scripts import BACK_OFF, RELEASE, TAKE
from app.cache.wire import pack, unpack
from app.errors import DamagedEntry, StoreError

#: Every key of ours on the server begins so; the number is the version of the format.
KEY_PREFIX: Final = "doi-proxy:v1:"
#: How long a connection attempt, and each command, may take, in seconds.
TIMEOUT: Final = 0.1
#: After a failure the server is left alone for so long, in seconds: an outage must not cost each request TIMEOUT.
PAUSE: Final = 1.0
#: Connections of one process; at 40 us a command they carry more than one event loop can ask.
_CONNECTIONS: Final = 32
#: Keys that one step of `scan` looks at.
_PAGE: Final = 500

_ENTRY: Final = f"{KEY_PREFIX}entry:"
_LEASE: Final = f"{KEY_PREFIX}lease:"
_BUCKET: Final = f"{KEY_PREFIX}bucket:"
_STREAM: Final = f"{KEY_PREFIX}announcements"


class ValkeyStore:
    """A Store on a server. Entries leave at their hard expiry; the server's own `maxmemory` bounds them.

    A server that fails or is slow raises StoreError after at most twice `timeout`, and then at once for `pause`.
    """

    def __init__(self, url: str, *, clock: Callable[[], float], timeout: float = TIMEOUT, pause: float = PAUSE) -> None:
        """`url`: redis, rediss, valkey or valkeys, with user, password and database number; no connection is made
        yet. `clock` gives seconds since the epoch. Raises ValueError or TypeError for a URL that cannot be read."""
        self._clock = clock
        self._pause = pause
        self._place = urlsplit(url).hostname or "localhost"
        self._failed_at = -inf
        self._last_failure = ""
        self._places = asyncio.Semaphore(_CONNECTIONS)
        pool = BlockingConnectionPool.from_url(
            url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
            max_connections=_CONNECTIONS,
            # Whoever has one of `_places` finds a connection.
            timeout=None,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            # No round trips of introduction: a connection is ready when it is open.
            protocol=2,
            driver_info=None,
        )
        # Made for its errors alone: an option that no connection knows is found now and not by every command.
        pool.connection_class(**pool.connection_kwargs)
        self._server: Redis = Redis.from_pool(pool)
        self._take = self._server.register_script(TAKE)
        self._back_off = self._server.register_script(BACK_OFF)
        self._release = self._server.register_script(RELEASE)

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        data = await self._asked("GET", _ENTRY + key)
        return None if data is None else self._usable(unpack(key, data))

    async def put(self, entry: Entry, *, announce: bool = False) -> None:
        """See Store."""
        left = int((entry.stale_until - self._clock()) * 1000)
        if left <= 0:
            return
        command = ("SET", _ENTRY + entry.key, pack(entry), "PX", left)
        if announce:
            await self._announced(entry.key, *command)
        else:
            await self._asked(*command)

    async def delete(self, key: str) -> bool:
        """See Store."""
        return bool(await self._announced(key, "DEL", _ENTRY + key))

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store. In no order, and an entry may come twice; damaged ones are left out."""
        cursor, pattern = b"0", _ENTRY + _literal(prefix) + "*"
        while True:
            cursor, names = await self._asked("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
            found = await self._asked("MGET", *names) if names else []
            for name, data in zip(names, found, strict=True):
                entry = None if data is None else _readable(name.decode(errors="replace")[len(_ENTRY) :], data)
                if entry is not None and self._usable(entry):
                    yield entry
            if int(cursor) == 0:
                return

    async def changes(self, cursor: str | None) -> Changes:
        """See Store. A server that lost its data tells what was announced since, and nothing of what it lost."""
        if cursor is None:
            newest = await self._asked("XREVRANGE", _STREAM, "+", "-", "COUNT", 1)
            return Changes(newest[0][0].decode() if newest else "0-0")
        found = await self._asked("XRANGE", _STREAM, cursor, "+", "COUNT", MOST_ANNOUNCEMENTS + 2)
        # The announcement that the cursor names is still there, unless it was trimmed away.
        complete = bool(found) and found[0][0].decode() == cursor
        news = found[1:] if complete else found
        full = not complete and await self._asked("XLEN", _STREAM) >= MOST_ANNOUNCEMENTS
        if not news:
            return Changes(cursor)
        keys = dict.fromkeys(fields.get(b"key", b"").decode(errors="replace") for _, fields in news)
        return Changes(news[-1][0].decode(), tuple(keys), overrun=full or len(news) > MOST_ANNOUNCEMENTS)

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """See Store. The server's clock counts the seconds."""
        # Asked once: asked for twice, a lease that was taken would look like someone else's.
        return await self._asked_once("SET", _LEASE + key, owner, "NX", "PX", max(1, int(seconds * 1000))) is not None

    async def release(self, key: str, owner: str) -> None:
        """See Store."""
        async with self._guarded():
            await self._release(keys=[_LEASE + key], args=[owner])

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0) -> float:
        """See Store. The server's clock counts the seconds."""
        async with self._guarded():
            return float(await self._take(keys=[_BUCKET + bucket], args=[rate, burst, leaving]))

    async def back_off(self, bucket: str, seconds: float) -> None:
        """See Store. The server's clock counts the seconds."""
        async with self._guarded():
            await self._back_off(keys=[_BUCKET + bucket], args=[seconds])

    async def stats(self) -> StoreStats:
        """See Store. Counts are those of the whole database and of the server's memory."""
        if self._is_paused():
            return self._unhealthy()
        try:
            entries = await self._asked("DBSIZE")
            memory = await self._asked("INFO", "memory")
        except StoreError:
            return self._unhealthy()
        return StoreStats(int(entries), int(memory["used_memory"]), True, f"Valkey server {self._place}")

    async def flush(self) -> None:
        """Nothing: the server has each write before `put` returns."""

    async def close(self) -> None:
        """See Store."""
        async with self._guarded(paused=False):
            await self._server.aclose(close_connection_pool=True)

    async def _asked(self, *command: str | bytes | int) -> Any:
        """Ask for something that may be asked for twice: a server that is slow twice is left alone for a while."""
        async with self._guarded(decides=True):
            try:
                return await self._server.execute_command(*command)  # type: ignore[no-untyped-call]
            except RedisTimeoutError:
                # A process that was busy for longer than the timeout sees the timeout before the answer that is there.
                return await self._server.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _asked_once(self, *command: str | bytes | int) -> Any:
        async with self._guarded():
            return await self._server.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _announced(self, key: str, *command: str | bytes | int) -> Any:
        async with self._guarded(), self._server.pipeline(transaction=True) as pipeline:
            pipeline.execute_command(*command)
            pipeline.execute_command("XADD", _STREAM, "MAXLEN", "~", MOST_ANNOUNCEMENTS, "*", "key", key)
            return (await pipeline.execute())[0]

    def _usable(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.is_usable(self._clock()) else None

    def _unhealthy(self) -> StoreStats:
        return StoreStats(0, 0, False, f"Valkey server {self._place} failed: {self._last_failure}")

    @asynccontextmanager
    async def _guarded(self, *, paused: bool = True, decides: bool = False) -> AsyncIterator[None]:
        """Translate errors, and leave a server alone that failed; of timeouts, only one that `decides` counts as that.

        The next command that may be asked for twice tells whether it was the server that was slow, or this process.
        """
        if paused:
            self._refuse_while_paused()
        async with self._places:
            if paused:
                # The server may have failed while this command waited for its place.
                self._refuse_while_paused()
            try:
                yield
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            # All others: what is missing from a list of the library's errors would be an answer's failure.
            except Exception as error:
                self._last_failure = str(error) or type(error).__name__
                if _is_about_one_key(error):
                    raise DamagedEntry(f"The store {self._place} holds something else there: {error}.") from error
                if decides or not isinstance(error, RedisTimeoutError):
                    self._failed_at = self._clock()
                raise StoreError(f"The store {self._place} failed: {self._last_failure}.") from error

    def _is_paused(self) -> bool:
        # A clock that was set back must not prolong the pause.
        return 0.0 <= self._clock() - self._failed_at < self._pause

    def _refuse_while_paused(self) -> None:
        if self._is_paused():
            raise StoreError(f"The store {self._place} failed a moment ago: {self._last_failure}")


def _is_about_one_key(error: Exception) -> bool:
    """Whether the server works and only this key is of another type."""
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")


def _readable(key: str, data: bytes) -> Entry | None:
    try:
        return unpack(key, data)
    except DamagedEntry:
        return None


def _literal(text: str) -> str:
    """`text` as a glob-style pattern that matches nothing else."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in text)
