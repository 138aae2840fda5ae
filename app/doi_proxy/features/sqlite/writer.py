"""The thread of a process that writes to its SQLite store, with many changes in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, zip_longest
from math import ceil
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final, NamedTuple, Self

import msgspec

from doi_proxy.cache.entry import MAX_SKEW, Entry
from doi_proxy.cache.store import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCEMENTS, MAX_PURGES, PURGE_MEMORY, UNKNOWN, Purges
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.sqlite.file import find_cause
from doi_proxy.features.sqlite.rows import Records
from doi_proxy.resolver.resolution import read_record
from doi_proxy.store.file import connect_to_read
from doi_proxy.store.stored_entry import pack, unpack
from doi_proxy.web.shown_values import find_target
from handle_protocol.referral import ResponseCode

_PAGE_BYTES: Final = 4_096
#: A transaction is written whole before the log is copied, and its rows are in the file before others are evicted.
_RESERVED_LOGS: Final = 4


@dataclass(frozen=True, slots=True)
class StoreBounds:
    """The parts of a limit."""

    #: Bytes of all entries with their room in pages (see file.py).
    entries: int
    #: Rows of one transaction, and the bytes of their entries.
    rows: int
    batch_bytes: int
    #: Pages of the write-ahead log after which it is copied into the file.
    log_pages: int

    @classmethod
    def divide(cls, max_bytes: int) -> Self:
        """The parts of a limit for the file and its log together, in bytes."""
        # Pages of the log after which it is copied into the file: a sixteenth of the limit. That is 16 for the smallest
        # store, 1 MiB, and at most about SQLite's default, from 64 MiB on.
        log_pages = min(1_024, max(4, max_bytes // 16 // _PAGE_BYTES))
        log_bytes = log_pages * _PAGE_BYTES
        reserved = min(_RESERVED_LOGS * log_bytes, max_bytes // _RESERVED_LOGS)
        # Pages of the log for each row of a transaction: a leaf, and a page of the rest of a long row or of an evicted
        # row.
        return cls(max_bytes - reserved, log_pages // 2, log_bytes, log_pages)

    @property
    def pragmas(self) -> tuple[str, ...]:
        """What a connection that writes is set to. A log that grew in a burst is cut to the second number."""
        return (
            f"PRAGMA wal_autocheckpoint = {self.log_pages}",
            f"PRAGMA journal_size_limit = {2 * self.log_pages * _PAGE_BYTES}",
        )


#: Targets of one name that are kept.
MAX_TARGETS: Final = 3
#: Larger records are not compared, in bytes of JSON.
_MAX_BYTES: Final = 65_536


class EarlierTarget(NamedTuple):
    """A target that a name had: when it was last confirmed, and when an answer with another one replaced it.

    Both are in seconds since the epoch.
    """

    target: str
    seen: float
    replaced: float


_decoder: Final = msgspec.json.Decoder(tuple[EarlierTarget, ...])


def read_earlier_targets(path: Path, key: str) -> tuple[EarlierTarget, ...]:
    """The earlier targets of a name, the newest first. Blocks. Without a file that can be read there are none."""
    try:
        with closing(connect_to_read(path)) as connection:
            row = connection.execute("SELECT earlier FROM entries WHERE key = ?", (key,)).fetchone()
    except (sqlite3.Error, OSError):
        return ()
    return () if row is None else _decode(row[0])


def add_earlier_target(entry: Entry, data: object, earlier: object) -> bytes | None:
    """What the row of a new entry has, from what it replaces: the stored bytes, and the earlier targets of those."""
    replaced = _find_replaced(entry, data)
    if replaced is None:
        return earlier if isinstance(earlier, bytes) else None
    return msgspec.json.encode([replaced, *_decode(earlier)][:MAX_TARGETS])


def _decode(earlier: object) -> tuple[EarlierTarget, ...]:
    # A damaged row can have a value of any type.
    if not isinstance(earlier, bytes):
        return ()
    try:
        return _decoder.decode(earlier)[:MAX_TARGETS]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()


def _find_replaced(entry: Entry, data: object) -> EarlierTarget | None:
    """The target of the stored entry, if the new one has another target."""
    try:
        known = unpack(entry.key, data)
    except DamagedEntry:
        return None
    if known is None or known.answer.values == entry.answer.values:
        return None
    before, after = _target_of(known), _target_of(entry)
    if not before or not after or before == after:
        return None
    return EarlierTarget(before, known.fetched_at, entry.fetched_at)


def _target_of(entry: Entry) -> str | None:
    if entry.answer.code is not ResponseCode.SUCCESS or len(entry.answer.values) > _MAX_BYTES:
        return None
    target = find_target(read_record(entry.answer.values).values)
    # Longer targets are not kept, in characters.
    return target if target is not None and len(target) <= 2_048 else None


#: Entries that the hand passes in one step, and steps in one transaction. One step takes less than a millisecond. Eight
#: can evict twice as many entries as a batch writes.
_STEP: Final = 512
_MAX_STEPS: Final = 8
#: The part of the entries of one step that may leave because the store is too large.
_PART: Final = 4

_SELECT: Final = "SELECT key, stale_until, last_used, room FROM entries WHERE key > ?"
_AFTER: Final = f"{_SELECT} ORDER BY key LIMIT ?"
_UP_TO: Final = f"{_SELECT} AND key <= ? ORDER BY key LIMIT ?"

#: Key, hard expiry, time of the last use (both in seconds since the epoch), and room. A damaged row can have any type.
Row = tuple[Any, Any, Any, Any]


def evict(connection: sqlite3.Connection, now: float, excess: int) -> None:
    """Move the hand, in the transaction under way. `excess` is the number of bytes by which the store is too large."""
    for _ in range(_MAX_STEPS):
        rows = _move_hand(connection)
        leaving = choose_leaving(rows, now, excess)
        connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key, *_ in leaving])
        excess -= sum(_size(row) for row in leaving)
        if excess <= 0 or not rows:
            return


def choose_leaving(rows: Sequence[Row], now: float, excess: int) -> list[Row]:
    """The rows that leave: those past their hard expiry, and those used longest ago while `excess` is positive."""
    leaving = [row for row in rows if _number(row[1]) <= now]
    excess -= sum(_size(row) for row in leaving)
    rest = sorted((row for row in rows if _number(row[1]) > now), key=lambda row: _number(row[2]))
    for row in rest[: -(-len(rest) // _PART)]:
        if excess <= 0:
            break
        leaving.append(row)
        excess -= _size(row)
    return leaving


def _move_hand(connection: sqlite3.Connection) -> list[Row]:
    """The next entries in the order of their keys. After the last one, the hand begins again."""
    (hand,) = connection.execute("SELECT key FROM hand").fetchone() or ("",)
    rows = connection.execute(_AFTER, (hand, _STEP)).fetchall()
    if len(rows) < _STEP and hand != "":
        rows += connection.execute(_UP_TO, ("", hand, _STEP - len(rows))).fetchall()
    place = rows[-1][0] if len(rows) == _STEP else ""
    if place != hand:
        connection.execute("INSERT OR REPLACE INTO hand VALUES (1, ?)", (place,))
    return rows


def _size(row: Row) -> int:
    return int(_number(row[3]))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0


#: Changes in one transaction. 512 take about 5 ms, during which the writers of other processes wait.
BATCH: Final = 512
#: Bytes of their keys and values.
BATCH_BYTES: Final = 4 * 1024 * 1024
#: Changes that may wait to be written. Further puts are dropped and counted.
MAX_PENDING: Final = 8_192
#: Seconds for which changes are gathered before they are written. A killed process loses these changes.
GATHER: Final = 0.5
#: Seconds until the next attempt after an error that can pass.
RETRY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """An entry to put, or None to delete it. With `announce`, other processes drop their copy from memory.

    The other fields are those of Store.put, and the time of a purge. A purge applies before the entry is put.
    """

    key: str
    entry: Entry | None
    announce: bool
    sent_at: float | None = None
    unless_newer: bool = False
    purged_at: float | None = None

    def follow(self, before: Change) -> Change:
        """This change and the one that still waits, as one."""
        if self.unless_newer and is_later(before.entry, self.entry):
            return before
        purged_at = before.purged_at if self.purged_at is None else self.purged_at
        return replace(self, announce=self.announce or before.announce, purged_at=purged_at)


def split_changes(changes: Iterable[Change], rows: int, batch_bytes: int) -> Iterator[list[Change]]:
    """The changes of each transaction: at most `rows`, with the keys and values of at most `batch_bytes` or of one.

    Without changes there is one transaction too, which shows whether the file can be written.
    """
    part, size = list[Change](), 0
    for change in changes:
        length = len(change.key) + (0 if change.entry is None else len(change.entry.answer.values))
        if part and (len(part) >= rows or size + length > batch_bytes):
            yield part
            part, size = [], 0
        part.append(change)
        size += length
    yield part


def is_later(known: Entry | None, entry: Entry | None) -> bool:
    """Whether `known` was fetched after `entry`."""
    return known is not None and entry is not None and known.fetched_at > entry.fetched_at


@dataclass(slots=True)
class Batch:
    """Changes that are written together: the last change of each key, and the times of use."""

    changes: dict[str, Change] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    waiters: list[Future[None]] = field(default_factory=list)


class BatchWriter:
    """Gathers changes for up to GATHER seconds and passes them to `write` in a thread. `submit` never waits."""

    def __init__(
        self,
        write: Callable[[list[Change], dict[str, float]], None],
        *,
        gather: float = GATHER,
        can_pass: Callable[[Exception], bool] = lambda _: False,
        rows: int = BATCH,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """`write` gets at most `rows` changes of `batch_bytes` at a time, and as many times of use. If it raises, they
        are lost, or if the error `can_pass`, they wait for the next attempt.
        """
        self._rows, self._batch_bytes = rows, batch_bytes
        self._write = write
        self._can_pass = can_pass
        self._gather = gather
        self._next = Batch()
        self._current = Batch()
        self._busy = False
        self._closing = False
        self._awake = Condition()
        self.dropped = 0
        self.lost = 0
        self.last_error: Exception | None = None
        self._unwritten: list[Change] = []
        self._thread = Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, change: Change) -> bool:
        """Add a change to the queue. Returns False if the queue is full, and counts the change as dropped."""
        with self._awake:
            pending = self._next.changes
            before = pending.get(change.key)
            if self._closing or (before is None and len(pending) >= MAX_PENDING):
                self.dropped += 1
                return False
            pending[change.key] = change if before is None else change.follow(before)
            if len(pending) in (1, BATCH):
                self._awake.notify()
            return True

    def record_use(self, key: str, when: float) -> None:
        """Record that an entry was used. The time is written with the next changes."""
        with self._awake:
            if len(self._next.used) < MAX_PENDING:
                self._next.used[key] = when

    def find(self, key: str) -> Change | None:
        """The uncommitted change of a key, if there is one."""
        # In this order: changes move from the next batch to the current one, and from there into the file.
        return self._next.changes.get(key) or self._current.changes.get(key)

    def flush(self) -> Future[None]:
        """A future that is done when all submitted changes are committed. It fails with StoreError if one is lost."""
        done: Future[None] = Future()
        with self._awake:
            if self._next.changes or self._next.used or self._busy:
                self._next.waiters.append(done)
                self._awake.notify()
                return done
        done.set_result(None)
        return done

    def close(self) -> None:
        """Write all waiting changes and end the thread. Blocks."""
        with self._awake:
            self._closing = True
            self._awake.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._take_next():
            batch, error = self._current, self._write_all(self._current)
            with self._awake:
                self._keep_unwritten()
                self._current = Batch()
                self._busy = False
                self.last_error = error
            for waiter in batch.waiters:
                # False if the waiting caller was cancelled.
                if not waiter.set_running_or_notify_cancel():
                    continue
                if error is None:
                    waiter.set_result(None)
                else:
                    text = f"The store could not be written: {error}."
                    waiter.set_exception(StoreError(text, cause=find_cause(error)))

    def _take_next(self) -> bool:
        with self._awake:
            # After a failure, an empty batch shows when the file can be written again.
            is_waiting = self._awake.wait_for(self._has_work, None if self.last_error is None else RETRY)
            if is_waiting and not self._is_urgent():
                self._awake.wait_for(self._is_urgent, self._gather if self.last_error is None else RETRY)
            if self._closing and not (self._next.changes or self._next.used or self._next.waiters):
                return False
            self._current = self._next
            self._next = Batch()
            self._busy = True
            return True

    def _has_work(self) -> bool:
        return bool(self._next.changes or self._next.waiters or self._closing)

    def _is_urgent(self) -> bool:
        is_full = len(self._next.changes) >= BATCH and self.last_error is None
        return self._closing or bool(self._next.waiters) or is_full

    def _write_all(self, batch: Batch) -> Exception | None:
        parts, times = split_changes(batch.changes.values(), self._rows, self._batch_bytes), iter(batch.used.items())
        uses, failure = iter(lambda: dict(islice(times, self._rows)), {}), None
        for changes, used in zip_longest(parts, uses):
            part = changes or []
            try:
                self._write(part, used or {})
            # Catch everything: if the thread ended, nothing would be written and every flush would hang.
            except Exception as error:
                failure = error
                if self._can_pass(error):
                    self._unwritten += part
                else:
                    self.lost += len(part)
        return failure

    def _keep_unwritten(self) -> None:
        """Put the changes that could not be written back into the queue, below the newer ones of their keys."""
        for change in self._unwritten:
            pending = self._next.changes
            later = pending.get(change.key)
            if self._closing or (later is None and len(pending) >= MAX_PENDING):
                self.lost += 1
                continue
            # Another process may write the same key meanwhile.
            waiting = replace(change, unless_newer=change.entry is not None)
            pending[change.key] = waiting if later is None else later.follow(waiting)
        self._unwritten.clear()


#: Rows of one INSERT. Each step of SQLite releases the interpreter lock and then waits for it, up to 5 ms in a busy
#: process. A few large steps are therefore faster than many small ones.
_ROWS: Final = 64
#: Deletes the oldest ones beyond a number of bytes.
_TRIM: Final = (
    "DELETE FROM announcements WHERE number <= (SELECT max(number) FROM (SELECT number, sum(length(CAST(key AS BLOB)))"
    " OVER (ORDER BY number DESC) AS bytes FROM announcements) WHERE bytes > ?)"
)


def write_batch(
    connection: sqlite3.Connection,
    changes: list[Change],
    used: dict[str, float],
    *,
    now: float,
    max_bytes: int,
    records: Records | None = None,
) -> None:
    """Write changes and times of use, and evict entries beyond `max_bytes`. After sqlite3.Error nothing is written.

    `records` follow what is written, and forget what they read if that changes one.
    """
    if connection.in_transaction:
        # An error left the last one open. Until it ends, no process writes.
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read before this batch adds its own: they were recorded after the queries of its entries.
        purges = _read_purges(connection, now)
        gone = [change.key for change in changes if change.entry is None or change.purged_at is not None]
        _delete(connection, gone)
        entries = [entry for change in changes if (entry := _admit(connection, change, purges, now))]
        _put(connection, entries, now)
        purged = [(change.key, change.purged_at) for change in changes if change.purged_at is not None]
        has_changed = records is not None and records.follow(connection, entries, gone)
        _record_purges(connection, purged, now)
        announce(connection, [change.key for change in changes if change.announce])
        connection.executemany(
            "UPDATE entries SET last_used = ? WHERE key = ?", [(int(when), key) for key, when in used.items()]
        )
        if not changes:
            # This changes nothing, and fails if the file cannot be written.
            connection.execute("UPDATE totals SET entries = entries")
        evict(connection, now, _count_size(connection) - max_bytes)
        connection.execute("COMMIT")
        if has_changed and records is not None:
            records.forget_recent()
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _admit(connection: sqlite3.Connection, change: Change, purges: Purges, now: float) -> Entry | None:
    """The entry of a change, unless a purge or a newer entry forbids it."""
    if change.sent_at is not None and purges.refuses(change.key, change.sent_at, now):
        return None
    if change.unless_newer and is_later(_find_usable(connection, change.key, now), change.entry):
        return None
    return change.entry


def _find_usable(connection: sqlite3.Connection, key: str, now: float) -> Entry | None:
    row = connection.execute("SELECT data FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else _read_usable(key, row[0], now)


def _read_usable(key: str, data: object, now: float) -> Entry | None:
    try:
        entry = unpack(key, data)
    except DamagedEntry:
        return None
    # An entry from the future was written before the clock was set back.
    usable = entry is not None and entry.is_usable(now) and entry.fetched_at <= now + MAX_SKEW
    return entry if usable else None


def _read_purges(connection: sqlite3.Connection, now: float) -> Purges:
    purges = Purges()
    for scope, at in connection.execute(
        "SELECT scope, at FROM purges WHERE at > ? AND at <= ? LIMIT ?", (now - PURGE_MEMORY, now, MAX_PURGES)
    ):
        # A damaged row can have values of any type.
        if isinstance(scope, str) and isinstance(at, float):
            purges.record(scope, at)
    return purges


def _record_purges(connection: sqlite3.Connection, purged: list[tuple[str, float]], now: float) -> None:
    if not purged:
        return
    connection.execute("DELETE FROM purges WHERE at <= ? OR at > ?", (now - PURGE_MEMORY, now))
    connection.executemany("INSERT OR REPLACE INTO purges VALUES (?, ?)", purged)
    (count,) = connection.execute("SELECT count(*) FROM purges").fetchone()
    if count > MAX_PURGES:
        connection.execute("DELETE FROM purges")
        connection.execute("INSERT INTO purges VALUES (?, ?)", (UNKNOWN, now))


def _put(connection: sqlite3.Connection, entries: list[Entry], now: float) -> None:
    for at in range(0, len(entries), _ROWS):
        part = entries[at : at + _ROWS]
        # The hard expiry is rounded up: an entry must not leave before it.
        values = [value for e in part for value in (e.key, ceil(e.stale_until), int(now), *_write_data(connection, e))]
        connection.execute(_upsert(len(part)), values)


def _write_data(connection: sqlite3.Connection, entry: Entry) -> tuple[bytes, bytes | None]:
    """The columns `data` and `earlier` of an entry."""
    row = connection.execute("SELECT data, earlier FROM entries WHERE key = ?", (entry.key,)).fetchone()
    return pack(entry), None if row is None else add_earlier_target(entry, *row)


@lru_cache(maxsize=_ROWS)
def _upsert(rows: int) -> str:
    places = ", ".join(["(?, ?, ?, ?, ?)"] * rows)
    return (
        f"INSERT INTO entries (key, stale_until, last_used, data, earlier) VALUES {places}"  # noqa: S608 - placeholders alone
        " ON CONFLICT (key) DO UPDATE"
        " SET stale_until = excluded.stale_until, last_used = excluded.last_used, data = excluded.data,"
        " earlier = excluded.earlier"
    )


def _delete(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in keys])


def announce(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    """Announce changes to other processes, in the transaction under way."""
    if not keys:
        return
    connection.executemany("INSERT INTO announcements (key) VALUES (?)", [(key,) for key in keys])
    connection.execute(
        "DELETE FROM announcements WHERE number <= (SELECT max(number) FROM announcements) - ?", (MAX_ANNOUNCEMENTS,)
    )
    # Shorter names cause no trim. They add as many bytes at most as the last trim kept.
    if any(len(key.encode()) > MAX_ANNOUNCED_BYTES // MAX_ANNOUNCEMENTS for key in keys):
        connection.execute(_TRIM, (MAX_ANNOUNCED_BYTES,))


def _count_size(connection: sqlite3.Connection) -> int:
    entries, size = connection.execute("SELECT entries, bytes FROM totals").fetchone() or ("", "")
    ((pages,), (page_size,)) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    # The rows cannot take much more than the file. The room of a row is an average, hence the margin.
    if isinstance(entries, int) and isinstance(size, int) and entries >= 0 and 0 <= size <= 4 * pages * page_size:
        return size
    # Totals that are damaged would stop every write, or empty the store. So they are counted again.
    entries, size = connection.execute("SELECT count(*), coalesce(sum(room), 0) FROM entries").fetchone()
    connection.execute("DELETE FROM totals")
    connection.execute("INSERT INTO totals VALUES (?, ?)", (entries, size))
    return int(size)
