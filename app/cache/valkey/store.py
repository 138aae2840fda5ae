"""The shared store: a Valkey or Redis server, used by the proxies of several machines."""

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

from app.cache.coordination import MAX_ANNOUNCEMENTS, Changes
from app.cache.entry import MAX_SKEW, Entry
from app.cache.purges import scopes_of
from app.cache.store import StoreStats
from app.cache.valkey.scripts import BACK_OFF, PURGE, PUT, RELEASE, TAKE
from app.cache.wire import pack, unpack
from app.errors import DamagedEntry, StoreError

#: The prefix of our keys on the server, with the version of the format.
KEY_PREFIX: Final = "doi-proxy:v1:"
#: Seconds after a failure in which the server is not queried. Otherwise an outage would cost each request a timeout.
PAUSE: Final = 1.0
#: Connections of one process. At 40 us a command, they carry more commands than one event loop can send.
_CONNECTIONS: Final = 32
#: Keys that one step of `scan` visits.
_PAGE: Final = 500

_ENTRY: Final = f"{KEY_PREFIX}entry:"
_LEASE: Final = f"{KEY_PREFIX}lease:"
_BUCKET: Final = f"{KEY_PREFIX}bucket:"
_STREAM: Final = f"{KEY_PREFIX}announcements"
_PURGES: Final = f"{KEY_PREFIX}purges"


