"""The rows of names from `POST /api/resolve` of a running proxy."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from app.errors import DoiProxyError
from app.features.lists.verdict import Row, read_row
from app.features.proxy_client.exchange import TRANSIENT, Exchange, ProxyFailure
from app.features.proxy_client.server import ProxyServer

#: Limit of a row, in bytes.
_MAX_ROW_BYTES: Final = 4 * 1024 * 1024
_MAX_DETAIL: Final = 500
_MAX_SHOWN: Final = 200
_NDJSON: Final = "application/x-ndjson"
_MISSING: Final = "it has no /api/resolve; check the URL and the version of that proxy"
_HINTS: Final = {http.client.NOT_FOUND: _MISSING, http.client.METHOD_NOT_ALLOWED: _MISSING}


async def fetch_rows(
    server: ProxyServer, query: str, names: Sequence[str], timeout: float, stop: asyncio.Event | None = None
) -> AsyncGenerator[list[Row]]:
    """The row of each name, in their order, in groups as they arrive.

    `query` has the parameters of the request. `timeout` limits the seconds between two rows. Raises ProxyFailure, also
    if the answer ends early and at `stop`, and DoiProxyError for rows of other names.
    """
    expected = iter(names)
    body = b"".join([json.dumps(name).encode() + b"\n" for name in names])
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


def _read_row(server: ProxyServer, line: bytes) -> Row:
    try:
        members = json.loads(line)
        if "error" not in members:
            return read_row(members)
        # The list ended early (docs/batch.md, Errors).
        status, detail = members["error"]["status"], str(members["error"]["detail"])[:_MAX_DETAIL]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        shown = line[:_MAX_SHOWN].decode("utf-8", "replace")
        raise DoiProxyError(
            f"{server.label}: this is not the row of a name: {shown!r}; check that it is a doi-proxy of this version"
        ) from error
    raise ProxyFailure(f"{server.label}: {detail}", is_transient=status in TRANSIENT, http_status=status)
