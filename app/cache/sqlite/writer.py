"""The one thread of a process that writes its SQLite store, many changes to a transaction."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Final

from app.cache.entry import Entry
from app.errors import StoreError

#: Changes written in one transaction; 512 take about 5 ms, for which other processes wait with theirs.
BATCH: Final = 512
#: Changes that may wait to be written; further puts are dropped and counted.
MOST_PENDING: Final = 8_192
#: How long the first of the waiting changes waits, in seconds: what a killed process loses.
GATHER: Final = 0.5


@dataclass(frozen=True, slots=True)
class Change:
    """An entry to put, or to delete where it is None; with `announce`, other memory tiers are told."""

    key: str
    entry: Entry | None
    announce: bool


@dataclass(slots=True)
class Batch:
    """What is written together: the last change of each key, and when entries were used."""

    changes: dict[str, Change] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    waiters: list[Future[None]] = field(default_factory=list)


class BatchWriter:
    """Gathers changes for up to GATHER seconds and hands them to `write` in a thread; `submit` never waits."""

    def __init__(self, write: Callable[[list[Change], dict[str, float]], None], *, gather: float = GATHER) -> None:
        """`write` gets at most BATCH changes at a time; whatever it raises loses these."""
        self._write = write
        self._gather = gather
        self._next = Batch()
        self._current = Batch()
        self._busy = False
        self._closing = False
        self._awake = Condition()
        self.dropped = 0
        self.lost = 0
        self.last_error: Exception | None = None
        self._thread = Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, change: Change) -> bool:
        """Take a change over; False where too many wait already, which counts as dropped."""
        with self._awake:
            pending = self._next.changes
            before = pending.get(change.key)
            if self._closing or (before is None and len(pending) >= MOST_PENDING):
                self.dropped += 1
                return False
            if before is not None and before.announce:
                change = Change(change.key, change.entry, True)
            pending[change.key] = change
            if len(pending) in (1, BATCH):
                self._awake.notify()
            return True

    def note_used(self, key: str, when: float) -> None:
        """Take over that an entry was used; written with the next changes."""
        with self._awake:
            if len(self._next.used) < MOST_PENDING:
                self._next.used[key] = when

    def find(self, key: str) -> Change | None:
        """The change of a key that is not committed yet."""
        # In this order: changes move from the next batch to the current one, and from there into the file.
        return self._next.changes.get(key) or self._current.changes.get(key)

    def flushed(self) -> Future[None]:
        """Done when all that was submitted is committed; failed with StoreError if it could not be."""
        done: Future[None] = Future()
        with self._awake:
            if self._next.changes or self._next.used or self._busy:
                self._next.waiters.append(done)
                self._awake.notify()
                return done
        done.set_result(None)
        return done

    def close(self) -> None:
        """Write what waits and end the thread; blocks."""
        with self._awake:
            self._closing = True
            self._awake.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._take_next():
            batch, error = self._current, self._write_all(self._current)
            with self._awake:
                self._current = Batch()
                self._busy = False
                self.last_error = error
            for waiter in batch.waiters:
                # False where the one who waited has gone away.
                if not waiter.set_running_or_notify_cancel():
                    continue
                if error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(StoreError(f"The store could not be written: {error}."))

    def _take_next(self) -> bool:
        with self._awake:
            self._awake.wait_for(lambda: self._next.changes or self._next.waiters or self._closing)
            if not self._is_urgent():
                self._awake.wait_for(self._is_urgent, self._gather)
            if self._closing and not (self._next.changes or self._next.used or self._next.waiters):
                return False
            self._current = self._next
            self._next = Batch()
            self._busy = True
            return True

    def _is_urgent(self) -> bool:
        return self._closing or bool(self._next.waiters) or len(self._next.changes) >= BATCH

    def _write_all(self, batch: Batch) -> Exception | None:
        changes, used, failure = list(batch.changes.values()), batch.used, None
        for at in range(0, max(len(changes), 1), BATCH):
            part = changes[at : at + BATCH]
            try:
                self._write(part, used)
            # The thread outlives whatever goes wrong in one batch: nobody would write, and every flush would hang.
            except Exception as error:
                failure = error
                self.lost += len(part)
            used = {}
        return failure
