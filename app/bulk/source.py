"""The upstream for bulk work. Its questions wait until those of people are answered."""

from __future__ import annotations

from dataclasses import replace

from app.handle.answer import Answer
from app.upstream.source import Priority, Question, Source


class BulkSource:
    """A source that gives every question the priority of bulk work."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def ask(self, question: Question) -> Answer:
        """See Source."""
        return await self._source.ask(replace(question, priority=Priority.BULK))

    async def aclose(self) -> None:
        """See Source."""
        await self._source.aclose()
