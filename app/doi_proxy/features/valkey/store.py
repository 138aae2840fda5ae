"""The shared store: a Valkey or Redis server, used by the proxies of several machines."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

from doi_proxy.cache.store import Changes
from doi_proxy.cache.entry import MAX_SKEW, Entry
from doi_proxy.cache.purges import has_many_keys, scopes_of
from doi_proxy.cache.store import StoreStats
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.valkey.node import StoreSlow

BucketSettling = StoreError
from doi_proxy.features.valkey import scripts
from doi_proxy.features.valkey.announcements import read_announcements
from doi_proxy.features.valkey.layout import Partition, find_layout
from doi_proxy.features.valkey.node import Access, Script, Work, command
from doi_proxy.features.valkey.replies import read_anything, read_data, read_number
from doi_proxy.features.valkey.scan import scan_entries
from doi_proxy.features.valkey.servers import call, open_servers
from doi_proxy.features.valkey.url import parse_store_url
from doi_proxy.store.stored_entry import pack, unpack

log = logging.getLogger(__name__)

#: Bytes of the longest note: 10,000 names of 200 characters have fewer. To read more would hold the event loop.
_MAX_NOTE_BYTES: Final = 8 * 1024 * 1024

_ANNOUNCE: Final = Script(scripts.ANNOUNCE)
_PUT: Final = Script(scripts.PUT)
_PURGE: Final = Script(scripts.PURGE)
_TAKE: Final = Script(scripts.TAKE)
_BACK_OFF: Final = Script(scripts.BACK_OFF)
_LEASE: Final = Script(scripts.LEASE)
_RELEASE: Final = Script(scripts.RELEASE)
_RENEW: Final = Script(scripts.RENEW)


class ValkeyStore:
    """A Store on a server. Entries expire at their hard expiry; the server's `maxmemory` limits their size.

    If the server fails or is slow, a method raises StoreError; see Node.
    """

    def __init__(self, url: str, *, clock: Callable[[], float], timeout: float, read_only: bool = False) -> None:
        """`url` has one of feature.SCHEMES. No connection is opened yet.

        `clock` gives seconds since the epoch, and `timeout` limits a connection attempt and each command, in seconds.
        With `read_only`, `stats` does not test whether it can be written. Raises ValueError or TypeError for an invalid
        URL.
        """
        self._clock = clock
        self._read_only = read_only
        place = parse_store_url(url)
        self._layout = find_layout(place.kind)
        self._servers = open_servers(place, clock=clock, timeout=timeout)
        #: How often `take` of a bucket has failed since its last token.
        self._failures: Counter[str] = Counter()

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        return await self._look_up(key, Access.READ)

    async def get_late(self, key: str) -> Entry | None:
        """See PatientStore."""
        return await self._look_up(key, Access.LATE)

    async def _look_up(self, key: str, access: Access) -> Entry | None:
        partition = self._layout.find(key)
        look_up = command("GET", partition.entry(key), read=read_data)
        data = await call(self._servers, partition.slot, look_up, access)
        return None if data is None else self._kept(unpack(key, data))

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
        times = entry.fetched_at if unless_newer else "", now + MAX_SKEW
        unverified_at = "" if entry.answer.is_verified else now
        announced = entry.key if announce else ""
        arguments = [pack(entry), left, announced, since_sent, *times, *scopes_of(entry.key), unverified_at]
        partition = self._layout.find(entry.key)
        keys = [partition.entry(entry.key), partition.purges, partition.announcements]
        # Written twice, the entry is the same.
        await call(self._servers, partition.slot, _PUT.work(keys, arguments), Access.WRITE)

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """See Store. The time of the purge is that of the server's clock."""
        if not announce:
            partition = self._layout.find(key)
            deletion = command("DEL", partition.entry(key), read=read_number)
            return await call(self._servers, partition.slot, deletion, Access.WRITE) == 1
        # A prefix, and everything, concern the keys of all partitions.
        partitions = self._layout.partitions if has_many_keys(key) else (self._layout.find(key),)
        results = await asyncio.gather(
            *(self._purge(partition, key) for partition in partitions), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return any(results)

    async def _announce(self, partition: Partition, scope: str) -> None:
        await call(self._servers, partition.slot, _ANNOUNCE.work([partition.announcements], [scope]), Access.ONCE)

    async def _purge(self, partition: Partition, key: str) -> bool:
        keys = [partition.entry(key), partition.purges, partition.announcements]
        return bool(await call(self._servers, partition.slot, _PURGE.work(keys, [key]), Access.ONCE))

    async def announce(self, scope: str) -> None:
        """See Store."""
        await asyncio.gather(*(self._announce(partition, scope) for partition in self._layout.partitions))

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store. The order is undefined, an entry may appear twice, and damaged entries are left out."""
        async for page in scan_entries(self._servers, self._layout, prefix):
            for key, data in page:
                entry = _try_unpack(key, data)
                if entry is not None and self._kept(entry):
                    yield entry

    async def changes(self, cursor: str | None) -> Changes:
        """See Store, and read_changes."""
        return await read_announcements(self._servers, self._layout, cursor)

    async def read_note(self, name: str) -> bytes | None:
        """See Store. Data of another program counts as none, and the next write replaces it."""
        partition = self._layout.find(name)
        look_up = command("GET", partition.note(name), read=read_data)
        try:
            data = await call(self._servers, partition.slot, look_up, Access.READ)
        except DamagedEntry as error:
            log.warning("%s It is replaced.", error.message)
            return None
        if data is None or len(data) <= _MAX_NOTE_BYTES:
            return data
        log.warning("%s has %d bytes, those of another program; it is replaced.", partition.note(name), len(data))
        return None

    async def write_note(self, name: str, data: bytes) -> None:
        """See Store."""
        partition = self._layout.find(name)
        # Written twice, the value is the same.
        await call(self._servers, partition.slot, command("SET", partition.note(name), data), Access.WRITE)

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """See Store. The server's clock counts the seconds."""
        # No retry: if the first attempt took the lease, the second would see it as someone else's.
        partition = self._layout.find(key)
        take = _LEASE.work([partition.lease(key)], [owner, _to_milliseconds(seconds)], read_number)
        return await call(self._servers, partition.slot, take, Access.ONCE) == 1

    async def renew(self, key: str, owner: str, seconds: float) -> None:
        """See Store. The server's clock counts the seconds."""
        partition = self._layout.find(key)
        renew: Work[Any] = _RENEW.work([partition.lease(key)], [owner, _to_milliseconds(seconds)])
        await call(self._servers, partition.slot, renew, Access.WRITE)

    async def release(self, key: str, owner: str) -> None:
        """See Store."""
        partition = self._layout.find(key)
        await call(self._servers, partition.slot, _RELEASE.work([partition.lease(key)], [owner]), Access.ONCE)

    async def take(
        self, bucket: str, rate: float, burst: float, leaving: float = 0.0, count: int = 1, *, is_first: bool = False
    ) -> float:
        """See Store, and TAKE. The server's clock counts the seconds."""
        partition = self._layout.find(bucket)
        # After one failure, this process has spent no token by itself.
        arguments = [rate, burst, leaving, count, int(self._failures[bucket] > 1), int(is_first)]
        take = _TAKE.work([partition.bucket(bucket)], arguments, _read_wait)
        try:
            wait = await call(self._servers, partition.slot, take, Access.ONCE)
        except StoreError as error:
            # Commands that time out together are one failure.
            failures = self._failures[bucket]
            self._failures[bucket] = max(1, failures) if isinstance(error, StoreSlow) else failures + 1
            raise
        self._failures.pop(bucket, None)
        if wait is None:
            raise BucketSettling
        return wait

    async def back_off(self, bucket: str, seconds: float) -> None:
        """See Store. The server's clock counts the seconds."""
        partition = self._layout.find(bucket)
        await call(self._servers, partition.slot, _BACK_OFF.work([partition.bucket(bucket)], [seconds]), Access.ONCE)

    async def stats(self) -> StoreStats:
        """See Store. `entries` counts all keys of the database, `bytes` the memory of the servers.

        A store that this process may write to is asked to: its primaries may refuse writes, or have no replicas.
        """
        entries = memory = 0
        try:
            for node in await self._servers.primaries():
                entries += await node.call(command("DBSIZE", read=read_number), Access.READ)
                memory += await node.call(command("INFO", "memory", read=_read_memory), Access.READ)
        except StoreError as error:
            return StoreStats(0, 0, False, f"{self._servers.label}: {error.message}")
        try:
            if not self._read_only:
                await asyncio.gather(
                    *(self._try_to_write(partition) for partition in await self._partition_of_each_primary())
                )
        except StoreError as error:
            detail = f"{self._servers.label} can be read, but not written: {error.message}"
            return StoreStats(entries, memory, False, detail, is_read_only=True)
        return StoreStats(entries, memory, True, self._servers.label)

    async def _partition_of_each_primary(self) -> Iterable[Partition]:
        partitions = self._layout.partitions
        return {await self._servers.find(partition.slot, Access.READ): partition for partition in partitions}.values()

    async def _try_to_write(self, partition: Partition) -> None:
        """Send a write that changes nothing: the key does not exist."""
        probe = command("SET", partition.note("probe"), 1, "XX", read=read_anything)
        await call(self._servers, partition.slot, probe, Access.WRITE)

    async def flush(self) -> None:
        """Do nothing: the server has each write before `put` returns."""

    async def close(self) -> None:
        """See Store."""
        await self._servers.close()

    def _kept(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.is_kept(self._clock()) else None


def _read_wait(reply: Any) -> float | None:
    """Seconds until there are tokens. None while the bucket settles."""
    if reply == scripts.SETTLING_REPLY:
        return None
    wait = float(reply)
    if not wait >= 0:
        raise ValueError(reply)
    return wait


def _read_memory(info: Any) -> int:
    return int(info["used_memory"])


def _to_milliseconds(seconds: float) -> int:
    # The server refuses an expiry of 0.
    return max(1, int(seconds * 1000))


def _try_unpack(key: str, data: bytes) -> Entry | None:
    try:
        return unpack(key, data)
    except DamagedEntry:
        return None
