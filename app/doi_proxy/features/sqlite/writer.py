"""The thread of a process that writes to its SQLite store, with many changes in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from threading import Condition, Thread
from typing import Final

from doi_proxy.cache.entry import Entry, loses_proof
from doi_proxy.errors import StoreError
from doi_proxy.features.sqlite.file import find_cause

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
        if self.entry is not None and loses_proof(before.entry, self.entry, self.entry.fetched_at):
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
