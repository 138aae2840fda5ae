"""The way to one handle: the records that lead to it, and the bounds of the search."""

from __future__ import annotations

from dataclasses import dataclass

from app.errors import ServiceNotFound


@dataclass(slots=True)
class Allowance:
    """What is left for all branches of a way, so a record that names many services does not multiply the work."""

    #: Queries to servers.
    queries: int
    #: Records that lead onwards, also those that are remembered.
    records: int
    #: Queries whose tokens of the budget the caller has spent.
    paid: int = 0


@dataclass(frozen=True, slots=True)
class Trail:
    """One branch of a way: the records that it came through."""

    left: Allowance
    handles: frozenset[bytes] = frozenset()

    @property
    def is_start(self) -> bool:
        """Whether no record was entered yet."""
        return not self.handles

    def enter(self, handle: bytes) -> Trail:
        """The way through a record. Raises ServiceNotFound if it came through this record before, or is too long."""
        key = handle.upper()
        if key in self.handles:
            raise ServiceNotFound(detail=f"the records of the services form a loop at {handle[:100]!r}")
        if not self.left.records:
            raise ServiceNotFound(detail="the way has too many service handles")
        self.left.records -= 1
        return Trail(self.left, self.handles | {key})

    def count_query(self) -> None:
        """One more query. Raises ServiceNotFound if there are too many."""
        if not self.left.queries:
            raise ServiceNotFound(detail="the way has too many queries, service handles and referrals")
        self.left.queries -= 1

    def take_paid(self) -> bool:
        """Whether the token of the next query is spent already. Each is used once."""
        if not self.left.paid:
            return False
        self.left.paid -= 1
        return True
