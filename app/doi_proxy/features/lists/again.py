"""Looks up rows of an earlier run again, and replaces them in their file.

The new file is written beside the old one and takes its place at the end. A run that a signal ends has replaced the
rows that were answered; the same command continues with the others. A run that is killed has changed nothing.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO, Final

from doi_names.find_names import FoundName
from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.command import CommandContext
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.resolve_lists import open_rows
from doi_proxy.features.lists.row_output import claim_file, report_rows
from doi_proxy.features.lists.rows_file import ROWS_FORMATS, RowsFile, WrittenRow
from doi_proxy.features.lists.verdict import FIELDS, GOOD, ListRow, Verdict
from doi_proxy.list_formats.lines import ListItem
from doi_proxy.system.files import Replacement, open_regular
from doi_proxy.system.interruption import INTERRUPTED, Stop, stop_on_signals

#: Rows between two chances for other work.
_GROUP: Final = 64
_COPY_BYTES: Final = 1024 * 1024
#: Members that say where an item is in its list. They stay.
_PLACE: Final = frozenset({"input", "line", "key", "echo"})


async def resolve_again(context: CommandContext, choice: ResolveChoice) -> int:
    """Replace the rows of a file that have some verdicts. Raises ConfigurationError and DoiProxyError."""
    path, rows_format = choice.output, choice.output_format or ROWS_FORMATS[0]
    if path is None or rows_format not in ROWS_FORMATS:
        raise ConfigurationError(f"--again: name the file of rows with -o FILE, which is {' or '.join(ROWS_FORMATS)}")
    if choice.matches:
        raise ConfigurationError("--again: rows have no references to compare; leave out --match")
    if (choice.lists or choice.names) and not path.exists():
        return 0
    verdicts = Counter[Verdict]()
    with stop_on_signals() as stop:
        names = await _replace_rows(context, choice, _Source(path, rows_format, choice.again), verdicts, stop)
    if names:
        report_rows(verdicts)
    else:
        print(f"-o {path}: no row has one of the verdicts {', '.join(choice.again)}", file=sys.stderr)
    if stop.event.is_set():
        done = f"{verdicts.total():,} of {names:,} names"
        print(f"stopped by a signal after {done}; run the same command again to continue", file=sys.stderr)
        return INTERRUPTED
    return 0 if all(verdict in GOOD for verdict in +verdicts) else 1


class _Source:
    """The file of the rows, and the verdicts of those that are looked up again."""

    def __init__(self, path: Path, rows_format: str, verdicts: Sequence[str]) -> None:
        self.path = path
        self._format = rows_format
        self._verdicts = frozenset(map(Verdict, verdicts))

    def open(self) -> IO[bytes]:
        """Open the file. Raises ConfigurationError."""
        try:
            return open_regular(self.path)
        except OSError as error:
            raise ConfigurationError(f"-o {self.path}: cannot be read: {error.strerror or error}") from error

    def rows(self, file: IO[bytes]) -> RowsFile:
        """The rows of the open file, from its beginning."""
        file.seek(0)
        return RowsFile(file, self.path, self._format)

    def is_repeated(self, row: WrittenRow) -> bool:
        """Whether a row is looked up again."""
        return not row.is_error and row.verdict in self._verdicts


async def _replace_rows(
    context: CommandContext, choice: ResolveChoice, source: _Source, verdicts: Counter[Verdict], stop: Stop
) -> int:
    """Look up the rows, replace them and count their verdicts. Returns the number of names that had to be looked up."""
    with source.open() as file, source.open() as inputs:
        claim_file(file.fileno(), source.path)
        # Raises before anything is written.
        names = sum(map(source.is_repeated, source.rows(file).rows()))
        if not names:
            return 0
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        with Replacement(source.path) as replacement:
            os.fchmod(replacement.file.fileno(), mode)
            copy = _Copy(source, file, replacement.file, verdicts)
            try:
                async with open_rows(context, choice, _read_again(source, inputs), stop.event, None, FIELDS) as groups:
                    rows = _flatten(groups)
                    async with aclosing(rows):
                        await copy.run(rows)
            except asyncio.CancelledError:
                stop.event.set()
            finally:
                # Also after a failure: what was answered is kept.
                copy.finish()
                replacement.put()
    return names


class _Copy:
    """Copies a file of rows, and replaces those that are looked up again."""

    def __init__(self, source: _Source, file: IO[bytes], target: IO[bytes], verdicts: Counter[Verdict]) -> None:
        self._source = source
        self._file = file
        self._target = target
        self._verdicts = verdicts
        #: The bytes of the file that were copied or replaced.
        self._done = 0

    async def run(self, rows: AsyncIterator[ListRow]) -> None:
        """Copy and replace until the new rows end."""
        file = self._source.rows(self._file)
        for row in file.rows():
            if not self._source.is_repeated(row):
                continue
            new = await anext(rows, None)
            if new is None:
                return
            self._copy_until(file.end - len(row.data))
            members = new.members()
            known = {name: members[name] for name in row.members if name in members and name not in _PLACE}
            self._target.write(file.encode(row.members | known))
            self._done = file.end
            self._verdicts[new.verdict] += 1

    def finish(self) -> None:
        """Copy the rest, also a row that a killed run did not finish."""
        self._copy_until(os.fstat(self._file.fileno()).st_size)

    def _copy_until(self, end: int) -> None:
        while data := os.pread(self._file.fileno(), min(_COPY_BYTES, end - self._done), self._done):
            self._target.write(data)
            self._done += len(data)


async def _read_again(source: _Source, inputs: IO[bytes]) -> AsyncGenerator[list[BatchInput]]:
    """The inputs of the rows that are looked up again."""
    group: list[BatchInput] = []
    for row in source.rows(inputs).rows():
        if source.is_repeated(row):
            group.append(_read_item(row))
        if len(group) >= _GROUP:
            yield group
            group = []
            await asyncio.sleep(0)
    yield group


def _read_item(row: WrittenRow) -> ListItem:
    """The input of a row. Its name may have been found in a text that is not a name."""
    text, doi = row.members["input"], row.members.get("doi")
    found = FoundName(HandleName(doi), 0, len(text), text, "literal", None) if isinstance(doi, str) and doi else None
    return ListItem(text, found=found)


async def _flatten(groups: AsyncIterator[list[ListRow]]) -> AsyncGenerator[ListRow]:
    async for group in groups:
        for row in group:
            yield row
