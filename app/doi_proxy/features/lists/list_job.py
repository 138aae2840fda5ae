"""A run over lists, and how it goes on after the rows that an earlier run wrote."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.row_output import RowOutput, RowRecorder
from doi_proxy.features.lists.rows_file import NEEDED, ROWS_FORMATS, RowsFile, WrittenRow
from doi_proxy.features.lists.server_client import text_of
from doi_proxy.features.lists.verdict import ListRow
from doi_proxy.list_formats.list_stream import ListParser


class ListFiles:
    """The lists of the rows that are under way, in their order."""

    def __init__(self) -> None:
        self._groups = deque[tuple[str, int]]()
        #: The names that were read, with those of earlier runs, and whether they are all.
        self.names = 0
        self.is_complete = False
        #: The entries of the lists that were read to their end, and the columns of tables among them.
        self.entries = 0
        self.columns: list[str] = []

    def add(self, file: str, rows: int) -> None:
        """The next rows are of this list."""
        if self._groups and self._groups[-1][0] == file:
            rows += self._groups.pop()[1]
        self._groups.append((file, rows))

    def close(self, path: str, parser: ListParser) -> None:
        """A list was read to its end."""
        self.entries += parser.entries
        if parser.column:
            self.columns.append(f"{path}: column {parser.column}")

    def take(self) -> str:
        """The list of the next row."""
        file, rows = self._groups.popleft()
        if rows > 1:
            self._groups.appendleft((file, rows - 1))
        return file


@dataclass(frozen=True, slots=True)
class ListJob:
    """The rows and the lists of a run. `obstacle` is why a later run cannot go on, None if it can."""

    recorder: RowRecorder
    files: ListFiles
    obstacle: str | None


def find_obstacle(output: RowOutput, output_format: str, fields: Sequence[str]) -> str | None:
    """Why the rows cannot be continued by a later run. None if they can."""
    if output.path is None:
        return "only a file of rows is continued; use -o FILE"
    if output_format not in ROWS_FORMATS:
        return f"rows in the format {output_format} cannot be continued; use --output-format jsonl or csv"
    if not set(NEEDED).issubset(fields):
        return f"rows without the members {' and '.join(NEEDED)} cannot be continued; add them to --fields"
    return None


async def go_on(
    output: RowOutput,
    job: ListJob,
    inputs: AsyncIterator[list[BatchInput]],
    output_format: str,
    fields: Sequence[str],
) -> list[BatchInput]:
    """Begin an empty output, or go on after the rows of an earlier run. Returns inputs without a row that were read.

    Raises ConfigurationError if the rows are not those of the inputs. Nothing is written then.
    """
    earlier = output.open_earlier()
    if earlier is None or output.path is None:
        await job.recorder.begin()
        return []
    if job.obstacle is not None:
        raise ConfigurationError(f"-o {output.path}: the file exists, and {job.obstacle}; or name another file")
    file = RowsFile(earlier, output.path, output_format)
    left = await _compare(file, _check_rows(file, fields), job, inputs)
    if left or job.files.is_complete:
        output.cut(file.end)
        if not file.end:
            await job.recorder.begin()
    return left


def _check_rows(file: RowsFile, fields: Sequence[str]) -> Iterator[WrittenRow]:
    """The rows of a file that has nothing but rows with these members. Raises ConfigurationError."""
    for row in file.rows():
        file.require_fields(fields)
        yield row
    file.require_fields(fields)
    file.require_rest(fields)


async def _compare(
    file: RowsFile, rows: Iterator[WrittenRow], job: ListJob, inputs: AsyncIterator[list[BatchInput]]
) -> list[BatchInput]:
    """Compare the rows with the inputs, which belong to them in their order. Returns inputs without a row."""
    row = next(rows, None)
    async for group in inputs:
        for at, item in enumerate(group):
            if row is None:
                return group[at:]
            text = item.input if isinstance(item, ListRow) else text_of(item)
            if row.is_error or row.members["input"] != text:
                raise file.refuse_input(text)
            job.recorder.count_earlier(row)
            row = next(rows, None)
        await asyncio.sleep(0)
    if row is not None and job.files.is_complete:
        raise file.refuse_input(None)
    return []


async def chain(first: list[BatchInput], others: AsyncIterator[list[BatchInput]]) -> AsyncGenerator[list[BatchInput]]:
    """The first inputs, if there are some, and the others."""
    if first:
        yield first
    async for group in others:
        yield group
