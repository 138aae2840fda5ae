"""Sends lists of names to `POST /api/resolve` of a running proxy. After a failure, it continues after the last row."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.verdict import ListRow, read_row
from doi_proxy.features.metadata.match import read_cited
from doi_proxy.list_formats.lines import ListItem
from doi_proxy.list_formats.table import DOI_COLUMN
from doi_proxy.proxy_client.exchange import TRANSIENT, Exchange, ProxyFailure
from doi_proxy.proxy_client.server import ProxyServer
from doi_proxy.system.redaction import MAX_SHOWN

#: Limits of one request: its names, and their bytes.
REQUEST_NAMES: Final = 1_000
MAX_BYTES: Final = 256 * 1024
#: Consecutive requests without a row, after which the job ends.
MOST_TRIES: Final = 8
#: Seconds without a row, also in a pause of the upstream, after which a request has failed.
ROW_TIMEOUT: Final = 900.0
#: The pause after a failure without Retry-After, in seconds. It doubles from the first number to the second.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: Limit of a row, in bytes.
_MAX_ROW_BYTES: Final = 4 * 1024 * 1024
_MAX_DETAIL: Final = 500
_NDJSON: Final = "application/x-ndjson"
#: The parameter with which "%" does not begin an escape.
LITERAL: Final = "encoding=literal"
_MISSING: Final = "it has no /api/resolve; check the URL and the version of that proxy"
_HINTS: Final = {http.client.NOT_FOUND: _MISSING, http.client.METHOD_NOT_ALLOWED: _MISSING}


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
        seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._failures - 1))
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
    if isinstance(item, str) or not item.entry:
        return json.dumps(text).encode() + b"\n"
    return json.dumps({DOI_COLUMN: text} | read_cited(item.entry)).encode() + b"\n"


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
        while lines := await asyncio.to_thread(exchange.read_lines, _MAX_ROW_BYTES):
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
        raise exchange.refusal(_HINTS)


async def _interrupt_at(stop: asyncio.Event, exchange: Exchange) -> None:
    await stop.wait()
    exchange.interrupt()


def _read_row(server: ProxyServer, line: bytes) -> ListRow:
    try:
        members = json.loads(line)
        if "error" not in members:
            return read_row(members)
        # The list ended early (docs/batch.md, Errors).
        status, detail = members["error"]["status"], str(members["error"]["detail"])[:_MAX_DETAIL]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        shown = line[:MAX_SHOWN].decode("utf-8", "replace")
        raise DoiProxyError(
            f"{server.label}: this is not the row of a name: {shown!r}; check that it is a doi-proxy of this version"
        ) from error
    raise ProxyFailure(f"{server.label}: {detail}", is_transient=status in TRANSIENT, http_status=status)
