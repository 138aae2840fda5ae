"""Sends lists of names to `POST /api/resolve` of a running proxy. After a failure, it continues after the last row."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.verdict import ListRow, read_row
from doi_proxy.list_formats.entries import ListItem, write_members
from doi_proxy.list_formats.tables import DOI_COLUMN
from doi_proxy.proxy_client import TRANSIENT, Exchange, ProxyFailure, ProxyServer
from doi_proxy.system.options import MAX_SHOWN

#: Names of one request.
REQUEST_NAMES: Final = 1_000
#: Consecutive requests without a row, after which the job ends.
MOST_TRIES: Final = 8
#: Seconds without a row, also in a pause of the upstream, after which a request has failed.
ROW_TIMEOUT: Final = 900.0
#: The parameter with which "%" does not begin an escape.
LITERAL: Final = "encoding=literal"


class BatchClient:
    """A proxy that resolves lists."""

    def __init__(self, server: ProxyServer, query: str, stop: asyncio.Event) -> None:
        """`query` has the parameters of a request. `stop` ends the work."""
        self._server = server
        self._query = query
        self._stop = stop
        self._failures = 0
        #: The message of the last failure that was reported. A failure that repeats is reported once.
        self._reported = ""

    async def groups(self, inputs: AsyncIterator[list[BatchInput]]) -> AsyncGenerator[list[ListRow]]:
        """The row of each input, in their order, as they arrive. Raises DoiProxyError if the server does not answer."""
        async for group in inputs:
            for at in range(0, len(group), REQUEST_NAMES):
                async with aclosing(self._resolve(group[at : at + REQUEST_NAMES])) as rows:
                    async for row in rows:
                        yield [row]

    async def _resolve(self, inputs: list[BatchInput]) -> AsyncGenerator[ListRow]:
        """The row of each input, or those before `stop`. After a failure that can pass, the rest is sent again."""
        while inputs and not self._stop.is_set():
            rows = fetch_rows(self._server, self._query, list(inputs), ROW_TIMEOUT, self._stop)
            try:
                async with aclosing(rows):
                    async for row in rows:
                        self._failures = 0
                        del inputs[0]
                        yield row
            except ProxyFailure as error:
                if not error.is_transient:
                    raise
                if not self._stop.is_set():
                    await self._pause(error)

    async def _pause(self, error: ProxyFailure) -> None:
        self._failures += 1
        if self._failures >= MOST_TRIES:
            raise DoiProxyError(f"{error.message}; stopped after {self._failures} requests") from error
        # A second, which doubles up to a minute; at least a second if the server names its own.
        seconds = min(60.0, 2.0 ** (self._failures - 1)) if error.retry_after is None else max(1.0, error.retry_after)
        if error.message != self._reported:
            self._reported = error.message
            print(f"{error.message.rstrip('.')}; trying again, {MOST_TRIES} times at most", file=sys.stderr)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _sent_text(item: str | ListItem, *, is_literal: bool) -> str:
    """The text that is sent: the item, or the name that was found in it."""
    if isinstance(item, str) or item.found is None:
        return item if isinstance(item, str) else item.text
    name = item.found.name.text
    return name if is_literal else name.replace("%", "%25")


def _encode(item: str | ListItem, *, is_literal: bool) -> bytes:
    """An item as a line of NDJSON: a name, or with its reference an object."""
    text = _sent_text(item, is_literal=is_literal)
    if isinstance(item, str) or not item.cited:
        return json.dumps(text).encode() + b"\n"
    return json.dumps({DOI_COLUMN: text} | write_members(item.cited)).encode() + b"\n"


async def fetch_rows(
    server: ProxyServer, query: str, inputs: Sequence[BatchInput], timeout: float, stop: asyncio.Event | None = None
) -> AsyncGenerator[ListRow]:
    """The row of each input, in their order, as they arrive. An input that has its row already is not sent.

    `query` has the parameters of the request. `timeout` limits the seconds between two rows. Raises ProxyFailure, also
    if the answer ends early and at `stop`, and DoiProxyError for rows of other names.
    """
    names = [item for item in inputs if not isinstance(item, ListRow)]
    async with aclosing(_fetch(server, query, names, timeout, stop)) as rows:
        for item in inputs:
            if isinstance(item, ListRow):
                yield item
            else:
                # The server numbers the lines of its request.
                yield (await anext(rows)).place(ListItem(item) if isinstance(item, str) else item)


async def _fetch(
    server: ProxyServer, query: str, names: Sequence[str | ListItem], timeout: float, stop: asyncio.Event | None
) -> AsyncGenerator[ListRow]:
    """The row of each name. See `fetch_rows`."""
    is_literal = LITERAL in query
    expected = (_sent_text(item, is_literal=is_literal) for item in names)
    body = b"".join(_encode(item, is_literal=is_literal) for item in names)
    exchange = Exchange(server, timeout)
    watch = None if stop is None else asyncio.create_task(_interrupt_at(stop, exchange))
    try:
        await asyncio.to_thread(_send, exchange, f"/api/resolve{query}", body)
        # Limit of a row, in bytes.
        while lines := await asyncio.to_thread(exchange.read_lines, 4 * 1024 * 1024):
            for line in lines:
                row = _read_row(server, line)
                if row.input != next(expected, None):
                    raise DoiProxyError(f"{server.label}: the rows do not match the names that were sent")
                yield row
        if next(expected, None) is not None:
            raise ProxyFailure(f"{server.label}: the answer has too few rows; try again", is_transient=True)
    finally:
        if watch is not None:
            watch.cancel()
        exchange.close()


def _send(exchange: Exchange, target: str, body: bytes) -> None:
    fields = dict.fromkeys(("Content-Type", "Accept"), "application/x-ndjson")
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
