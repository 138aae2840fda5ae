"""Stores of earlier releases: the number of the format, and how many entries have the layout of an earlier one.

docs/releases.md has the formats. An entry is read in every format that was released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from app.cache.coordination import Coordination
from app.errors import DamagedEntry, StoreError
from app.features.stored_entry import has_old_layout, unpack

#: The format of a store that this release writes. SQLite has it as user_version, Valkey as a key. Format 1 is that of
#: release 0.1.0, format 2 that of 0.2.0.
STORE_FORMAT: Final = 3
#: Stores up to this format can have entries that this release rewrites.
OLD_ENTRIES_UP_TO: Final = 1
#: Entries of one step. 200 take about 10 ms in a thread.
REWRITE_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The progress of a rewriting: entries visited, of how many, rewritten, and not readable."""

    visited: int
    total: int
    rewritten: int
    unreadable: int
    is_done: bool

    def __str__(self) -> str:
        damaged = f", {self.unreadable} were not readable" if self.unreadable else ""
        return f"{self.visited} of {max(self.visited, self.total)} entries visited, {self.rewritten} rewritten{damaged}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What this release can do with the entries of a store. `visited` of `total` entries were examined."""

    format: int
    visited: int = 0
    total: int = 0
    current: int = 0
    old: int = 0
    unreadable: int = 0

    def add(self, rows: Iterable[tuple[str, object]]) -> Survey:
        """This survey, and more entries: keys and stored bytes."""
        current, old, unreadable = self.current, self.old, self.unreadable
        for key, data in rows:
            if not is_readable(key, data):
                unreadable += 1
            elif has_old_layout(data):
                old += 1
            else:
                current += 1
        visited = current + old + unreadable
        return Survey(self.format, visited, max(self.total, visited), current, old, unreadable)


@runtime_checkable
class Surveyable(Protocol):
    """A store whose entries can be examined before an upgrade."""

    async def survey(self, limit: int) -> Survey:
        """Examine at most about `limit` entries. Nothing is changed. Raises StoreError."""


@runtime_checkable
class Rewritable(Coordination, Protocol):
    """A store that can have entries of an earlier release."""

    async def rewrite(self) -> Rewrite | None:
        """Rewrite the next entries of an earlier release. None if there is nothing to rewrite. Raises StoreError.

        The store remembers how far it is: another process continues where one was killed.
        """


def is_readable(key: str, data: object) -> bool:
    """Whether this release reads a stored entry."""
    try:
        return unpack(key, data) is not None
    except DamagedEntry:
        return False


def refuse_newer(place: str, number: int) -> None:
    """Raise StoreError if the store was written by a newer release. `place` is what an operator calls it."""
    if number > STORE_FORMAT:
        raise StoreError(
            f"The store {place} has format {number}, but this doi-proxy reads formats up to {STORE_FORMAT}. It was not"
            " changed; use a newer doi-proxy, or another store in store_url."
        )
