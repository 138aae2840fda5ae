"""Looks names up for the tools, in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Protocol

from app.features.lists.batch import Batches, BatchInput
from app.features.lists.name_lookup import BatchOptions
from app.features.lists.verdict import Row
from app.upstream.source import Priority

#: The rows of names. The work stops at the end of the `async with`.
Rows = AbstractAsyncContextManager[AsyncIterator[Row]]


class Names(Protocol):
    """Looks up names as they are, without labels or escapes. Rows that are known already are passed on."""

    def look_up(self, name: BatchInput) -> Rows:
        """The row of one name, for a person who waits for it."""

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """The row of each name, in their order."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Looks names up with the resolver of this process."""

    batches: Batches

    def look_up(self, name: BatchInput) -> Rows:
        """See Names. Its queries do not wait for those of lists."""
        options = BatchOptions(literal=True, suggests=True, agency="any", priority=Priority.PERSON)
        return aclosing(self.batches.rows(_stream([name]), options))

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """See Names. Its queries wait for those of people. Agencies come from the cache alone."""
        return aclosing(self.batches.rows(_stream(names), BatchOptions(literal=True, suggests=True)))


async def _stream(names: Sequence[BatchInput]) -> AsyncGenerator[BatchInput]:
    for name in names:
        yield name
