"""The shared store: a Valkey or Redis server, used by the proxies of several machines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from app.cache.coordination import MAX_ANNOUNCEMENTS, Changes
from app.cache.entry import MAX_SKEW, Entry
from app.cache.purges import scopes_of
from app.cache.store import StoreStats
from app.cache.valkey.node import Node, Script, command
from app.cache.valkey.scripts import BACK_OFF, PURGE, PUT, RELEASE, TAKE
from app.cache.valkey.url import parse_store_url
from app.cache.wire import pack, unpack
from app.errors import DamagedEntry, StoreError

#: The prefix of our keys on the server, with the version of the format.
KEY_PREFIX: Final = "doi-proxy:v1:"
#: Keys that one step of `scan` visits.
_PAGE: Final = 500

_ENTRY: Final = f"{KEY_PREFIX}entry:"
_LEASE: Final = f"{KEY_PREFIX}lease:"
_BUCKET: Final = f"{KEY_PREFIX}bucket:"
_STREAM: Final = f"{KEY_PREFIX}announcements"
_PURGES: Final = f"{KEY_PREFIX}purges"

_PUT: Final = Script(PUT)
_PURGE: Final = Script(PURGE)
_TAKE: Final = Script(TAKE)
_BACK_OFF: Final = Script(BACK_OFF)
_RELEASE: Final = Script(RELEASE)


class ValkeyStore:
    """A Store on a server. Entries expire at their hard expiry; the server's `maxmemory` limits their size.

    If the server fails or is slow, a method raises StoreError; see Node.
    """

    def __init__(self, url: str, *, clock: Callable[[], float], timeout: float) -> None:
        """`url` has one of url.SCHEMES. No connection is opened yet.

        `clock` gives seconds since the epoch, and `timeout` limits a connection attempt and each command, in seconds.
        Raises ValueError or TypeError for an invalid URL.
        """
        self._clock = clock
        parsed = parse_store_url(url)
        self._node = Node(parsed.addresses[0], parsed.options, clock=clock, timeout=timeout)

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
        # Written twice, the entry is the same.
        await self._node.call(_PUT.work([_ENTRY + entry.key, _PURGES, _STREAM], arguments), repeat=True)

    async def delete(self, key: str) -> bool:
        """See Store. The server's clock tells the time of the purge."""
        return bool(await self._node.call(_PURGE.work([_ENTRY + key, _PURGES, _STREAM], [key])))

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
        taken = command("SET", _LEASE + key, owner, "NX", "PX", max(1, int(seconds * 1000)))
        return await self._node.call(taken) is not None

    async def release(self, key: str, owner: str) -> None:
        """See Store."""
        await self._node.call(_RELEASE.work([_LEASE + key], [owner]))

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0, count: int = 1) -> float:
        """See Store. The server's clock counts the seconds."""
        return float(await self._node.call(_TAKE.work([_BUCKET + bucket], [rate, burst, leaving, count])))

    async def back_off(self, bucket: str, seconds: float) -> None:
        """See Store. The server's clock counts the seconds."""
        await self._node.call(_BACK_OFF.work([_BUCKET + bucket], [seconds]))

    async def stats(self) -> StoreStats:
        """See Store. `entries` counts all keys of the database, `bytes` the memory of the server."""
        if self._node.is_paused:
            return self._unhealthy()
        try:
            entries = await self._query("DBSIZE")
            memory = await self._query("INFO", "memory")
        except StoreError:
            return self._unhealthy()
        return StoreStats(int(entries), int(memory["used_memory"]), True, f"Valkey server {self._node.address}")

    async def flush(self) -> None:
        """Do nothing: the server has each write before `put` returns."""

    async def close(self) -> None:
        """See Store."""
        await self._node.close()

    async def _query(self, *words: str | bytes | int) -> Any:
        """Send a command that may be repeated."""
        return await self._node.call(command(*words), repeat=True)

    def _usable(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.is_usable(self._clock()) else None

    def _unhealthy(self) -> StoreStats:
        return StoreStats(0, 0, False, f"Valkey server {self._node.address} failed: {self._node.last_failure}")


def _try_unpack(key: str, data: bytes) -> Entry | None:
    try:
        return unpack(key, data)
    except DamagedEntry:
        return None


def _literal(text: str) -> str:
    """Escape `text` for a glob-style pattern."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in text)
