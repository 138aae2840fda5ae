"""A store on a Valkey or Redis server, which proxies of several machines share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from doi_proxy.cache.entry import MAX_SKEW, Entry
from doi_proxy.cache.store import MAX_ANNOUNCEMENTS, NOT_FOUND, PURGE_MEMORY, UNKNOWN, Changes, StoreStats, scopes_of
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.valkey.client import ValkeyServer, Words
from doi_proxy.store.stored_entry import STORE_FORMAT, pack, unpack

log = logging.getLogger(__name__)

#: The prefix of our keys on the server, with the format of the store. Programs of two formats can share a server.
KEY_PREFIX: Final = f"doi-proxy:{STORE_FORMAT}:"
_ENTRY: Final = f"{KEY_PREFIX}entry:"
#: A key for each scope that was purged. It ends PURGE_MEMORY after the purge, so the rest of its time tells how long
#: ago that was, by the server's clock alone.
_PURGE: Final = f"{KEY_PREFIX}purge:"
_PURGE_MILLISECONDS: Final = int(PURGE_MEMORY * 1000)
_COUNTER: Final = f"{KEY_PREFIX}counter:"
#: Seconds without use after which a counter starts at 0 again.
COUNTER_IDLE: Final = 60
#: The stream of the names to forget. It is trimmed by whole nodes of 100 entries.
FEED: Final = f"{KEY_PREFIX}feed"
#: The cursor before the first entry of a stream.
_START: Final = "0-0"
_READ_TOGETHER: Final = 16


class ValkeyStore:
    """A Store on a server. Entries expire at their hard expiry; the server's `maxmemory` limits their size.

    If the server fails or is slow, a method raises StoreError; see ValkeyServer.
    """

    def __init__(self, url: str, *, clock: Callable[[], float], timeout: float, read_only: bool = False) -> None:
        """`url` has one of feature.SCHEMES. No connection is opened yet.

        `clock` gives seconds since the epoch, and `timeout` limits a connection attempt and each command, in seconds.
        With `read_only`, `stats` does not test whether it can be written. Raises ValueError or TypeError for an invalid
        URL.
        """
        self._clock = clock
        self._read_only = read_only
        self._server = ValkeyServer(url, clock=clock, timeout=timeout)

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        data = await self._server.call("GET", f"{_ENTRY}{key}", read=_return_same)
        return None if data is None else self._drop_expired(unpack(key, data))

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """See Store. Another process can write between the look at the entry that is there and this write.

        That window is a millisecond, and what it can cost is one more query, or that a name must be purged again.
        """
        left = int((entry.stale_until - self._clock()) * 1000)
        if left <= 0:
            return
        looks = [("PTTL", f"{_PURGE}{scope}") for scope in (*scopes_of(entry.key), UNKNOWN, NOT_FOUND)]
        purges = await self._server.call_all(*looks, read=_return_same)
        now = self._clock()
        # Ages are compared, because the clocks of hosts differ. A negative one is of a purge before the clock of the
        # server was set back.
        ages = [PURGE_MEMORY - rest / 1000 for rest in purges if isinstance(rest, int) and rest >= 0]
        if sent_at is not None and any(0.0 <= age < now - sent_at for age in ages):
            return
        if unless_newer:
            data = await self._server.call("GET", f"{_ENTRY}{entry.key}", read=_return_same)
            known = None if data is None else _try_unpack(entry.key, data)
            if known is not None and entry.fetched_at < known.fetched_at <= now + MAX_SKEW and known.is_usable(now):
                return
        write: Words = ("SET", f"{_ENTRY}{entry.key}", pack(entry), "PX", left)
        await self._server.call_all(write, *[_announcement(entry.key)] * announce, read=_return_same)

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """See Store."""
        deletion = "DEL", f"{_ENTRY}{key}"
        if not announce:
            return await self._server.call(*deletion, read=int) == 1
        purge = "SET", f"{_PURGE}{key}", 1, "PX", _PURGE_MILLISECONDS
        return await self._server.call_all(purge, deletion, _announcement(key), read=lambda replies: replies[1] == 1)

    async def announce(self, scope: str) -> None:
        """See Store."""
        await self._server.call(*_announcement(scope), read=_return_same)

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store. The order is undefined, an entry may appear twice, and damaged entries are left out.

        Raises StoreError, also if a cluster has other primaries at the end.
        """
        primaries = await self._server.primaries()
        pattern = f"{_ENTRY}{_escape(prefix)}*"
        for node in primaries:
            cursor = 0
            while True:
                # Keys that one step of a scan visits, and entries that it reads together. A record has at most 256 KiB.
                scan = "SCAN", cursor, "MATCH", pattern, "COUNT", 500
                cursor, names = await self._server.call(*scan, read=_read_page, at=node)
                for start in range(0, len(names), _READ_TOGETHER):
                    for entry in await self._read_entries(names[start : start + _READ_TOGETHER]):
                        yield entry
                if cursor == 0:
                    break
        if await self._server.primaries() != primaries:
            raise StoreError("The servers of the store changed while it was read; repeat the command.")

    async def _read_entries(self, names: list[bytes]) -> list[Entry]:
        found = list[Entry]()
        replies = await self._server.call_all(*(("GET", name) for name in names), read=_return_same)
        for name, data in zip(names, replies, strict=True):
            key = name.decode(errors="replace").removeprefix(_ENTRY)
            entry = None if data is None else self._drop_expired(_try_unpack(key, data))
            if entry is not None:
                found.append(entry)
        return found

    async def changes(self, cursor: str | None) -> Changes:
        """See Store. The entry at the cursor is read again: if it is missing, so is other data, or it was trimmed."""
        if cursor is None:
            return Changes(await self._find_end())
        keys, at, is_missing = list[str](), cursor, False
        while len(keys) < MAX_ANNOUNCEMENTS:
            # Entries of the stream that one command reads.
            page = await self._server.call("XRANGE", FEED, at, "+", "COUNT", 250, read=_read_feed)
            if page is None:
                log.warning("The stream %s has entries of another program, and is deleted.", FEED)
                await self._server.call("DEL", FEED, read=_return_same)
                break
            if at != _START:
                is_missing = is_missing or not page or page[0][0] != at
                page = [each for each in page if each[0] != at]
            if not page:
                if is_missing:
                    # A purge of the last second may be lost too, if no other process has read it.
                    log.warning("%s has lost its data, and gets what this process has in memory.", self._server.label)
                    at = await self._find_end()
                return Changes(at, tuple(dict.fromkeys(keys)), data_lost=is_missing)
            keys += (key for _, key in page)
            at = page[-1][0]
        log.warning("Names to forget were lost; no entry that is in memory now is used.")
        return Changes(await self._find_end(), overrun=True)

    async def _find_end(self) -> str:
        """The cursor after the newest entry of the stream."""
        return await self._server.call("XREVRANGE", FEED, "+", "-", "COUNT", 1, read=_read_end)

    async def read_note(self, name: str) -> bytes | None:
        """See Store. Data of another program counts as none, and the next write replaces it."""
        data = await self._server.call("GET", f"{KEY_PREFIX}{name}", read=_read_data)
        # Bytes of the longest note: 10,000 names of 200 characters have fewer. To read more would hold the event loop.
        if data is None or len(data) <= (8 * 1024 * 1024):
            return data
        log.warning("%s%s has %d bytes of another program; the next write replaces it.", KEY_PREFIX, name, len(data))
        return None

    async def write_note(self, name: str, data: bytes) -> None:
        """See Store."""
        await self._server.call("SET", f"{KEY_PREFIX}{name}", data, read=_return_same)

    async def spend(self, name: str) -> int:
        """See Store."""
        counter = f"{_COUNTER}{name}"
        counting = ("INCR", counter), ("EXPIRE", counter, COUNTER_IDLE)
        return await self._server.call_all(*counting, read=lambda replies: int(replies[0]))

    async def stats(self) -> StoreStats:
        """See Store. `entries` counts all keys of the database, `bytes` the memory of the servers.

        A store that this process may write to is asked to: its primary may refuse writes, or have no replicas.
        """
        entries = memory = 0
        label = self._server.label
        try:
            for node in await self._server.primaries():
                entries += await self._server.call("DBSIZE", read=int, at=node)
                memory += await self._server.call("INFO", "memory", read=lambda info: int(info["used_memory"]), at=node)
        except StoreError as error:
            return StoreStats(0, 0, False, f"{label}: {error.message}")
        try:
            if not self._read_only:
                # It changes nothing: the key does not exist.
                await self._server.call("SET", f"{KEY_PREFIX}probe", 1, "XX", read=_return_same)
        except StoreError as error:
            detail = f"{label} can be read, but not written: {error.message}"
            return StoreStats(entries, memory, False, detail, is_read_only=True)
        return StoreStats(entries, memory, True, label)

    async def flush(self) -> None:
        """Do nothing: the server has each write before `put` returns."""

    async def close(self) -> None:
        """See Store."""
        await self._server.close()

    def _drop_expired(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.is_kept(self._clock()) else None


def _announcement(scope: str) -> Words:
    return "XADD", FEED, "MAXLEN", "~", MAX_ANNOUNCEMENTS, "*", "key", scope


def _return_same(reply: Any) -> Any:
    """A reply that is not used, or whose user expects any shape."""
    return reply


def _read_data(reply: Any) -> bytes | None:
    """The value of a key, None if there is none."""
    if reply is None or isinstance(reply, bytes):
        return reply
    raise TypeError


def _try_unpack(key: str, data: object) -> Entry | None:
    try:
        return unpack(key, data)
    except DamagedEntry:
        return None


def _read_page(reply: Any) -> tuple[int, list[bytes]]:
    """The next cursor of a scan, and its keys."""
    cursor, names = reply
    return int(cursor), [bytes.join(b"", [name]) for name in names]


def _read_end(reply: Any) -> str:
    return reply[0][0].decode() if reply else _START


def _read_feed(reply: Any) -> list[tuple[str, str]] | None:
    """The ids and the names of entries of the stream. None if one of them is not ours."""
    page = list[tuple[str, str]]()
    for at, fields in reply:
        key = fields.get(b"key")
        # Bytes of the longest name, with some room. A longer entry of the stream is another program's.
        if len(fields) != 1 or key is None or len(key) > 9_000:
            return None
        page.append((at.decode(), key.decode(errors="replace")))
    return page


def _escape(text: str) -> str:
    """A text as a part of a glob-style pattern."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in text)
