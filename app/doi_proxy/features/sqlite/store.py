"""The embedded store: one SQLite file, shared by the instances of a machine. It survives restarts."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.store import MAX_ANNOUNCEMENTS, Changes, StoreStats
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.sqlite import file
from doi_proxy.features.sqlite.file import StorePlace
from doi_proxy.features.sqlite.rows import (
    REGISTRY_CHANGED,
    SELECT_KNOWN,
    Records,
    Rows,
    read_note,
    try_notes,
    write_note,
)
from doi_proxy.features.sqlite.writer import GATHER, BatchWriter, Change, StoreBounds, write_batch
from doi_proxy.store.file import READ_TIMEOUT, has_log

Result = TypeVar("Result")

#: Seconds between two writes of the time at which an entry was last used.
_USE_INTERVAL: Final = 3_600.0


class SqliteStore:
    """A Store in one file. Reads run in the caller's thread, writes in a thread of the store.

    A process that is killed loses at most the writes of the last `gather` seconds and the batch under way.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float],
        max_bytes: int,
        find_freed: Callable[[], int] = int,
        gather: float = GATHER,
        records: type[Records] | None = None,
        read_only: bool = False,
    ) -> None:
        """`max_bytes` limits the file and its log, without registry records. Beyond it, expired entries are evicted
        first, then the least recently used. `find_freed` returns what is added to it now. `clock` gives seconds since
        the epoch. `records` are those of a feature. If it is `read_only`, no file is created or changed, and what would
        write raises StoreError. Raises StoreError, also for a damaged file that is `read_only`.
        """
        self._path = path
        self._clock = clock
        self._bounds, self._find_freed = StoreBounds.divide(max_bytes), find_freed
        self._note_failure = ""
        #: When `read_now` did not find a key. A request for a new name calls it first, then `get`.
        self._absent: dict[str, float] = {}
        self._writer: BatchWriter | None = None
        #: What was beside the file when it was opened to be read alone.
        self._beside = _find_log(path)
        if read_only:
            self._rows = Rows(path, file.open_to_read(path), clock, report_damage=lambda _: None)
            self.registry = None if records is None else records(self, self._rows, path, clock)
            return
        file.prepare(path, clock(), None if records is None else records.create)
        with file.translate_open_errors(path, "for writing"), file.exclusive_lock(path), ExitStack() as opened:
            reading = opened.enter_context(closing(file.connect(path, timeout=READ_TIMEOUT)))
            self._place = StorePlace(path, reading)
            self._rows = Rows(path, reading, clock, report_damage=self._place.report_damage)
            self._writing = opened.enter_context(closing(file.connect(path, timeout=file.WRITE_TIMEOUT)))
            for pragma in self._bounds.pragmas:
                self._writing.execute(pragma)
            opened.pop_all()  # closed by `close` from now on, not at the end of this block
        self.registry = None if records is None else records(self, self._rows, path, clock)
        self._writer = BatchWriter(
            self._write,
            gather=gather,
            can_pass=file.can_pass,
            rows=self._bounds.rows,
            batch_bytes=self._bounds.batch_bytes,
        )

    async def get(self, key: str) -> Entry | None:
        """See Store. The first call after `read_now` does not read again."""
        entry = self.read_now(key)
        self._absent.pop(key, None)
        return entry

    def read_now(self, key: str) -> Entry | None:
        """See ImmediateStore."""
        at = self._absent.get(key)
        # Seconds for which a key that `read_now` did not find is absent. Then the request that looked is over, or
        # waits.
        if at is not None and 0.0 <= self._clock() - at < 0.1:
            return None
        entry = self._read(key)
        if entry is None:
            self._remember_absent(key)
        return entry

    def find_absent(self, keys: Iterable[str]) -> list[str]:
        """The keys without an entry. `read_now` does not read them for a moment. Raises StoreError."""
        self._follow_log()
        settled = [key for key in keys if self._writer is None or self._writer.find(key) is None]
        rows = self._rows.rows(SELECT_KNOWN, (json.dumps(settled, ensure_ascii=False),))
        known = {key for (key,) in rows}
        absent = [key for key in settled if key not in known]
        for key in absent:
            self._remember_absent(key)
        return absent

    def _remember_absent(self, key: str) -> None:
        # Absent keys that are remembered. One more makes all of them be forgotten.
        if len(self._absent) >= 1_000:
            self._absent.clear()
        self._absent[key] = self._clock()

    def _read(self, key: str) -> Entry | None:
        writer, now = self._writer, self._clock()
        if writer is None:
            self._follow_log()
        elif (change := writer.find(key)) is not None:
            return change.entry if change.entry is not None and change.entry.is_kept(now) else None
        entry, last_used = self._rows.find(key)
        # A use in the future was recorded before the clock was set back.
        if entry is not None and writer is not None and abs(now - last_used) >= _USE_INTERVAL:
            writer.record_use(key, now)
        return entry

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """See Store. Raises StoreError if too many writes wait or the last one failed. Never blocks."""
        self._submit(Change(entry.key, entry, announce, sent_at, unless_newer))
        if (error := self._require_writer().last_error) is not None:
            text = f"The store {self._path} could not be written: {error}."
            raise StoreError(text, cause=file.find_cause(error))

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """See Store."""
        self._require_writer()
        try:
            existed = (self._read(key) or (self.registry and self.registry.find(key))) is not None
        except DamagedEntry:
            existed = True
        change = Change(key, None, announce, purged_at=self._clock() if announce else None)
        try:
            self._submit(change)
        except StoreError:
            # A purge must not be dropped because the queue is full.
            await self.flush()
            self._submit(change)
        return existed

    async def announce(self, scope: str) -> None:
        """See Store."""
        self._submit(Change(scope, None, True))

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store."""
        await self.flush()
        for page in self._rows.pages(prefix):
            for entry in page:
                yield entry
            await asyncio.sleep(0)  # other tasks run between the pages
            self._follow_log()

    async def changes(self, cursor: str | None) -> Changes:
        """See Store. A process calls it every second, so it also finds that the file is lost."""
        if self._writer is None:
            self._follow_log()
            return Changes(cursor or "0")
        self._place.check()
        if self._note_failure:
            with suppress(StoreError), self._record_note_failure():
                await asyncio.to_thread(try_notes, self._path)
        (newest,) = self._rows.row("SELECT coalesce(max(number), 0) FROM announcements") or (0,)
        missed = 0 if cursor is None else newest - int(cursor)
        if missed <= 0:
            return Changes(str(newest))
        if missed > MAX_ANNOUNCEMENTS:
            self._forget_records()
            return Changes(str(newest), overrun=True)
        rows = self._rows.rows(
            "SELECT key FROM announcements WHERE number > ? AND number <= ? ORDER BY number", (int(cursor or 0), newest)
        )
        keys, overrun = dict.fromkeys(key for (key,) in rows), len(rows) != missed
        if overrun or REGISTRY_CHANGED in keys:
            self._forget_records()
            keys.pop(REGISTRY_CHANGED, None)
        return Changes(str(newest), tuple(keys), overrun=overrun)

    def _forget_records(self) -> None:
        if self.registry is not None:
            self.registry.forget_recent()

    def is_deleting(self, key: str) -> bool:
        """Whether a deletion of the key waits to be written."""
        change = None if self._writer is None else self._writer.find(key)
        return change is not None and change.entry is None

    async def run_apart(self, work: Callable[[], Result], *, writes: bool = False) -> Result:
        """Run work that opens the file again, in a thread. Raises StoreError."""
        if writes:
            self._require_writer()
        if self._writer is not None:
            self._place.check()
        with self._report_damage():
            return await asyncio.to_thread(work)

    async def read_note(self, name: str) -> bytes | None:
        """See Store."""
        self._follow_log()
        return read_note(self._rows, name)

    async def write_note(self, name: str, data: bytes) -> None:
        """See Store."""
        self._require_writer()
        await self.flush()
        self._place.check()
        with self._record_note_failure():
            await asyncio.to_thread(write_note, self._path, name, data)

    async def stats(self) -> StoreStats:
        """See Store. `bytes` is the room of the entries, which `max_bytes` limits."""
        self._follow_log()
        stats = self._rows.stats(int if self.registry is None else self.registry.total)
        if self._writer is None:
            return stats
        detail, error = stats.detail, self._writer.last_error
        if error is not None:
            detail += f"; the last write failed: {error}"
        if self._writer.dropped or self._writer.lost:
            detail += f"; {self._writer.dropped} writes dropped, {self._writer.lost} lost"
        if self._note_failure:
            detail += f"; the last note was not written: {self._note_failure}"
        healthy = stats.healthy and error is None and not self._note_failure
        return replace(stats, healthy=healthy, detail=detail, is_read_only=stats.healthy and error is not None)

    async def flush(self) -> None:
        """See Store."""
        if self._writer is not None:
            await asyncio.wrap_future(self._writer.flush())

    async def close(self) -> None:
        """See Store."""
        if self._writer is None:
            self._rows.connection.close()
            return
        await asyncio.to_thread(self._writer.close)
        with file.translate_open_errors(self._path, "for writing"):
            self._rows.connection.close()
            self._writing.close()

    def _write(self, changes: list[Change], used: dict[str, float]) -> None:
        try:
            now, max_bytes = self._clock(), self._bounds.entries + self._find_freed()
            write_batch(self._writing, changes, used, now=now, max_bytes=max_bytes, records=self.registry)
        except sqlite3.Error as error:
            if file.is_damage(error):
                self._place.report_damage(error)
            raise

    def _submit(self, change: Change) -> None:
        writer = self._require_writer()
        self._absent.pop(change.key, None)
        try:
            change.key.encode()
        except UnicodeEncodeError as error:
            # Checked here, because one such key would fail a whole batch.
            raise StoreError(f"The key {change.key!r} cannot be stored: {error}.") from error
        if not writer.submit(change):
            raise StoreError(f"The store {self._path} is too slow: the queue of writes is full.")

    @contextmanager
    def _record_note_failure(self) -> Iterator[None]:
        """Record whether a note could be written: its file is opened anew, so reads and entries may work meanwhile."""
        try:
            with self._report_damage():
                yield
        except StoreError as error:
            self._note_failure = error.message
            raise
        self._note_failure = ""

    @contextmanager
    def _report_damage(self) -> Iterator[None]:
        """Report damage that a connection of its own has met: this process may read its own pages for long."""
        try:
            yield
        except StoreError as error:
            if error.cause == file.DAMAGED and self._writer is not None:
                self._place.report_damage(error.__cause__ or error)
            raise

    def _require_writer(self) -> BatchWriter:
        if self._writer is None:
            raise StoreError(f"The store {self._path} is open for reading only.")
        return self._writer

    def _follow_log(self) -> None:
        """Open a file that is only read again, if a proxy has opened it since, or its log can be written since.

        Without a log it was opened as immutable. While this process reads a log whose index it cannot write, SQLite
        does not let it open the file for writing.
        """
        if self._writer is None and (found := _find_log(self._path)) != self._beside and found[0]:
            self._rows.connection.close()
            self._rows.connection = file.open_to_read(self._path)
            self._beside = found


def _find_log(path: Path) -> tuple[bool, bool]:
    """Whether there is a log, and whether its index can be written."""
    return has_log(path), os.access(f"{path}-shm", os.W_OK)
