"""The rows of `doi-proxy resolve`: where they are written, and those of an earlier run, after which a run goes on."""

from __future__ import annotations

import csv
import errno
import fcntl
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self

import msgspec

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.lists.verdict import ListRow, Verdict
from doi_proxy.list_formats.body import write_all
from doi_proxy.list_formats.entries import WITHOUT_DOI
from doi_proxy.list_formats.writing import JsonLinesWriter, RowWriter, TableWriter
from doi_proxy.system.files import Replacement, open_output, open_regular
from doi_proxy.system.options import MAX_SHOWN

#: The members that say to which input a row belongs, and what became of it.
NEEDED: Final = ("input", "verdict")


class WrittenRow(NamedTuple):
    """A complete row of a file: the bytes from `start` to `end`."""

    start: int
    end: int
    #: Those of CSV are texts.
    members: dict[str, Any]
    #: None for a row about an error, after which none followed.
    verdict: Verdict | None


class RowsFile:
    """Reads rows in their order. A row that a killed run did not finish is not a row."""

    def __init__(self, file: IO[bytes], path: Path, rows_format: str) -> None:
        self._file = file
        self.path = path
        self._format = rows_format
        #: The line at which the last row began, and the lines that were read.
        self._line = self._lines = 0
        #: The bytes of the file until the end of the last complete row that was read, or of the header of CSV.
        self.end = 0
        #: The columns of CSV; the members of the last row of JSON Lines. They are () before the first row.
        self._fields: tuple[str, ...] = ()

    def rows(self, fields: Sequence[str] | None = None) -> Iterator[WrittenRow]:
        """The complete rows, from the first one. Raises ConfigurationError for anything else.

        With `fields`, all rows must have these members in this order, and what follows the last one must be the
        beginning of such a row.
        """
        self._file.seek(0)
        self._line = self._lines = self.end = 0
        for data in self._records():
            start, row = self.end, self._parse(data)
            self.end += len(data)
            if row is not None:
                self._require_fields(fields)
                yield WrittenRow(start, self.end, *row)
        if fields is None:
            return
        self._require_fields(fields)
        beginning = b"{%s:" % json.dumps(fields[0]).encode()
        if self._format == "csv":
            beginning = b"" if self.end else TableWriter(fields).opening
        self._file.seek(self.end)
        if not beginning.startswith(self._file.read(len(beginning))):
            raise self._refuse()

    def refuse_input(self, text: str | None) -> ConfigurationError:
        """The error about the last row. `text` is the input of the lists in its place, None at their end."""
        found = "the lists end before it" if text is None else f"the input in its place is {text[:MAX_SHOWN]!r}"
        return ConfigurationError(
            f"-o {self.path}, line {self._line}: the row is not one of these lists: {found}; name the lists that the "
            "file was begun with, or another file"
        )

    def encode(self, members: Mapping[str, Any]) -> bytes:
        """A row like those of this file."""
        return (TableWriter(self._fields) if self._format == "csv" else JsonLinesWriter()).write([members])

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end` in pieces."""
        while piece := os.pread(self._file.fileno(), min(1024 * 1024, end - start), start):
            yield piece
            start += len(piece)

    def _records(self) -> Iterator[bytes]:
        """The lines of JSON, or the records of CSV, with their ends."""
        # Limit of a row, in bytes.
        most, record, quotes = 4 * 1024 * 1024, bytearray(), 0
        while line := self._file.readline(most):
            self._lines += 1
            if not record:
                self._line = self._lines
            record += line
            if len(record) >= most:
                raise self._refuse()
            # A record of CSV can have lines in its cells. It ends where the quotes are even (RFC 4180, section 2).
            quotes += line.count(b'"') if self._format == "csv" else 0
            if line.endswith(b"\n") and not quotes % 2:
                yield bytes(record)
                record.clear()

    def _parse(self, data: bytes) -> tuple[dict[str, Any], Verdict | None] | None:
        """The members and the verdict of a row. None for the header of CSV. Raises ConfigurationError."""
        members: dict[str, Any]
        try:
            if self._format == "csv":
                [cells] = csv.reader([data.decode()], strict=True)
                if not self.end and set(NEEDED).issubset(cells):
                    self._fields = tuple(cells)
                    return None
                members = dict(zip(self._fields, cells, strict=True))
                is_error = not members["verdict"]
            else:
                members = msgspec.json.decode(data, type=dict[str, Any])
                self._fields = tuple(members)
                is_error = "error" in members
            if is_error:
                return members, None
            if not isinstance(members["input"], str):
                raise self._refuse()
            return members, Verdict(members["verdict"])
        except (csv.Error, msgspec.DecodeError, KeyError, ValueError, RecursionError) as error:
            raise self._refuse() from error

    def _require_fields(self, fields: Sequence[str] | None) -> None:
        if fields is not None and self._fields and self._fields != tuple(fields):
            raise ConfigurationError(
                f"-o {self.path}, line {self._line}: the row has the members {','.join(self._fields)[:500]}, and this "
                f"command writes {','.join(fields)}; use the options of the run that began the file, or another file"
            )

    def _refuse(self) -> ConfigurationError:
        return ConfigurationError(
            f"-o {self.path}, line {self._line}: this is not a row in the format {self._format} with the members "
            f"{' and '.join(NEEDED)}; name the format of the file with --output-format, or another file"
        )


class RowOutput:
    """Writes rows, and counts them with those of earlier runs. `path` None is standard output."""

    def __init__(
        self, path: Path | None, rows_format: str, fields: Sequence[str], writer: RowWriter, again: Sequence[str]
    ) -> None:
        """Open the output, and change nothing in it. Raises ConfigurationError if it cannot be written.

        `fields` are the members of a row, and `again` the verdicts of earlier rows that are looked up again.
        """
        self._name = "standard output" if path is None else f"-o {path}"
        self._format = rows_format
        self._fields = fields
        self._writer = writer
        self._again = frozenset(map(Verdict, again))
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
        self._path = path if path is not None and stat.S_ISREG(os.fstat(self._fd).st_mode) else None
        #: Why a later run cannot go on. None if it can.
        self.obstacle: str | None = None
        if self._path is None:
            self.obstacle = "only a file of rows is continued; use -o FILE"
        elif rows_format not in ("jsonl", "csv"):
            self.obstacle = f"rows in the format {rows_format} cannot be continued; use --output-format jsonl or csv"
        elif not set(NEEDED).issubset(fields):
            self.obstacle = f"rows without the members {' and '.join(NEEDED)} cannot be continued; add them to --fields"
        #: The rows by verdict, without those that are yet to be looked up again.
        self.verdicts = Counter[Verdict]()
        #: How many of them are of entries without a DOI.
        self.without_doi = 0
        #: The rows by what their reference has to do with the work, those of earlier runs too. "" was not compared.
        self.matches = Counter[str]()
        #: The rows of earlier runs that are looked up again.
        self.repeated = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def rows(self) -> int:
        """The number of rows. See `verdicts`."""
        return self.verdicts.total()

    def open_earlier(self) -> RowsFile | None:
        """The rows of an earlier run, None without one. Raises ConfigurationError, also if they cannot be continued."""
        if self._path is None:
            return None
        self._claim(self._fd)
        if not os.fstat(self._fd).st_size:
            return None
        if self.obstacle is not None:
            raise ConfigurationError(f"{self._name}: the file exists, and {self.obstacle}; or name another file")
        try:
            return RowsFile(self._files.enter_context(open_regular(self._path)), self._path, self._format)
        except OSError as error:
            raise ConfigurationError(f"{self._name}: cannot be read: {error.strerror or error}") from error

    def _claim(self, fd: int) -> None:
        """Make sure that no other process writes rows to a file. Raises ConfigurationError."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(f"{self._name}: another process writes to it; wait until it ends") from error
        except OSError:
            return  # the file system has no locks

    def is_repeated(self, row: WrittenRow) -> bool:
        """Whether a row of an earlier run is looked up again."""
        return row.verdict in self._again

    def count_earlier(self, row: WrittenRow) -> None:
        """Count a row of an earlier run."""
        if self.is_repeated(row):
            self.repeated += 1
        elif row.verdict is not None:
            self.verdicts[row.verdict] += 1
            self._count_match(row.members.get("match"), row.members.get("why"))
            self.without_doi += row.members.get("message") == WITHOUT_DOI

    async def begin(self, size: int) -> None:
        """Remove what follows the first `size` bytes of the output, and continue there. Raises DoiProxyError."""
        if self._path is not None:
            self._cut(size)
        if not size:
            await self._write(self._writer.opening)

    def _count_match(self, match: str | None, why: str | None) -> None:
        if match:
            self.matches["" if (why or "").startswith("Not compared") else match] += 1

    async def write(self, rows: Sequence[ListRow]) -> None:
        """Write rows. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        all_members = [row.members() for row in rows]
        data = self._writer.write([{name: members.get(name) for name in self._fields} for members in all_members])
        await self._write(data)
        self.verdicts.update([row.verdict for row in rows])
        for row in rows:
            self._count_match(row.match, row.why)
        self.without_doi += sum(row.message == WITHOUT_DOI for row in rows)

    async def _write(self, data: bytes) -> None:
        size = 0 if self._path is None else os.lseek(self._fd, 0, os.SEEK_CUR)
        try:
            await write_all(self._fd, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            if self._path is not None:
                # The file has as many rows as the message says, and ends with a whole one.
                with suppress(OSError):
                    self._cut(size)
            raise self._fail(error, f"{self.rows:,} rows are written") from error

    def _cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def _fail(self, error: OSError, state: str) -> DoiProxyError:
        remedy = self.obstacle or "run the same command again to continue"
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and self.obstacle is None:
            remedy = f"free some space, and {remedy}"
        return DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}; {state}; {remedy}")

    @contextmanager
    def replace_rows(self, file: RowsFile) -> Iterator[Callable[[WrittenRow, ListRow], None]]:
        """Replace rows of the file, in one step at the end, also after a failure. All others stay as they are.

        Yields what takes a row and the new one in its place, in the order of the file. Raises DoiProxyError.
        """
        state, copied = os.fstat(self._fd), 0
        try:
            with Replacement(file.path) as new:
                os.fchmod(new.file.fileno(), stat.S_IMODE(state.st_mode))

                def replace_row(old: WrittenRow, row: ListRow) -> None:
                    nonlocal copied
                    new.file.writelines(file.read(copied, old.start))
                    members = row.members()
                    # The others say where an item is in its list, or are not of this program.
                    changed = old.members.keys() & members.keys() - {"input", "line", "key", "echo"}
                    new.file.write(file.encode(old.members | {name: members[name] for name in changed}))
                    copied = old.end
                    self.verdicts[row.verdict] += 1

                try:
                    yield replace_row
                finally:
                    new.file.writelines(file.read(copied, state.st_size))
                    self._claim(new.file.fileno())
                    new.put()
                    os.dup2(new.file.fileno(), self._fd, inheritable=False)
        except OSError as error:
            raise self._fail(error, "the file is as it was, and needs as much room again") from error


def show_verdicts(verdicts: Counter[Verdict]) -> str:
    """The counts of the verdicts that occur, in the order of the vocabulary."""
    return ", ".join(f"{verdict.value} {verdicts[verdict]:,}" for verdict in Verdict if verdicts[verdict])
