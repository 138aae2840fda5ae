"""Looks names up for the tools at a running proxy, by its `POST /api/resolve`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from app.features.assistants.names import Rows
from app.features.lists.batch import BatchInput
from app.features.lists.server_client import fetch_rows
from app.features.lists.verdict import Row
from app.features.proxy_client.server import ProxyServer

_QUERY: Final = "?encoding=literal&suggest=true"
#: With these members the agency is looked up too.
_ALL_MEMBERS: Final = "&fields=input,doi,verdict,url,ra,age,stale,message,suggestions"


class ServerNames:
    """Looks names up at a proxy. `timeout` limits the wait for the next row, in seconds."""

    def __init__(self, server: ProxyServer, timeout: float) -> None:
        self._server = server
        self._timeout = timeout

    def look_up(self, name: BatchInput) -> Rows:
        """See Names. The proxy treats the name as a list of one."""
        return aclosing(self._rows([name], _QUERY + _ALL_MEMBERS))

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """See Names."""
        return aclosing(self._rows(names, _QUERY))

    async def _rows(self, names: Sequence[BatchInput], query: str) -> AsyncGenerator[Row]:
        async with aclosing(self._fetch([name for name in names if isinstance(name, str)], query)) as answers:
            for name in names:
                # Without a name to look up, no request is sent.
                yield name if isinstance(name, Row) else await anext(answers)

    async def _fetch(self, names: Sequence[str], query: str) -> AsyncGenerator[Row]:
        async with aclosing(fetch_rows(self._server, query, names, self._timeout)) as groups:
            async for rows in groups:
                for row in rows:
                    yield row
