"""Sends lists of names to a running proxy in parts. After a failure, it continues after the last row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from app.errors import DoiProxyError
from app.features.lists.batch import BatchInput
from app.features.lists.command import ServerLimits
from app.features.lists.server_rows import fetch_rows
from app.features.lists.verdict import Row
from app.features.proxy_client.exchange import ProxyFailure
from app.features.proxy_client.server import ProxyServer

#: Limit of the names of one request, in bytes.
MAX_BYTES: Final = 256 * 1024
#: The pause after a failure without Retry-After, in seconds. It doubles from the first number to the second.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The parameters of a request."""

    only_cached: bool
    suggests: bool
    literal: bool

    @property
    def query(self) -> str:
        """The query of the URL, with its question mark."""
        chosen = []
        if self.only_cached:
            chosen.append(("only", "cached"))
        if self.suggests:
            chosen.append(("suggest", "true"))
        if self.literal:
            chosen.append(("encoding", "literal"))
        return f"?{urlencode(chosen)}" if chosen else ""


class BatchClient:
    """A proxy that resolves lists."""

    def __init__(
        self,
        server: ProxyServer,
        options: RemoteOptions,
        limits: ServerLimits,
        stop: asyncio.Event,
        report: Callable[[str], None],
    ) -> None:
        """`report` gets a message before each pause. `stop` ends the work."""
        self._server = server
        self._query = options.query
        self._limits = limits
        self._stop = stop
        self._report = report
        self._failures = 0

    async def groups(self, inputs: AsyncIterator[list[BatchInput]]) -> AsyncGenerator[list[Row], None]:
        """The row of each input, in their order, as they arrive. Raises DoiProxyError if the server does not answer."""
        async for group in inputs:
            for part in _cut(group, self._limits.names):
                async for rows in self._resolve(part):
                    yield rows

    async def _resolve(self, inputs: Sequence[BatchInput]) -> AsyncGenerator[list[Row], None]:
        waiting = iter(inputs)
        texts = [one for one in inputs if not isinstance(one, Row)]
        while texts and not self._stop.is_set():
            rows_of_texts = fetch_rows(self._server, self._query, list(texts), self._limits.timeout, self._stop)
            try:
                async with aclosing(rows_of_texts):
                    async for rows in rows_of_texts:
                        self._failures = 0
                        del texts[: len(rows)]
                        yield _merge(waiting, rows)
            except ProxyFailure as error:
                if not error.is_transient:
                    raise
                if not self._stop.is_set():
                    await self._pause(error)
        if not texts and (rest := _merge(waiting, [])):
            yield rest

    async def _pause(self, error: ProxyFailure) -> None:
        self._failures += 1
        if self._failures >= self._limits.tries:
            raise DoiProxyError(f"{error.message}; stopped after {self._failures} requests") from error
        seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._failures - 1))
        if error.retry_after is not None:
            seconds = max(error.retry_after, _FIRST_PAUSE)
        self._report(f"{error.message}; the next request follows in {seconds:g} seconds")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _cut(inputs: Sequence[BatchInput], most: int) -> list[list[BatchInput]]:
    """The inputs in parts of at most `most` names and, unless one alone is longer, of MAX_BYTES."""
    parts: list[list[BatchInput]] = []
    room = 0
    for one in inputs:
        size = 0 if isinstance(one, Row) else len(json.dumps(one)) + 1
        if not parts or len(parts[-1]) >= most or size > room:
            parts.append([])
            room = MAX_BYTES
        parts[-1].append(one)
        room -= size
    return parts


def _merge(waiting: Iterator[BatchInput], rows: Sequence[Row]) -> list[Row]:
    """The rows, and before each those of inputs that needed no request. Without rows, those at the end."""
    if not rows:
        return [one for one in waiting if isinstance(one, Row)]
    merged: list[Row] = []
    for row in rows:
        for one in waiting:
            if not isinstance(one, Row):
                break
            merged.append(one)
        merged.append(row)
    return merged
