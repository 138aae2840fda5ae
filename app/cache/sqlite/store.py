"""The embedded store: one SQLite file that the worker processes of a machine share and that survives restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Final

from app.cache.entry import Entry
from app.cache.sqlite.batch import write_batch
from app.cache.sqlite.coordination import Coordination
from app.cache.sqlite.file import (
    READ_TIMEOUT,
    WRITE_TIMEOUT,
    alone,
    connect,
    is_damage,
    mark_damaged,
    opening,
    prepare,
)
from app.cache.sqlite.rows import Rows
from app.cache.sqlite.writer import GATHER, BatchWriter, Change
from app.cache.store import MOST_ANNOUNCEMENTS, Changes, StoreStats
from app.errors import DamagedEntry, StoreError

#: When an entry was used is written at most this often, in seconds.
_USED_EVERY: Final = 3_600.0
#: After a failure the coordination file is left alone for so long, in seconds: an attempt may wait for a lock, and the
#: event loop with it.
_PAUSE: Final = 1.0


class SqliteStore:
    """A Store in one file. Reads happen in the caller's thread, writes in one thread of its own.

    A process that is killed loses at most the writes of the last `gather` seconds and the batch under way.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float], max_bytes: int, gather: float = GATHER) -> None:
        """`max_bytes` bounds keys, data and their overhead; beyond it entries past their hard expiry leave first,
        then the ones not used for longest. `clock` gives seconds since the epoch. Raises StoreError."""
        prepare(path, clock())
        self._path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._coordination_failure = ""
        self._coordination_failed_at = -inf
        with opening(path, "for writing"), alone(path):
            reading = connect(path, timeout=READ_TIMEOUT)
            self._rows = Rows(path, reading, clock, report_damage=lambda: mark_damaged(path))
            self._writing = connect(path, timeout=WRITE_TIMEOUT)
            self._coordination = self._open_coordination()
        self._writer = BatchWriter(self._write, gather=gather)

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        change = self._writer.find(key)
        now = self._clock()
        if change is not None:
            return change.entry if change.entry is not None and change.entry.is_usable(now) else None
        entry, last_used = self._rows.find(key)
        # A use in the future was noted before the clock was set back.
        if entry is not None and abs(now - last_used) >= _USED_EVERY:
            self._writer.note_used(key, now)
        return entry

    async def put(self, entry: Entry, *, announce: bool = False) -> None:
        """See Store. Raises StoreError where too many writes wait and after a failed one; never blocks."""
        self._submit(Change(entry.key, entry, announce))
        if (error := self._writer.last_error) is not None:
            raise StoreError(f"The store {self._path} could not be written: {error}.")

    async def delete(self, key: str) -> bool:
        """See Store."""
        try:
            existed = await self.get(key) is not None
        except DamagedEntry:
            existed = True
        try:
            self._submit(Change(key, None, True))
        except StoreError:
            # A purge must not get lost for lack of room in the queue.
            await self.flush()
            self._submit(Change(key, None, True))
        return existed

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store."""
        await self.flush()
        for page in self._rows.pages(prefix):
            for entry in page:
                yield entry
            await asyncio.sleep(0)  # other tasks run between the pages

    async def changes(self, cursor: str | None) -> Changes:
        """See Store."""
        (newest,) = self._rows.row("SELECT coalesce(max(number), 0) FROM announcements") or (0,)
        missed = 0 if cursor is None else newest - int(cursor)
        if missed > MOST_ANNOUNCEMENTS:
            return Changes(str(newest), overrun=True)
        if missed <= 0:
            return Changes(str(newest))
        rows = self._rows.rows(
            "SELECT key FROM announcements WHERE number > ? AND number <= ? ORDER BY number", (int(cursor or 0), newest)
        )
        return Changes(str(newest), tuple(dict.fromkeys(key for (key,) in rows)), overrun=len(rows) != missed)

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """See Store."""
        with self._coordinating():
            return self._coordination.lease(key, owner, self._clock(), seconds)

    async def release(self, key: str, owner: str) -> None:
        """See Store."""
        try:
            if self._writer.find(key) is not None:
                await self.flush()
        finally:
            with self._coordinating():
                self._coordination.release(key, owner, self._clock())

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0) -> float:
        """See Store."""
        with self._coordinating():
            return self._coordination.take(bucket, self._clock, rate, burst, leaving)

    async def back_off(self, bucket: str, seconds: float) -> None:
        """See Store."""
        with self._coordinating():
            self._coordination.back_off(bucket, self._clock, seconds)

    async def stats(self) -> StoreStats:
        """See Store. `bytes` is what `max_bytes` bounds."""
        stats, error = self._rows.stats(), self._writer.last_error
        detail = stats.detail
        if error is not None:
            detail += f"; the last write failed: {error}"
        if self._writer.dropped or self._writer.lost:
            detail += f"; {self._writer.dropped} writes dropped, {self._writer.lost} lost"
        if self._coordination_failure:
            detail += f"; the coordination file failed: {self._coordination_failure}"
        healthy = stats.healthy and error is None and not self._coordination_failure
        return StoreStats(stats.entries, stats.bytes, healthy, detail)

    async def flush(self) -> None:
        """See Store."""
        await asyncio.wrap_future(self._writer.flushed())

    async def close(self) -> None:
        """See Store."""
        await asyncio.to_thread(self._writer.close)
        with opening(self._path, "for writing"):
            self._rows.connection.close()
            self._writing.close()
            self._coordination.close()

    def _write(self, changes: list[Change], used: dict[str, float]) -> None:
        try:
            write_batch(self._writing, changes, used, now=self._clock(), max_bytes=self._max_bytes)
        except sqlite3.Error as error:
            if is_damage(error):
                mark_damaged(self._path)
            raise

    def _submit(self, change: Change) -> None:
        try:
            change.key.encode()
        except UnicodeEncodeError as error:
            # Noticed here, one such key does not spoil a whole batch.
            raise StoreError(f"The key {change.key!r} cannot be stored: {error}.") from error
        if not self._writer.submit(change):
            raise StoreError("Too many entries wait to be written to the store.")

    def _open_coordination(self) -> Coordination:
        return Coordination(self._path.with_name(f"{self._path.name}.coordination"))

    @contextmanager
    def _coordinating(self) -> Iterator[None]:
        """Translate what the coordination file raises, and leave the file alone for a while after a failure."""
        # A clock that was set back must not prolong the pause.
        if 0.0 <= self._clock() - self._coordination_failed_at < _PAUSE:
            raise StoreError(
                f"The coordination file of {self._path} failed a moment ago: {self._coordination_failure}."
            )
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            self._coordination_failure, self._coordination_failed_at = str(error), self._clock()
            if is_damage(error):
                self._replace_coordination()
            raise StoreError(f"The coordination file of {self._path} failed: {error}.") from error
        self._coordination_failure = ""

    def _replace_coordination(self) -> None:
        # Under the lock: of several processes that find the damage, one starts a new file and the others open that.
        with suppress(sqlite3.Error, OSError), alone(self._path):
            self._coordination.close()
            self._coordination = self._open_coordination()
