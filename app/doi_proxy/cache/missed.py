"""What a store missed while it was away, and gets when it is back: records and purges, whatever the store is.

The records themselves are in memory. Only their keys are kept here, in at most MAX_BYTES. If there are more, or if the
store is another one than before, it gets every record of memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import (
    MAX_LATE_PURGES,
    NOT_FOUND,
    UNKNOWN,
    Purges,
    Store,
    change_note,
    has_many_keys,
    scopes_of,
)
from doi_proxy.errors import StoreError
from doi_proxy.system.check import Cause, Incidents

log = logging.getLogger(__name__)


class LateStore:
    """Opens a store later. `open_store` raises StoreError while the store cannot be opened."""

    def __init__(self, open_store: Callable[[], Store | None], clock: Callable[[], float], reason: str = "") -> None:
        """`reason` says why the store could not be opened at the start. Without one, it is open.

        `clock` gives seconds since the epoch.
        """
        self.reason = reason
        self._open_store = open_store
        self._clock = clock
        self._began = clock()
        #: The failures of the store that are logged.
        self.incidents = Incidents("store")
        #: The last reason that was logged. Empty if no failure is logged.
        self._logged = ""
        #: Set while the cache uses the store.
        self.used = asyncio.Event()
        if not reason:
            self.used.set()

    def lose(self, error: StoreError) -> None:
        """The open store cannot be used any more."""
        self.reason = self._logged = error.message
        self._began = self._clock()
        self.incidents.begin(self._began, Cause(error.cause))
        self.used.clear()
        log.error("%s", error.message)

    async def open(self) -> Store | None:
        """The store, None if it still cannot be opened. Each new reason is logged once."""
        try:
            store = await asyncio.to_thread(self._open_store)
        except StoreError as error:
            self.reason = error.message
            if self.incidents.under_way is None:
                self.incidents.begin(self._began, Cause(error.cause))
            if self.reason != self._logged:
                self._logged = self.reason
                log.error(
                    "%s New records are kept in memory alone; the store is tried again every second.", self.reason
                )
            return None
        if self._logged:
            seconds = max(0.0, self._clock() - self._began)
            log.warning("The store is open after %.0f seconds, and gets the records that were kept in memory.", seconds)
            self.incidents.end(self._clock())
        self._logged = ""
        return store

    async def replace(self, before: Store | None) -> None:
        """The cache uses the store. Close the one that it used before."""
        self.used.set()
        if before is not None:
            with suppress(StoreError):
                await before.close()


#: The note with a line for each work, which begins with its key and a tab.
WORKS: Final = "works"


async def forget_works(store: Store, scopes: frozenset[str]) -> None:
    """Drop the lines of names of scopes from the note of works."""
    await change_note(store, WORKS, partial(_drop_lines, scopes))


def _drop_lines(scopes: frozenset[str], note: bytes | None) -> bytes:
    lines = (note or b"").decode("utf-8", "replace").split("\n")
    return "\n".join(line for line in lines if scopes.isdisjoint(scopes_of(line.partition("\t")[0]))).encode()


async def delete_purged(store: Store, scope: str, at: float, *, announce: bool) -> None:
    """Delete the entries of a scope that were fetched before a purge at `at`, which the store has missed.

    With `announce`, the other instances have missed it too. Raises StoreError.
    """
    if scope == UNKNOWN:
        log.warning("The store is purged completely: it missed more than %d purges.", MAX_LATE_PURGES)
    if has_many_keys(scope):
        if announce:
            await store.delete(scope)
        async for entry in store.scan(scope if scope.endswith("/") else ""):
            if entry.fetched_at <= at and (scope != NOT_FOUND or entry.is_negative):
                await store.delete(entry.key, announce=False)
        await store.flush()
    else:
        found = await store.get(scope)
        # If there is none yet, another instance may be about to write what it has in memory.
        if announce if found is None else found.fetched_at <= at:
            await store.delete(scope)
    if announce:
        await store.announce(scope)
        await forget_works(store, frozenset([scope]))


#: Bytes of the keys that are kept one by one.
MAX_BYTES: Final = 4 * 1024 * 1024
#: Bytes of an entry of a dictionary and the string of its key, without the key.
_KEY_BYTES: Final = 150


class Missed:
    """The records and the purges that one store missed."""

    def __init__(self) -> None:
        #: Keys of records, with whether other instances must drop their copy.
        self._keys: dict[str, bool] = {}
        self._bytes = 0
        self._losses = 0
        self.purges = Purges()
        self.purges.most = MAX_LATE_PURGES

    def __bool__(self) -> bool:
        return bool(self._keys or self.purges or self._losses)

    def add(self, key: str, *, announce: bool) -> None:
        """The store missed a record."""
        if key not in self._keys:
            self._bytes += _KEY_BYTES + len(key.encode(errors="surrogatepass"))
        self._keys[key] = self._keys.get(key, False) or announce
        if self._bytes > MAX_BYTES:
            self._keys.clear()
            self._bytes = 0
            self.add_everything()

    def add_everything(self) -> None:
        """The store missed every record."""
        self._losses += 1

    async def write(
        self, store: Store, memory: MemoryStore, purges: Purges, now: float, read_purges: Callable[[], Awaitable[None]]
    ) -> None:
        """Write to the store what it missed. Raises StoreError when it fails again; the rest stays.

        `purges` are those of the last hour, by any process. `read_purges` drops from memory what others have purged
        meanwhile: a million records take minutes.
        """
        for scope, at in tuple(self.purges.items()):
            await delete_purged(store, scope, at, announce=True)
            self.purges.pop(scope, None)
        losses = self._losses
        # Records that one call writes, of those that are kept one by one: at 0.2 ms each, a fifth of a second.
        keys = memory.unsorted_keys() if losses else list(self._keys)[:1_000]
        for number, key in enumerate(keys):
            # A queue of writes is limited.
            if number % 250 == 0:
                await store.flush()
                await read_purges()
            entry = memory.peek(key)
            if entry is not None:
                # A purge by another instance can be newer than the record. One by this process is older: memory has it.
                sent_at = None if purges.refuses(key, 0.0, now) else entry.fetched_at
                await store.put(entry, announce=self._keys.get(key, False), unless_newer=True, sent_at=sent_at)
            if self._keys.pop(key, None) is not None:
                self._bytes -= _KEY_BYTES + len(key.encode(errors="surrogatepass"))
        # A store that lost its data again meanwhile gets everything again.
        if self._losses == losses:
            self._losses = 0
