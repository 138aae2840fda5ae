"""The embedded store: one SQLite file that the worker processes of a machine share and that survives restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from app.cache.entry import Entry
from app.cache.sqlite.batch import write_batch
from app.cache.sqlite.coordination import Coordination
from app.cache.sqlite.file import alone, connect, counted_bytes, is_damage, mark_damaged, prepare
from app.cache.sqlite.writer import GATHER, BatchWriter, Change
from app.cache.store import MOST_ANNOUNCEMENTS, Changes, StoreStats
from app.cache.wire import unpack
from app.errors import StoreError

#: Rows read at a time by `scan`.
_PAGE: Final = 500
#: When an entry was used is written at most this often, in seconds.
_USED_EVERY: Final = 3_600.0

_FROM: Final = "SELECT key, data FROM entries WHERE key >= ? ORDER BY key LIMIT ?"
_AFTER: Final = "SELECT key, data FROM entries WHERE key > ? ORDER BY key LIMIT ?"


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
        self._failed_reads = 0
        self._last_failure = ""
        with self._translated(), alone(path):
            self._reader = connect(path)
            self._writing = connect(path)
            self._coordination = Coordination(path.with_name(f"{path.name}.coordination"))
        self._writer = BatchWriter(self._write, gather=gather)

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        change = self._writer.find(key)
        if change is not None:
            return self._usable(change.entry)
        row = self._row("SELECT data, last_used FROM entries WHERE key = ?", (key,))
        if row is None:
            return None
        now = self._clock()
        if now - row[1] >= _USED_EVERY:
            self._writer.note_used(key, now)
        return self._usable(self._unpacked(key, row[0]))

    async def put(self, entry: Entry, *, announce: bool = False) -> None:
        """See Store. Raises StoreError where too many writes wait; none ever blocks."""
        self._submit(Change(entry.key, entry, announce))

    async def delete(self, key: str) -> bool:
        """See Store."""
        existed = await self.get(key) is not None
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
        select, start = _FROM, prefix
        while True:
            rows = self._rows(select, (start, _PAGE))
            for key, data in rows:
                if not key.startswith(prefix):
                    return
                entry = self._readable(key, data)
                if entry is not None:
                    yield entry
            if len(rows) < _PAGE:
                return
            await asyncio.sleep(0)  # others may run between the pages
            select, start = _AFTER, rows[-1][0]

    async def changes(self, cursor: str | None) -> Changes:
        """See Store."""
        (newest,) = self._row("SELECT coalesce(max(number), 0) FROM announcements") or (0,)
        missed = 0 if cursor is None else newest - int(cursor)
        if missed > MOST_ANNOUNCEMENTS:
            return Changes(str(newest), overrun=True)
        if missed <= 0:
            return Changes(str(newest))
        rows = self._rows(
            "SELECT key FROM announcements WHERE number > ? AND number <= ? ORDER BY number", (int(cursor or 0), newest)
        )
        return Changes(str(newest), tuple(dict.fromkeys(key for (key,) in rows)), overrun=len(rows) != missed)

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """See Store."""
        with self._translated():
            return self._coordination.lease(key, owner, self._clock(), seconds)

    async def release(self, key: str, owner: str) -> None:
        """See Store."""
        try:
            if self._writer.find(key) is not None:
                await self.flush()
        finally:
            with self._translated():
                self._coordination.release(key, owner, self._clock())

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0) -> float:
        """See Store."""
        with self._translated():
            return self._coordination.take(bucket, self._clock, rate, burst, leaving)

    async def back_off(self, bucket: str, seconds: float) -> None:
        """See Store."""
        with self._translated():
            self._coordination.back_off(bucket, self._clock, seconds)

    async def stats(self) -> StoreStats:
        """See Store. `bytes` is what `max_bytes` bounds."""
        failure, error = self._last_failure, self._writer.last_error
        try:
            entries, length = self._row("SELECT entries, bytes FROM totals")
        except StoreError:
            entries, length, failure = 0, 0, self._last_failure
        detail = f"SQLite file {self._path}"
        if error is not None:
            detail += f"; the last write failed: {error}"
        if failure:
            detail += f"; {self._failed_reads} reads failed, the last one: {failure}"
        if self._writer.dropped or self._writer.lost:
            detail += f"; {self._writer.dropped} writes dropped, {self._writer.lost} lost"
        return StoreStats(entries, counted_bytes(entries, length), error is None and not failure, detail)

    async def flush(self) -> None:
        """See Store."""
        await asyncio.wrap_future(self._writer.flushed())

    async def close(self) -> None:
        """See Store."""
        await asyncio.to_thread(self._writer.close)
        with self._translated():
            self._reader.close()
            self._writing.close()
            self._coordination.close()

    def _write(self, changes: list[Change], used: dict[str, float]) -> None:
        try:
            write_batch(self._writing, changes, used, now=self._clock(), max_bytes=self._max_bytes)
        except sqlite3.Error as error:
            if is_damage(error):
                mark_damaged(self._path)
            raise

    def _usable(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.is_usable(self._clock()) else None

    def _unpacked(self, key: str, data: bytes) -> Entry:
        try:
            return unpack(key, data)
        except StoreError as error:
            self._note_failure(error)
            raise

    def _readable(self, key: str, data: bytes) -> Entry | None:
        try:
            return self._usable(self._unpacked(key, data))
        except StoreError:
            return None

    def _submit(self, change: Change) -> None:
        try:
            change.key.encode()
        except UnicodeEncodeError as error:
            # Noticed here, one such key does not spoil a whole batch.
            raise StoreError(f"The key {change.key!r} cannot be stored: {error}.") from error
        if not self._writer.submit(change):
            raise StoreError("Too many entries wait to be written to the store.")

    def _row(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        # Not `_translated`: a context manager would cost as much as the read.
        try:
            row = self._reader.execute(sql, values).fetchone()
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._note_failure(error) from error
        self._last_failure = ""
        return row

    def _rows(self, sql: str, values: tuple[object, ...]) -> list[Any]:
        with self._translated():
            return self._reader.execute(sql, values).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self._note_failure(error) from error

    def _note_failure(self, error: Exception) -> StoreError:
        self._failed_reads += 1
        self._last_failure = str(error)
        if is_damage(error):
            mark_damaged(self._path)
        return StoreError(f"The store {self._path} failed: {error}.")
