"""The file of an import beside the store: what is imported, the parts that were read, and their sorted rows.

Rows are in runs, each in the order of its keys, and compressed in blocks: 15 bytes for each row. One table that SQLite
sorts takes as much processor time, and 112 bytes for each row, which are twice on the disk while it sorts.
"""

from __future__ import annotations

import hashlib
import heapq
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import dropwhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.registry.import_parts import DamagedData, LeftOut, library, list_source_files
from doi_proxy.features.registry.import_worker import PartReport
from doi_proxy.features.registry.json_values import RegistryRow
from doi_proxy.system.files import STANDARD_INPUT, create_beside

#: Rows of a block. A merge has one block of each run in memory, of about 100 KiB.
_BLOCK_ROWS: Final = 250
#: Seconds after which rows are written as a run, so that a kill costs no more.
RUN_SECONDS: Final = 60.0
_TABLES: Final = """
CREATE TABLE job (identity TEXT, command TEXT, is_read INTEGER, last TEXT, counts TEXT);
CREATE TABLE parts (name TEXT, is_left_out INTEGER, report BLOB);
CREATE TABLE blocks (run INTEGER, number INTEGER, data BLOB, PRIMARY KEY (run, number)) WITHOUT ROWID;
"""
_rows: Final = msgspec.msgpack.Decoder(list[RegistryRow])
_report: Final = msgspec.msgpack.Decoder(PartReport)


class Staging:
    """The file of an import, for one process at a time. Every method raises DoiProxyError, as for a full disk."""

    def __init__(self, path: Path, source: str, options: str, *, restart: bool) -> None:
        """Begin the import of these files with these options, or go on with it. Raises ConfigurationError."""
        self.path = path
        command, identity = f"{source} {options}".strip(), _identify(source, options)
        try:
            create_beside(path)
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.0)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"{path}: cannot be written: {getattr(error, 'strerror', error)}") from error
        try:
            self._execute("PRAGMA locking_mode = EXCLUSIVE")
            self._execute("BEGIN EXCLUSIVE")
            has_job = self._execute("SELECT 1 FROM sqlite_master WHERE name = 'job'")
            #: Whether it goes on with an earlier one.
            self.is_continued = bool(has_job) and not restart and source != STANDARD_INPUT
            before = self._execute("SELECT identity, command FROM job") if self.is_continued else [(identity, command)]
            if before[0][0] != identity:
                raise ConfigurationError(
                    f"{path}: an import of {before[0][1]} is not finished; run it again to continue; if its files have "
                    "changed since, or to drop it, add --restart"
                )
            if not self.is_continued:
                for name in ("job", "parts", "blocks"):
                    self._execute(f"DROP TABLE IF EXISTS {name}")
                for statement in _TABLES.strip().split("\n"):
                    self._execute(statement)
                self._execute("INSERT INTO job VALUES (?, ?, 0, '', '{}')", identity, command)
            self._execute("COMMIT")
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # --- Reading ------------------------------------------------------------------------------------------------------

    @property
    def is_read(self) -> bool:
        """Whether all files are read."""
        return bool(self._execute("SELECT is_read FROM job")[0][0])

    def finish_reading(self) -> None:
        """All files are read."""
        self._execute("UPDATE job SET is_read = 1")

    def reports(self) -> list[PartReport]:
        """The reports of all parts."""
        with self._translate_errors():
            return [_report.decode(report) for (report,) in self._execute("SELECT report FROM parts ORDER BY rowid")]

    def forget_left_out(self) -> None:
        """Forget the files that were not read: they are looked at again."""
        self._execute("DELETE FROM parts WHERE is_left_out")

    def note_left_out(self, part: LeftOut) -> None:
        """A file is not read."""
        failure, reason = (part.reason, "") if part.is_failure else ("", part.reason)
        with self._translate_errors():
            report = msgspec.msgpack.encode(PartReport(part.name, failure=failure, left_out=reason))
            self._execute("INSERT INTO parts VALUES (?, 1, ?)", part.name, report)

    def write_run(self, parts: list[PartReport], rows: list[RegistryRow]) -> None:
        """Write the reports of parts, and their rows as a run."""
        # A tuple is compared four times as slowly as its key.
        rows.sort(key=itemgetter(0))
        blocks = (rows[at : at + _BLOCK_ROWS] for at in range(0, len(rows), _BLOCK_ROWS))
        with self._transaction():
            run = self._count_runs() + 1
            for number, block in enumerate(blocks):
                data = library.compress(msgspec.msgpack.encode(block), 1)
                self._execute("INSERT INTO blocks VALUES (?, ?, ?)", run, number, data)
            for part in parts:
                self._execute("INSERT INTO parts VALUES (?, 0, ?)", part.name, msgspec.msgpack.encode(part))

    # --- Storing ------------------------------------------------------------------------------------------------------

    def rows(self, after: str) -> Iterator[RegistryRow]:
        """All rows whose keys follow `after`, in the order of their keys."""
        runs = map(self._read_run, range(1, self._count_runs() + 1))
        return dropwhile(lambda row: row[0] <= after, heapq.merge(*runs))

    def _count_runs(self) -> int:
        # They are numbered from 1. To count them would read all blocks.
        return int(self._execute("SELECT ifnull(max(run), 0) FROM blocks")[0][0])

    def _read_run(self, run: int) -> Iterator[RegistryRow]:
        with self._translate_errors():
            for (data,) in self._connection.execute("SELECT data FROM blocks WHERE run = ? ORDER BY number", (run,)):
                yield from _rows.decode(library.decompress(data))

    def progress(self) -> tuple[str, Counter[str]]:
        """The last key that is stored, and the counts so far."""
        ((last, counts),) = self._execute("SELECT last, counts FROM job")
        return last, Counter(msgspec.json.decode(counts, type=dict[str, int]))

    def note_progress(self, last: str, counts: Counter[str]) -> None:
        """All rows up to this key are stored."""
        self._execute("UPDATE job SET last = ?, counts = ?", last, msgspec.json.encode(counts).decode())

    def remove(self) -> None:
        """Remove the file of an import that is done."""
        self._connection.close()
        self.path.unlink()

    # --- SQLite -------------------------------------------------------------------------------------------------------

    def _execute(self, statement: str, *values: object) -> list[Any]:
        with self._translate_errors():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            shown = f"{error.object[:200]!r}: the name of this file is not UTF-8; rename it"
            raise ConfigurationError(shown) from error
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                hint = "another import into this store is running; wait for its end"
                raise ConfigurationError(f"{self.path}: {hint}") from error
            hint = "run the same command again to continue"
            raise DoiProxyError(f"{self.path}: cannot be written: {error}; {hint}") from error
        except (sqlite3.DatabaseError, msgspec.DecodeError, ValueError, DamagedData) as error:
            hint = "--restart begins again, or else remove it"
            raise ConfigurationError(f"{self.path}: this file of an import is damaged; {hint}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN")
        try:
            with self._translate_errors():
                yield
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


