"""The table of the records from the registration agencies' files. It is beside the entries, and never evicted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from app.cache.registry_wire import date_of, has_same_target, is_intact, unpack_record
from app.cache.sqlite.change_log import Kind, log_changes, log_registry
from app.cache.sqlite.file import WRITE_TIMEOUT, connect, is_damage, mark_damaged, prepare
from app.errors import DamagedEntry, StoreError
from app.registry.record import RegistryRecord

#: A record as the table has it: the key of its name, and `registry_wire.pack_record`.
PackedRecord = tuple[str, bytes]

#: Limit of the records in one call of `write`. 10,000 take about 30 ms, during which other writers wait.
MAX_BATCH: Final = 20_000
#: Keys of one SELECT, and rows of one DELETE. The limit of SQLite is 32,766 variables.
_KEYS: Final = 500
_ROWS: Final = 10_000
#: Records in one page of `pages`.
_PAGE: Final = 1_000
#: Pages of the write-ahead log after which it is copied into the file: 64 MiB. A checkpoint waits for the disk twice.
_CHECKPOINT: Final = 16_384

#: After every key with a prefix: the last code point.
_LAST: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class ImportPart:
    """A part of an import that is finished with this write: a name chosen by the importer, and a note about it."""

    run: str
    part: str
    #: The text, or a function that gives it from the result of this write.
    note: str | Callable[[WriteCounts], str] = ""


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """Counts of the records of one write, by outcome."""

    #: Names that the table did not have.
    new: int = 0
    #: Names with another URL or agency than before.
    changed: int = 0
    #: Names with the same URL and agency. Their date may be a later one.
    same: int = 0
    #: Records that are older than the one in the table, which stays.
    older: int = 0

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(
            self.new + other.new, self.changed + other.changed, self.same + other.same, self.older + other.older
        )


class RegistryTable:
    """The registry records of one file, for an importer. Every method raises StoreError. Proxies may use the file."""

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        """Open the store at `path`, and create it if it is missing. `clock` gives seconds since the epoch."""
        prepare(path, clock())
        #: The file of the store.
        self.path = path
        self._clock = clock
        with self._translate_errors():
            self._connection = connect(path, timeout=WRITE_TIMEOUT)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, records: Sequence[PackedRecord], *, finishes: ImportPart | None = None) -> WriteCounts:
        """Write at most MAX_BATCH records, sorted by key, in one transaction. A later date wins over an earlier one.

        With `finishes`, the same transaction remembers a part of an import. In any order of the calls the table is the
        same, but keys that rise from call to call are written several times as fast as keys at random.
        """
        if len(records) > MAX_BATCH:
            raise ValueError(f"{len(records)} records are more than {MAX_BATCH}")
        with self._transaction():
            known = self._find_known(records)
            is_new_range = known is None
            rows, counts = _merge(records, known or {})
            self._connection.executemany(
                "INSERT INTO registry VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET data = excluded.data", rows
            )
            _add_to_total(self._connection, counts.new)
            log_registry(self._connection, [key for key, _ in rows], self._clock(), is_new_range=is_new_range)
            if finishes is not None:
                note = finishes.note if isinstance(finishes.note, str) else finishes.note(counts)
                self._connection.execute(
                    "INSERT OR REPLACE INTO imports VALUES (?, ?, ?)", (finishes.run, finishes.part, note)
                )
        return counts

    def find(self, key: str) -> RegistryRecord | None:
        """The record of a key. Also raises DamagedEntry."""
        with self._translate_errors():
            row = self._connection.execute("SELECT data FROM registry WHERE key = ?", (key,)).fetchone()
        return None if row is None else unpack_record(key, row[0])

    def count(self) -> int:
        """The number of records."""
        with self._translate_errors():
            (records,) = self._connection.execute("SELECT records FROM registry_total").fetchone() or (0,)
        return records if isinstance(records, int) else 0

    def pages(self, prefix: str = "", *, after: str = "") -> Iterator[list[RegistryRecord]]:
        """The records whose key begins with `prefix` and follows `after`, in the order of their keys.

        Damaged records are left out. Records that are written or forgotten meanwhile may be missing.
        """
        select, start = ("key >= ?", prefix) if prefix > after else ("key > ?", after)
        while True:
            with self._translate_errors():
                rows = self._connection.execute(
                    f"SELECT key, data FROM registry WHERE {select} ORDER BY key LIMIT ?",  # noqa: S608 - one of two
                    (start, _PAGE),
                ).fetchall()
            texts = [(key, data) for key, data in rows if isinstance(key, str) and key.startswith(prefix)]
            if texts:
                yield [record for key, data in texts if (record := _try_unpack(key, data)) is not None]
            if len(texts) < _PAGE:
                return
            select, start = "key > ?", texts[-1][0]

    def forget(self, keys: Iterable[str]) -> int:
        """Delete the records of keys, and return their number."""
        gone = list(keys)
        with self._transaction():
            log_changes(self._connection, Kind.FORGOTTEN, gone, self._clock())
            return delete_records(self._connection, gone)

    def forget_prefix(self, prefix: str) -> int:
        """Delete the records whose key begins with `prefix`, in transactions of limited size. Returns their number."""
        total = 0
        while True:
            with self._transaction():
                gone = self._connection.execute(
                    "DELETE FROM registry WHERE key IN (SELECT key FROM registry WHERE key >= ? AND key < ? LIMIT ?)",
                    (prefix, prefix + _LAST, _ROWS),
                ).rowcount
                _add_to_total(self._connection, -gone)
            total += gone
            if gone < _ROWS:
                return total

    def finished_parts(self, run: str) -> dict[str, str]:
        """The finished parts of an import, and their notes."""
        with self._translate_errors():
            return dict(self._connection.execute("SELECT part, note FROM imports WHERE import = ?", (run,)).fetchall())

    def forget_import(self, run: str) -> None:
        """Forget the finished parts of an import, because it is complete or begins again."""
        with self._transaction():
            self._connection.execute("DELETE FROM imports WHERE import = ?", (run,))

    def forget_imports(self, *, besides: str) -> None:
        """Forget the finished parts of all imports but one. A store has one import at a time."""
        with self._transaction():
            self._connection.execute("DELETE FROM imports WHERE import != ?", (besides,))

    def close(self) -> None:
        """Close the file."""
        with self._translate_errors():
            self._connection.close()

    def _find_known(self, records: Sequence[PackedRecord]) -> dict[str, bytes] | None:
        """What the table has of the records. None if all of them come after its last key."""
        last = self._connection.execute("SELECT max(key) FROM registry").fetchone()[0]
        if not records or last is None or min(records)[0] > last:
            return None
        known: dict[str, bytes] = {}
        for at in range(0, len(records), _KEYS):
            keys = [key for key, _ in records[at : at + _KEYS]]
            places = ", ".join("?" * len(keys))
            known.update(
                self._connection.execute(
                    f"SELECT key, data FROM registry WHERE key IN ({places})",  # noqa: S608 - placeholders alone
                    keys,
                )
            )
        return known

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._translate_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, OverflowError, UnicodeError) as error:
            if is_damage(error):
                mark_damaged(self.path)
            raise StoreError(f"The registry records of {self.path} failed: {error}.") from error


def delete_records(connection: sqlite3.Connection, keys: Iterable[str]) -> int:
    """Delete the records of keys in the transaction under way, and return their number."""
    rows = [(key,) for key in keys]
    gone = connection.executemany("DELETE FROM registry WHERE key = ?", rows).rowcount if rows else 0
    _add_to_total(connection, -gone)
    return gone


def _add_to_total(connection: sqlite3.Connection, number: int) -> None:
    if number:
        connection.execute("UPDATE registry_total SET records = max(0, records + ?)", (number,))


def _merge(records: Sequence[PackedRecord], known: dict[str, bytes]) -> tuple[list[PackedRecord], WriteCounts]:
    """The records to write, and what becomes of each. `known` is changed: a name can occur twice in one batch."""
    new = changed = same = older = 0
    rows = []
    for key, data in records:
        before = known.get(key)
        if before is None:
            new += 1
        elif not is_intact(key, before):
            changed += 1
        elif date_of(data) < date_of(before):
            older += 1
            continue
        elif not has_same_target(before, data):
            changed += 1
        else:
            same += 1
            if data == before:
                continue
        known[key] = data
        rows.append((key, data))
    return rows, WriteCounts(new, changed, same, older)


def _try_unpack(key: str, data: object) -> RegistryRecord | None:
    try:
        return unpack_record(key, data)
    except DamagedEntry:
        return None
