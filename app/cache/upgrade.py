"""Stores of earlier releases: the number of the format, and what rewrites their entries beside the requests.

docs/releases.md has the formats. An entry is read in every format that was released, so nothing waits for this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable
from uuid import uuid4

from app.cache.coordination import Coordination
from app.cache.wire import has_old_layout, unpack
from app.errors import DamagedEntry, StoreError

log = logging.getLogger(__name__)

#: The format of a store that this release writes. SQLite has it as user_version, Valkey as a key. Format 1 is that of
#: release 0.1.0, format 2 that of 0.2.0.
STORE_FORMAT: Final = 3
#: Stores up to this format can have entries that this release rewrites.
OLD_ENTRIES_UP_TO: Final = 1
#: Entries of one step. 200 take about 10 ms in a thread.
REWRITE_PAGE: Final = 200

#: The lease of the process that rewrites. A name has no control characters.
_LEASE: Final = "\trewrite"
#: Seconds for which the lease is taken. If the process is killed, another one continues after them.
_LEASE_SECONDS: Final = 30.0
#: Seconds until the next attempt if another process rewrites, or the store failed.
_RETRY: Final = 10.0
#: Pause between two steps, in times of the step before: the rewriting takes at most a fifth of one processor.
_REST: Final = 4.0
#: Seconds between two lines of progress in the log.
_LOG_INTERVAL: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The progress of a rewriting: entries visited, of how many, rewritten, and not readable."""

    visited: int
    total: int
    rewritten: int
    unreadable: int
    is_done: bool

    def __str__(self) -> str:
        damaged = f", {self.unreadable} were not readable" if self.unreadable else ""
        return f"{self.visited} of {max(self.visited, self.total)} entries visited, {self.rewritten} rewritten{damaged}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What this release can do with the entries of a store. `visited` of `total` entries were examined."""

    format: int
    visited: int = 0
    total: int = 0
    current: int = 0
    old: int = 0
    unreadable: int = 0

    def add(self, rows: Iterable[tuple[str, object]]) -> Survey:
        """This survey, and more entries: keys and stored bytes."""
        current, old, unreadable = self.current, self.old, self.unreadable
        for key, data in rows:
            if not is_readable(key, data):
                unreadable += 1
            elif has_old_layout(data):
                old += 1
            else:
                current += 1
        visited = current + old + unreadable
        return Survey(self.format, visited, max(self.total, visited), current, old, unreadable)


@runtime_checkable
class Surveyable(Protocol):
    """A store whose entries can be examined before an upgrade."""

    async def survey(self, limit: int) -> Survey:
        """Examine at most about `limit` entries. Nothing is changed. Raises StoreError."""


@runtime_checkable
class Rewritable(Coordination, Protocol):
    """A store that can have entries of an earlier release."""

    async def rewrite(self) -> Rewrite | None:
        """Rewrite the next entries of an earlier release. None if there is nothing to rewrite. Raises StoreError.

        The store remembers how far it is: another process continues where one was killed.
        """


def is_readable(key: str, data: object) -> bool:
    """Whether this release reads a stored entry."""
    try:
        return unpack(key, data) is not None
    except DamagedEntry:
        return False


def refuse_newer(place: str, number: int) -> None:
    """Raise StoreError if the store was written by a newer release. `place` is what an operator calls it."""
    if number > STORE_FORMAT:
        raise StoreError(
            f"The store {place} has format {number}, but this doi-proxy reads formats up to {STORE_FORMAT}. It was not"
            " changed; use a newer doi-proxy, or another store in store_url."
        )


async def rewrite_entries(store: Rewritable, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
    """Rewrite the entries of earlier releases. Of all processes that share the store, one works at a time."""
    owner = uuid4().hex
    while True:
        try:
            if await store.lease(_LEASE, owner, _LEASE_SECONDS):
                try:
                    await _rewrite_all(store, owner, sleep)
                    return
                finally:
                    await store.release(_LEASE, owner)
        except StoreError as error:
            # The cache reports that the store fails.
            log.debug("The rewriting of entries pauses: %s", error.message)
        await sleep(_RETRY)


async def _rewrite_all(store: Rewritable, owner: str, sleep: Callable[[float], Awaitable[object]]) -> None:
    began_at = renewed_at = logged_at = before = time.monotonic()
    is_first = True
    while (progress := await store.rewrite()) is not None:
        now = time.monotonic()
        if is_first and (progress.rewritten or not progress.is_done):
            log.info("The store has entries of an earlier release. Rewriting them to format %s.", STORE_FORMAT)
            is_first = False
        if progress.is_done:
            if not is_first:
                log.info("The store has format %s: %s, in %.1f seconds.", STORE_FORMAT, progress, now - began_at)
            return
        if now - logged_at >= _LOG_INTERVAL:
            log.info("Rewriting the store to format %s: %s.", STORE_FORMAT, progress)
            logged_at = now
        if now - renewed_at >= _LEASE_SECONDS / 3:
            await store.renew(_LEASE, owner, _LEASE_SECONDS)
            renewed_at = now
        await sleep(_REST * (now - before))
        before = time.monotonic()