class RunWriter:
    """Collects the rows of parts, and writes them as a run when they are many, or have waited for RUN_SECONDS."""

    def __init__(self, staging: Staging, run_rows: int, clock: Callable[[], float]) -> None:
        """`clock` gives seconds from any origin."""
        self._staging, self._run_rows, self._clock = staging, run_rows, clock
        self._parts: list[tuple[PartReport, bytes]] = []
        self._rows = self._bytes = 0
        self._began = clock()

    def add(self, report: PartReport, packed: bytes) -> None:
        """Add the rows of one part, as `read_packed` gives them."""
        self._parts.append((report, packed))
        self._rows += report.records
        self._bytes += len(packed)
        # Bytes from which a run is written. They take about four times as much in memory.
        is_full = self._rows >= self._run_rows or self._bytes >= 48 * 1024 * 1024
        if is_full or self._clock() >= self._began + RUN_SECONDS:
            self.write()

    def write(self) -> None:
        """Write all rows that wait. Wherever it is interrupted, a part is in the file once or not at all."""
        parts, self._parts = self._parts, []
        self._rows, self._bytes, self._began = 0, 0, self._clock()
        if parts:
            rows = [row for _, packed in parts for row in _rows.decode(packed)]
            self._staging.write_run([report for report, _ in parts], rows)


def _identify(source: str, options: str) -> str:
    digest = hashlib.sha256(options.encode())
    for path, size, time in () if source == STANDARD_INPUT else list_source_files(source):
        digest.update(f"\n{path} {size} {time}".encode(errors="surrogateescape"))
    return digest.hexdigest()
