"""The table of the records from the registration agencies' files. It is beside the entries, and never evicted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Self

from doi_proxy.cache.store import REGISTRY_CHANGED
from doi_proxy.errors import StoreError
from doi_proxy.features.registry import sqlite_blocks as registry_blocks
from doi_proxy.features.registry.record import RegistryRecord
from doi_proxy.features.registry.sqlite_blocks import WriteCounts
from doi_proxy.features.registry.wire import Compress, RegistryRow, to_record
from doi_proxy.features.sqlite import file
from doi_proxy.features.sqlite.batch import announce
from doi_proxy.store.compression import compress

#: Limit of the records in one call of `write`. 10,000 take about 30 ms, during which other writers wait.
MAX_BATCH: Final = 20_000
#: Records that one transaction of `forget_prefix` deletes.
_ROWS: Final = 10_000
#: Records in one page of `pages`.
_PAGE: Final = 1_000
#: Keys of one SELECT. The limit of SQLite is 32,766 variables.
_KEYS: Final = 500
_RANGE: Final = "SELECT key FROM entries WHERE key >= ? AND key <= ? LIMIT ?"
#: Pages of the write-ahead log after which it is copied into the file: 64 MiB. A checkpoint waits for the disk twice.
_CHECKPOINT: Final = 16_384


@dataclass(frozen=True, slots=True)
class ImportPart:
    """A part of an import that is finished with this write: a name chosen by the importer, and a note about it."""

    run: str
    part: str
    #: The text, or a function that gives it from the result of this write.
    note: str | Callable[[WriteCounts], str] = ""


class RegistryTable:
    """The registry records of one file, for an importer. Every method raises StoreError. Proxies may use the file."""

    def __init__(self, path: Path, *, now: float) -> None:
        """Open the store at `path`, and create it if it is missing. `now` is in seconds since the epoch."""
        file.prepare(path, now, registry_blocks.create_tables)
        #: The file of the store.
        self.path = path
        #: What compresses the blocks that are written.
        self.compress: Compress = compress
        with self._translate_errors():
            self._connection = file.connect(path, timeout=file.WRITE_TIMEOUT)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, rows: Sequence[RegistryRow], *, finishes: ImportPart | None = None) -> WriteCounts:
        """Write at most MAX_BATCH records, sorted by key, in one transaction. A later date wins over an earlier one.

        With `finishes`, the same transaction remembers a part of an import. In any order of the calls the table is the
        same, but keys that rise from call to call are written several times as fast as keys at random.
        """
        if len(rows) > MAX_BATCH:
            raise ValueError(f"{len(rows)} records are more than {MAX_BATCH}")
        with self._transaction():
            has_changed, counts = registry_blocks.write(self._connection, rows, self.compress)
            if has_changed:
                announce(self._connection, (REGISTRY_CHANGED,))
            if finishes is not None:
                note = finishes.note if isinstance(finishes.note, str) else finishes.note(counts)
                self._connection.execute(
                    "INSERT OR REPLACE INTO imports VALUES (?, ?, ?)", (finishes.run, finishes.part, note)
                )
        return counts

    def find(self, key: str) -> RegistryRecord | None:
        """The record of a key. Also raises DamagedEntry."""
        with self._translate_errors():
            row = registry_blocks.find(self._connection, key)
        return None if row is None else to_record(row)

    def count(self) -> int:
        """The number of records."""
        with self._translate_errors():
            (records,) = self._connection.execute("SELECT records FROM registry_total").fetchone() or (0,)
        return records if isinstance(records, int) else 0

    def pages(self, prefix: str = "", *, after: str = "") -> Iterator[list[RegistryRow]]:
        """The records whose key begins with `prefix` and follows `after`, in the order of their keys.

        Damaged records are left out. Records that are written or forgotten meanwhile may be missing.
        """
        while True:
            with self._translate_errors():
                page = list(islice(registry_blocks.read_rows(self._connection, after, prefix), _PAGE))
            rows = [row for row in page if row[0].startswith(prefix)]
            if rows:
                yield rows
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def forget(self, keys: Iterable[str]) -> int:
        """Delete the records of keys, and return their number."""
        with self._transaction():
            announce(self._connection, (REGISTRY_CHANGED,))
            return registry_blocks.delete(self._connection, list(keys))

    def forget_prefix(self, prefix: str) -> int:
        """Delete the records whose key begins with `prefix`, in transactions of limited size. Returns their number."""
        total = 0
        while True:
            with self._transaction():
                rows = list(islice(registry_blocks.read_rows(self._connection, start=prefix), _ROWS))
                keys = [key for key, *_ in rows if key.startswith(prefix)]
                total += registry_blocks.delete(self._connection, keys)
                announce(self._connection, (REGISTRY_CHANGED,))
            if len(keys) < _ROWS:
                return total

    def finished_parts(self, run: str) -> dict[str, str]:
        """The finished parts of an import, and their notes."""
        with self._translate_errors():
            return dict(self._connection.execute("SELECT part, note FROM imports WHERE import = ?", (run,)).fetchall())

    def count_entries(self, keys: Sequence[str]) -> int:
        """The number of these sorted keys that have an entry."""
        with self._translate_errors():
            found = self._connection.execute(_RANGE, (keys[0], keys[-1], len(keys) + 1)).fetchall()
            # With few entries between the keys, one pass is cheaper than a look-up of each key.
            if len(found) <= len(keys):
                return len({key for (key,) in found} & set(keys))
            return sum(self._count_each(keys[at : at + _KEYS]) for at in range(0, len(keys), _KEYS))

    def _count_each(self, keys: Sequence[str]) -> int:
        places = ", ".join("?" * len(keys))
        select = f"SELECT count(*) FROM entries WHERE key IN ({places})"  # noqa: S608 - placeholders alone
        return int(self._connection.execute(select, keys).fetchone()[0])

    def forget_imports(self, *, besides: str = "") -> None:
        """Forget the finished parts of all imports, or of all but one. A store has one import at a time."""
        with self._transaction():
            self._connection.execute("DELETE FROM imports WHERE import != ?", (besides,))

    def close(self) -> None:
        """Close the file."""
        with self._translate_errors():
            self._connection.close()

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
            if file.is_damage(error):
                file.mark_damaged(self.path)
            raise StoreError(f"The registry records of {self.path} failed: {error}.") from error
