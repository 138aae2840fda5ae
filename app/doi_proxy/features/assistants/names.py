"""Looks names up for the tools: in this process, or at a running proxy by its `POST /api/resolve`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from doi_proxy.features.lists.batch import Batches, BatchInput
from doi_proxy.features.lists.name_lookup import BatchOptions
from doi_proxy.features.lists.server_client import fetch_rows
from doi_proxy.features.lists.verdict import ListRow
from doi_proxy.list_formats.lines import ListItem
from doi_proxy.proxy_client.server import ProxyServer
from doi_proxy.upstream.source import Priority

_QUERY: Final = "?suggest=checked"
#: With these members the agency is looked up too.
_ALL_MEMBERS: Final = "&fields=input,doi,verdict,url,ra,age,stale,message,suggestions"
#: The rows of names. The work stops at the end of the `async with`.
Rows = AbstractAsyncContextManager[AsyncIterator[ListRow]]


class Names(Protocol):
    """Looks up names, and what else each may be. Rows that are known already are passed on."""

    def look_up(self, name: BatchInput) -> Rows:
        """The row of one name, for a person who waits for it."""

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """The row of each name, in their order."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Looks names up with the resolver of this process."""

    batches: Batches

    def look_up(self, name: BatchInput) -> Rows:
        """See Names. Its queries do not wait for queries of lists."""
        options = BatchOptions(suggests=True, checks=True, agency="any", priority=Priority.PERSON)
        return aclosing(self.batches.rows(_stream([name]), options))

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """See Names. Queries of people go first. Agencies come from the cache alone."""
        matches = self.batches.compare is not None
        return aclosing(self.batches.rows(_stream(names), BatchOptions(suggests=True, checks=True, matches=matches)))


async def _stream(names: Sequence[BatchInput]) -> AsyncGenerator[BatchInput]:
    for name in names:
        yield name


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

    async def _rows(self, names: Sequence[BatchInput], query: str) -> AsyncGenerator[ListRow]:
        async with aclosing(self._fetch([name for name in names if not isinstance(name, ListRow)], query)) as answers:
            for name in names:
                # Without a name to look up, no request is sent.
                row = name if isinstance(name, ListRow) else await anext(answers)
                yield row.place(name) if isinstance(name, ListItem) else row

    async def _fetch(self, names: Sequence[str | ListItem], query: str) -> AsyncGenerator[ListRow]:
        async with aclosing(fetch_rows(self._server, query, names, self._timeout)) as groups:
            async for rows in groups:
                for row in rows:
                    yield row
