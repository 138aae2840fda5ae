"""Sends lists of names to `POST /api/resolve` of a running proxy. After a failure, it continues after the last row."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.rows_file import NEEDED, ROWS_FORMATS, RowOutput, RowRecorder, RowsFile, WrittenRow
from doi_proxy.features.lists.verdict import ListRow, read_row
from doi_proxy.list_formats.body import ListParser
from doi_proxy.list_formats.entries import ListItem, write_members
from doi_proxy.list_formats.tables import DOI_COLUMN
from doi_proxy.proxy_client import TRANSIENT, Exchange, ProxyFailure, ProxyServer
from doi_proxy.system.options import MAX_SHOWN

#: Limits of one request: its names, and their bytes.
REQUEST_NAMES: Final = 1_000
MAX_BYTES: Final = 256 * 1024
#: Consecutive requests without a row, after which the job ends.
MOST_TRIES: Final = 8
#: Seconds without a row, also in a pause of the upstream, after which a request has failed.
ROW_TIMEOUT: Final = 900.0
#: The first pause after a failure without Retry-After, in seconds. It doubles up to a minute.
_FIRST_PAUSE: Final = 1.0
_NDJSON: Final = "application/x-ndjson"
#: The parameter with which "%" does not begin an escape.
LITERAL: Final = "encoding=literal"


class BatchClient:
    """A proxy that resolves lists."""

    def __init__(
        self,
        server: ProxyServer,
        query: str,
        stop: asyncio.Event,
        report: Callable[[str], None],
    ) -> None:
        """`query` has the parameters of a request. `report` gets the message of a new failure. `stop` ends the work."""
        self._server = server
        self._query = query
        self._stop = stop
        self._report = report
        self._failures = 0
        #: The message of the last failure that was reported. A failure that repeats is reported once.
        self._reported = ""

    async def groups(self, inputs: AsyncIterator[list[BatchInput]]) -> AsyncGenerator[list[ListRow]]:
        """The row of each input, in their order, as they arrive. Raises DoiProxyError if the server does not answer."""
        async for group in inputs:
            for part in _cut(group, REQUEST_NAMES):
                async for rows in self._resolve(part):
                    yield rows

    async def _resolve(self, inputs: Sequence[BatchInput]) -> AsyncGenerator[list[ListRow]]:
        waiting = iter(inputs)
        items = [item for item in inputs if not isinstance(item, ListRow)]
        while items and not self._stop.is_set():
            rows_of_texts = fetch_rows(self._server, self._query, list(items), ROW_TIMEOUT, self._stop)
            try:
                async with aclosing(rows_of_texts):
                    async for rows in rows_of_texts:
                        self._failures = 0
                        del items[: len(rows)]
                        yield _merge(waiting, rows)
            except ProxyFailure as error:
                if not error.is_transient:
                    raise
                if not self._stop.is_set():
                    await self._pause(error)
        if not items and (rest := _merge(waiting, [])):
            yield rest

    async def _pause(self, error: ProxyFailure) -> None:
        self._failures += 1
        if self._failures >= MOST_TRIES:
            raise DoiProxyError(f"{error.message}; stopped after {self._failures} requests") from error
        seconds = min(60.0, _FIRST_PAUSE * 2.0 ** (self._failures - 1))
        if error.retry_after is not None:
            seconds = max(error.retry_after, _FIRST_PAUSE)
        if error.message != self._reported:
            self._reported = error.message
            self._report(f"{error.message.rstrip('.')}; trying again, {MOST_TRIES} times at most")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _cut(inputs: Sequence[BatchInput], most: int) -> list[list[BatchInput]]:
    """The inputs in parts of at most `most` names and, unless one alone is longer, of MAX_BYTES."""
    parts: list[list[BatchInput]] = []
    room = 0
    for item in inputs:
        size = 0 if isinstance(item, ListRow) else len(_encode(item, is_literal=True))
        if not parts or len(parts[-1]) >= most or size > room:
            parts.append([])
            room = MAX_BYTES
        parts[-1].append(item)
        room -= size
    return parts


def _merge(waiting: Iterator[BatchInput], rows: Sequence[ListRow]) -> list[ListRow]:
    """The rows in the order of the inputs: an input that needed no request has its row already."""
    if not rows:
        return [item for item in waiting if isinstance(item, ListRow)]
    merged: list[ListRow] = []
    for row in rows:
        for item in waiting:
            if not isinstance(item, ListRow):
                # The server numbers the lines of its request.
                merged.append(row.place(item if isinstance(item, ListItem) else ListItem(item)))
                break
            merged.append(item)
    return merged


def text_of(item: str | ListItem) -> str:
    """The input of the row of an item."""
    return item if isinstance(item, str) else item.text


def _sent_text(item: str | ListItem, *, is_literal: bool) -> str:
    """The text that is sent: the item, or the name that was found in it."""
    if isinstance(item, str) or item.found is None:
        return text_of(item)
    name = item.found.name.text
    return name if is_literal else name.replace("%", "%25")


def _encode(item: str | ListItem, *, is_literal: bool) -> bytes:
    """An item as a line of NDJSON: a name, or with its reference an object."""
    text = _sent_text(item, is_literal=is_literal)
    if isinstance(item, str) or not item.cited:
        return json.dumps(text).encode() + b"\n"
    return json.dumps({DOI_COLUMN: text} | write_members(item.cited)).encode() + b"\n"


async def fetch_rows(
    server: ProxyServer, query: str, names: Sequence[str | ListItem], timeout: float, stop: asyncio.Event | None = None
) -> AsyncGenerator[list[ListRow]]:
    """The row of each name, in their order, in groups as they arrive.

    `query` has the parameters of the request. `timeout` limits the seconds between two rows. Raises ProxyFailure, also
    if the answer ends early and at `stop`, and DoiProxyError for rows of other names.
    """
    is_literal = LITERAL in query
    expected = (_sent_text(item, is_literal=is_literal) for item in names)
    body = b"".join(_encode(item, is_literal=is_literal) for item in names)
    exchange = Exchange(server, timeout)
    watch = None if stop is None else asyncio.create_task(_interrupt_at(stop, exchange))
    count = 0
    try:
        await asyncio.to_thread(_send, exchange, f"/api/resolve{query}", body)
        # Limit of a row, in bytes.
        while lines := await asyncio.to_thread(exchange.read_lines, 4 * 1024 * 1024):
            rows = [_read_row(server, line) for line in lines]
            if any(row.input != next(expected, None) for row in rows):
                raise DoiProxyError(f"{server.label}: the rows do not match the names that were sent")
            count += len(rows)
            yield rows
        if count < len(names):
            raise ProxyFailure(f"{server.label}: the answer has too few rows; try again", is_transient=True)
    finally:
        if watch is not None:
            watch.cancel()
        exchange.close()


def _send(exchange: Exchange, target: str, body: bytes) -> None:
    fields = {"Content-Type": _NDJSON, "Accept": _NDJSON}
    if exchange.send("POST", target, fields, body) != http.client.OK:
        missing = "it has no /api/resolve; check the URL and the version of that proxy"
        raise exchange.refusal({http.client.NOT_FOUND: missing, http.client.METHOD_NOT_ALLOWED: missing})


async def _interrupt_at(stop: asyncio.Event, exchange: Exchange) -> None:
    await stop.wait()
    exchange.interrupt()


def _read_row(server: ProxyServer, line: bytes) -> ListRow:
    try:
        members = json.loads(line)
        if "error" not in members:
            return read_row(members)
        # The list ended early (docs/batch.md, Errors).
        status, detail = members["error"]["status"], str(members["error"]["detail"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        shown = line[:MAX_SHOWN].decode("utf-8", "replace")
        raise DoiProxyError(
            f"{server.label}: this is not the row of a name: {shown!r}; check that it is a doi-proxy of this version"
        ) from error
    raise ProxyFailure(f"{server.label}: {detail}", is_transient=status in TRANSIENT, http_status=status)


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
