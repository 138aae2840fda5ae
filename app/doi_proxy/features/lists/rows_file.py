"""Reads the file with the rows of an earlier run: the state from which a later run goes on."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self, get_args

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.lists.verdict import ListRow, Verdict
from doi_proxy.features.metadata.match import Match
from doi_proxy.list_formats.body import write_all
from doi_proxy.list_formats.entries import WITHOUT_DOI
from doi_proxy.list_formats.writing import RowWriter, TableWriter, escape_line_ends
from doi_proxy.system.files import open_output, open_regular
from doi_proxy.system.options import MAX_SHOWN

#: Formats whose rows can be read again.
ROWS_FORMATS: Final = ("jsonl", "csv")
#: The members that say to which input a row belongs, and what became of it.
NEEDED: Final = ("input", "verdict")
#: Limit of a row, in bytes.
_MAX_ROW_BYTES: Final = 4 * 1024 * 1024


class WrittenRow(NamedTuple):
    """A complete row of a file."""

    #: The row as it is in the file.
    data: bytes
    #: Its members. Those of CSV are texts.
    members: dict[str, Any]
    #: Whether the row is about an error after which none followed. It has no verdict.
    is_error: bool

    @property
    def verdict(self) -> Verdict:
        """The verdict of a row that is not an error."""
        return Verdict(self.members["verdict"])


class RowsFile:
    """Reads rows in their order. A row that a killed run did not finish is not a row."""

    def __init__(self, file: IO[bytes], path: Path, rows_format: str) -> None:
        self._file = file
        self._path = path
        self._format = rows_format
        #: The line at which the last row began.
        self._line = 0
        #: The bytes of the file until the end of the last complete row that was read, or of the header of CSV.
        self.end = 0
        #: The columns of CSV; the members of the last row of JSON Lines. They are () before the first row.
        self.fields: tuple[str, ...] = ()

    def rows(self) -> Iterator[WrittenRow]:
        """The complete rows. Raises ConfigurationError for anything else."""
        return self._csv_rows() if self._format == "csv" else self._json_rows()

    def require_fields(self, fields: Sequence[str]) -> None:
        """Raise ConfigurationError unless the rows have these members, in this order."""
        if self.fields and self.fields != tuple(fields):
            raise ConfigurationError(
                f"-o {self._path}, line {self._line}: the row has the members {','.join(self.fields)[:500]}, and this "
                f"command writes {','.join(fields)}; use the options of the run that began the file, or another file"
            )

    def require_rest(self, fields: Sequence[str]) -> None:
        """Raise ConfigurationError unless what follows the last row can be the beginning of one with these members."""
        start = b"{%s:" % json.dumps(fields[0]).encode()
        if self._format == "csv":
            start = b"" if self.end else TableWriter(fields).opening
        self._file.seek(self.end)
        rest = self._file.read(len(start))
        if not start.startswith(rest):
            self._line += 1
            raise self._refuse()

    def refuse_input(self, text: str | None) -> ConfigurationError:
        """The error about the last row. `text` is the input of the lists in its place, None at their end."""
        found = "the lists end before it" if text is None else f"the input in its place is {text[:MAX_SHOWN]!r}"
        return ConfigurationError(
            f"-o {self._path}, line {self._line}: the row is not one of these lists: {found}; name the lists that the "
            "file was begun with, or another file"
        )

    def encode(self, members: Mapping[str, Any]) -> bytes:
        """A row like those of this file."""
        if self._format == "csv":
            return TableWriter(self.fields).write([members])
        # msgspec refuses a lone surrogate, which json reads.
        written = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return escape_line_ends(written) + b"\n"

    def _json_rows(self) -> Iterator[WrittenRow]:
        while (line := self._file.readline(_MAX_ROW_BYTES)).endswith(b"\n"):
            self._line += 1
            try:
                members = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise self._refuse() from error
            if not isinstance(members, dict):
                raise self._refuse()
            self.fields = tuple(members)
            self.end += len(line)
            yield self._check(WrittenRow(line, members, "error" in members))
        if len(line) == _MAX_ROW_BYTES:
            self._line += 1
            raise self._refuse()

    def _csv_rows(self) -> Iterator[WrittenRow]:
        lines = _CsvLines(self._file)
        records = csv.reader(lines, strict=True)
        while True:
            lines.taken.clear()
            try:
                cells = next(records, None)
            except (csv.Error, ValueError) as error:
                # A record that ends within a quoted cell is not complete.
                if lines.is_ended:
                    return
                self._line = lines.first
                raise self._refuse() from error
            data = b"".join(lines.taken)
            if cells is None or not data.endswith(b"\n"):
                return
            if not self.fields:
                self.fields = tuple(cells)
                self._line = 1
                self._require_needed(self.fields)
                self.end += len(data)
                continue
            self._line = lines.first
            if len(cells) != len(self.fields):
                raise self._refuse()
            self.end += len(data)
            members = dict(zip(self.fields, cells, strict=True))
            yield self._check(WrittenRow(data, members, not members["verdict"]))

    def _check(self, row: WrittenRow) -> WrittenRow:
        if row.is_error:
            return row
        self._require_needed(row.members)
        try:
            Verdict(row.members["verdict"])
        except ValueError as error:
            raise self._refuse() from error
        if not isinstance(row.members["input"], str):
            raise self._refuse()
        return row

    def _require_needed(self, fields: Sequence[str] | dict[str, Any]) -> None:
        if not all(name in fields for name in NEEDED):
            raise self._refuse()

    def _refuse(self) -> ConfigurationError:
        return ConfigurationError(
            f"-o {self._path}, line {self._line}: this is not a row in the format {self._format} with the members "
            f"{' and '.join(NEEDED)}; name the format of the file with --output-format, or another file"
        )


class _CsvLines:
    """The lines of a CSV file as texts, with what csv.reader took of them for one record."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._number = 0
        self.taken: list[bytes] = []
        self.is_ended = False

    @property
    def first(self) -> int:
        """The number of the first line of the record."""
        return self._number - len(self.taken) + 1

    def __iter__(self) -> Iterator[str]:
        size = 0
        while line := self._file.readline(_MAX_ROW_BYTES):
            size = len(line) + (size if self.taken else 0)
            if size >= _MAX_ROW_BYTES:
                raise ValueError("the record is too long")
            self._number += 1
            self.taken.append(line)
            # A character at the end can be cut: the record is not complete then.
            yield line.decode("utf-8", "surrogateescape")
        self.is_ended = True


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
        #: The rows by what their reference has to do with the work, those of earlier runs too. "" was not compared.
        self.matches = Counter[str]()
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
        self._count_match(row.members.get("match"), row.members.get("why"))
        self.without_doi += row.members.get("message") == WITHOUT_DOI

    def _count_match(self, match: str | None, why: str | None) -> None:
        if match:
            self.matches["" if (why or "").startswith("Not compared") else match] += 1

    async def begin(self) -> None:
        """Write the beginning of an empty output. Raises DoiProxyError."""
        await self._output.write(self._writer.opening)

    async def write(self, rows: Sequence[ListRow]) -> None:
        """Write rows. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        members = [row.members() for row in rows]
        data = self._writer.write([{name: row_members.get(name) for name in self._fields} for row_members in members])
        self.verdicts.update([row.verdict for row in rows])
        for row in rows:
            self._count_match(row.match, row.why)
        self.without_doi += sum(row.message == WITHOUT_DOI for row in rows)
        await self._output.write(data)

    async def finish(self) -> None:
        """Write the end of the output, after all rows."""
        await self._output.write(self._writer.closing)


def report_rows(
    verdicts: Counter[Verdict], matches: Counter[str] | None = None, entries: int = 0, columns: Sequence[str] = ()
) -> None:
    """Print how many rows have which verdict, and how many references are about the work, if they were compared.

    `entries` is what was read, if it is known: one with several names has several rows. `columns` are those of tables.
    """
    count = verdicts.total()
    rows = "1 row" if count == 1 else f"{count:,} rows"
    if entries not in (0, count):
        rows += f" from {entries:,} entries" if entries > 1 else " from 1 entry"
    end = ""
    if matches:
        found = [f"{match} {matches[match]:,}" for match in get_args(Match) if matches[match]]
        compared = f"{matches.total() - matches['']:,} of {matches.total():,}"
        end = f"; compared {', '.join([compared, *found])}"
    for column in columns:
        print(column, file=sys.stderr)
    print(f"{rows}: {show_verdicts(verdicts) or 'the lists are empty'}{end}", file=sys.stderr)


def show_verdicts(verdicts: Counter[Verdict]) -> str:
    """The counts of the verdicts that occur, in the order of the vocabulary."""
    return ", ".join(f"{verdict.value} {verdicts[verdict]:,}" for verdict in Verdict if verdicts[verdict])
