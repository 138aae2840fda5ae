"""The upstream for bulk work. Its queries wait until those of people are answered."""

from __future__ import annotations

from dataclasses import replace

from doi_proxy.upstream.source import Priority, Source, UpstreamQuery
from handle_protocol.answer import Answer


class BulkSource:
    """A source that gives every query the priority of bulk work."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """See Source."""
        return await self._source.fetch(replace(query, priority=Priority.BULK))

    async def aclose(self) -> None:
        """See Source."""
        await self._source.aclose()
