"""Writes the rows of a list to a file or a pipe, and counts their verdicts."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.lists.rows_file import WrittenRow
from doi_proxy.features.lists.verdict import ListRow, Verdict
from doi_proxy.list_formats.lines import WITHOUT_DOI
from doi_proxy.list_formats.list_stream import write_all
from doi_proxy.list_formats.writing import RowWriter
from doi_proxy.system.files import open_output, open_regular


class RowOutput:
    """An open output. `path` None is standard output."""

    def __init__(self, path: Path | None) -> None:
        """Open the output, and change nothing in it. Raises ConfigurationError if it cannot be written."""
        self._name = "standard output" if path is None else f"-o {path}"
        self._files = ExitStack()
        if path is None:
            self._fd = sys.stdout.fileno()
        else:
            try:
                self._fd = open_output(path)
            except OSError as error:
                raise ConfigurationError(f"{self._name}: cannot be written: {error.strerror or error}") from error
            self._files.callback(os.close, self._fd)
        #: The file of an output that can have rows of an earlier run.
        self.path = path if path is not None and stat.S_ISREG(os.fstat(self._fd).st_mode) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def open_earlier(self) -> IO[bytes] | None:
        """The file to read, if it has something. Raises ConfigurationError, also if another process writes to it."""
        if self.path is None:
            return None
        claim_file(self._fd, self.path)
        if not os.fstat(self._fd).st_size:
            return None
        try:
            return self._files.enter_context(open_regular(self.path))
        except OSError as error:
            raise ConfigurationError(f"{self._name}: cannot be read: {error.strerror or error}") from error

    def cut(self, size: int) -> None:
        """Remove what follows the first `size` bytes of the file, and continue there."""
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    async def write(self, data: bytes) -> None:
        """Write bytes. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        try:
            await write_all(self._fd, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}") from error


def claim_file(descriptor: int, path: Path) -> None:
    """Make sure that no other process writes rows to a file. Raises ConfigurationError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigurationError(f"-o {path}: another process writes to it; wait until it ends") from error
    except OSError:
        return  # the file system has no locks


class RowRecorder:
    """Writes rows to an output, and counts them."""

    def __init__(self, output: RowOutput, writer: RowWriter, fields: Sequence[str]) -> None:
        """`fields` are the members of a row that are written."""
        self._output = output
        self._writer = writer
        self._fields = fields
        #: The number of rows by verdict, with the rows of earlier runs.
        self.verdicts = Counter[Verdict]()
        #: Rows whose name leads to another work, with those of earlier runs.
        self.others = 0
        #: Rows of entries without a DOI, with those of earlier runs.
        self.without_doi = 0
        #: Rows that earlier runs wrote.
        self.earlier_rows = 0

    @property
    def rows(self) -> int:
        """The number of rows, with the rows of earlier runs."""
        return self.verdicts.total()

    def count_earlier(self, row: WrittenRow) -> None:
        """Count a row that an earlier run wrote."""
        self.earlier_rows += 1
        self.verdicts[row.verdict] += 1
        self.others += row.members.get("match") == "different"
        self.without_doi += row.members.get("message") == WITHOUT_DOI

    async def begin(self) -> None:
        """Write the beginning of an empty output. Raises DoiProxyError."""
        await self._output.write(self._writer.opening)

    async def write(self, rows: Sequence[ListRow]) -> None:
        """Write rows. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        members = [row.members() for row in rows]
        data = self._writer.write([{name: row_members.get(name) for name in self._fields} for row_members in members])
        self.verdicts.update([row.verdict for row in rows])
        self.others += sum(row.match == "different" for row in rows)
        self.without_doi += sum(row.message == WITHOUT_DOI for row in rows)
        await self._output.write(data)

    async def finish(self) -> None:
        """Write the end of the output, after all rows."""
        await self._output.write(self._writer.closing)


def report_rows(verdicts: Counter[Verdict], others: int = 0, entries: int = 0, columns: Sequence[str] = ()) -> None:
    """Print how many rows have which verdict, and how many names lead to another work.

    `entries` is what was read, if it is known: one with several names has several rows. `columns` are those of tables.
    """
    count = verdicts.total()
    rows = "1 row" if count == 1 else f"{count:,} rows"
    if entries not in (0, count):
        rows += f" from {entries:,} entries" if entries > 1 else " from 1 entry"
    end = f"; another work {others:,}" if others else ""
    for column in columns:
        print(column, file=sys.stderr)
    print(f"{rows}: {show_verdicts(verdicts) or 'the lists are empty'}{end}", file=sys.stderr)


def show_verdicts(verdicts: Counter[Verdict]) -> str:
    """The counts of the verdicts that occur, in the order of the vocabulary."""
    return ", ".join(f"{verdict.value} {verdicts[verdict]:,}" for verdict in Verdict if verdicts[verdict])