class ValkeyStore:
    """A Store on a server. Entries expire at their hard expiry; the server's `maxmemory` limits their size.

    If the server fails or is slow, a method raises StoreError after at most twice `timeout`. For PAUSE seconds
    afterwards, it raises immediately.
    """

    def __init__(self, url: str, *, clock: Callable[[], float], timeout: float) -> None:
        """`url` has the scheme redis, rediss, valkey or valkeys, and may have user, password and database number.

        No connection is opened yet. `clock` gives seconds since the epoch, and `timeout` limits a connection attempt
        and each command, in seconds. Raises ValueError or TypeError for an
        invalid URL.
        """
        self._clock = clock
        self._host = urlsplit(url).hostname or "localhost"
        self._failed_at = -inf
        self._last_failure = ""
        self._connection_slots = asyncio.Semaphore(_CONNECTIONS)
        pool = BlockingConnectionPool.from_url(
            url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
            max_connections=_CONNECTIONS,
            # A caller with one of `_connection_slots` always finds a connection.
            timeout=None,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            # No handshake: a connection is ready as soon as it is open.
            protocol=2,
            driver_info=None,
        )
        # This connection only checks the options. Otherwise a wrong option would fail every command.
        pool.connection_class(**pool.connection_kwargs)
        self._server: Redis = Redis.from_pool(pool)
        self._put = self._server.register_script(PUT)
        self._purge = self._server.register_script(PURGE)
        self._take = self._server.register_script(TAKE)
        self._back_off = self._server.register_script(BACK_OFF)
        self._release = self._server.register_script(RELEASE)

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        data = await self._query("GET", _ENTRY + key)
        return None if data is None else self._usable(unpack(key, data))

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """See Store."""
        now = self._clock()
        left = int((entry.stale_until - now) * 1000)
        if left <= 0:
            return
        since_sent = "" if sent_at is None else max(0.0, now - sent_at)
        # An entry from the future was written before the clock was set back.
        times = (entry.fetched_at, now + MAX_SKEW) if unless_newer else ("", "")
        announced = entry.key if announce else ""
        arguments = [pack(entry), left, announced, since_sent, *times, *scopes_of(entry.key)]
        async with self._guard(decides=True):
            keys = [_ENTRY + entry.key, _PURGES, _STREAM]
            try:
                await self._put(keys=keys, args=arguments)
            except RedisTimeoutError:
                # As in `_query`. Written twice, the entry is the same.
                await self._put(keys=keys, args=arguments)

    async def delete(self, key: str) -> bool:
        """See Store. The server's clock tells the time of the purge."""
        async with self._guard():
            return bool(await self._purge(keys=[_ENTRY + key, _PURGES, _STREAM], args=[key]))

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store. The order is undefined, an entry may appear twice, and damaged entries are left out."""
        cursor, pattern = b"0", _ENTRY + _literal(prefix) + "*"
        while True:
            cursor, names = await self._query("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
            values = await self._query("MGET", *names) if names else []
            for name, data in zip(names, values, strict=True):
                entry = None if data is None else _try_unpack(name.decode(errors="replace")[len(_ENTRY) :], data)
                if entry is not None and self._usable(entry):
                    yield entry
            if int(cursor) == 0:
                return

    async def changes(self, cursor: str | None) -> Changes:
        """See Store. A server that lost its data returns only the announcements since then."""
        if cursor is None:
            newest = await self._query("XREVRANGE", _STREAM, "+", "-", "COUNT", 1)
            return Changes(newest[0][0].decode() if newest else "0-0")
        announcements = await self._query("XRANGE", _STREAM, cursor, "+", "COUNT", MAX_ANNOUNCEMENTS + 2)
        # The announcement at the cursor is the first one, unless it was trimmed.
        complete = bool(announcements) and announcements[0][0].decode() == cursor
        new = announcements[1:] if complete else announcements
        full = not complete and await self._query("XLEN", _STREAM) >= MAX_ANNOUNCEMENTS
        if not new:
            return Changes(cursor)
        keys = dict.fromkeys(fields.get(b"key", b"").decode(errors="replace") for _, fields in new)
        return Changes(new[-1][0].decode(), tuple(keys), overrun=full or len(new) > MAX_ANNOUNCEMENTS)

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """See Store. The server's clock counts the seconds."""
        # No retry: if the first attempt took the lease, the second would see it as someone else's.
        return await self._query_once("SET", _LEASE + key, owner, "NX", "PX", max(1, int(seconds * 1000))) is not None

    async def release(self, key: str, owner: str) -> None:
        """See Store."""
        async with self._guard():
            await self._release(keys=[_LEASE + key], args=[owner])

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0, count: int = 1) -> float:
        """See Store. The server's clock counts the seconds."""
        async with self._guard():
            return float(await self._take(keys=[_BUCKET + bucket], args=[rate, burst, leaving, count]))

    async def back_off(self, bucket: str, seconds: float) -> None:
        """See Store. The server's clock counts the seconds."""
        async with self._guard():
            await self._back_off(keys=[_BUCKET + bucket], args=[seconds])

    async def stats(self) -> StoreStats:
        """See Store. `entries` counts all keys of the database, `bytes` the memory of the server."""
        if self._is_paused():
            return self._unhealthy()
        try:
            entries = await self._query("DBSIZE")
            memory = await self._query("INFO", "memory")
        except StoreError:
            return self._unhealthy()
        return StoreStats(int(entries), int(memory["used_memory"]), True, f"Valkey server {self._host}")

    async def flush(self) -> None:
        """Do nothing: the server has each write before `put` returns."""

    async def close(self) -> None:
        """See Store."""
        async with self._guard(paused=False):
            await self._server.aclose(close_connection_pool=True)

    async def _query(self, *command: str | bytes | int) -> Any:
        """Send a command that may be repeated. A second timeout starts a pause."""
        async with self._guard(decides=True):
            try:
                return await self._server.execute_command(*command)  # type: ignore[no-untyped-call]
            except RedisTimeoutError:
                # If this process was busy for longer than the timeout, it sees the timeout although the reply is there.
                return await self._server.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _query_once(self, *command: str | bytes | int) -> Any:
        async with self._guard():
            return await self._server.execute_command(*command)  # type: ignore[no-untyped-call]

    def _usable(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.is_usable(self._clock()) else None

    def _unhealthy(self) -> StoreStats:
        return StoreStats(0, 0, False, f"Valkey server {self._host} failed: {self._last_failure}")

    @asynccontextmanager
    async def _guard(self, *, paused: bool = True, decides: bool = False) -> AsyncIterator[None]:
        """Translate errors, and stop querying a failed server for PAUSE seconds.

        A timeout counts as a failure only if `decides` is set. A single timeout can mean that this process was slow; a
        command that is sent twice decides whether it is the server.
        """
        if paused:
            self._refuse_while_paused()
        async with self._connection_slots:
            if paused:
                # The server may have failed while this command waited for a slot.
                self._refuse_while_paused()
            try:
                yield
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            # Catch everything: an exception missing from a hand-kept list would turn a miss into a failed request.
            except Exception as error:
                self._last_failure = str(error) or type(error).__name__
                if _is_about_one_key(error):
                    raise DamagedEntry(f"The key on {self._host} has data of another program: {error}.") from error
                if decides or not isinstance(error, RedisTimeoutError):
                    self._failed_at = self._clock()
                raise StoreError(f"The store {self._host} failed: {self._last_failure}.") from error

    def _is_paused(self) -> bool:
        # A clock that was set back must not prolong the pause.
        return 0.0 <= self._clock() - self._failed_at < PAUSE

    def _refuse_while_paused(self) -> None:
        if self._is_paused():
            raise StoreError(f"The store {self._host} failed a moment ago: {self._last_failure}")


def _is_about_one_key(error: Exception) -> bool:
    """Whether the server works and only this key has another type."""
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")


def _try_unpack(key: str, data: bytes) -> Entry | None:
    try:
        return unpack(key, data)
    except DamagedEntry:
        return None


def _literal(text: str) -> str:
    """Escape `text` for a glob-style pattern."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in text)
