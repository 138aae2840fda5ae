"""The bounds of a directory, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from app.errors import CouldNotVerify


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """The bounds of a directory. Times are in seconds."""

    #: Queries for one handle, with those for prefixes, service handles and referrals; also records that lead to it.
    queries: int
    #: Services that are remembered; a large one counts as several. The one that was used least recently is forgotten.
    services: int
    #: A service is looked up again after the TTL of its record, at least and at most so long.
    shortest_lifetime: float
    longest_lifetime: float
    #: So long after that time, the last known sites are used if the lookup fails.
    grace: float
    #: Wait for the lookup of a service whose last known sites could be used, and for a root that is not needed.
    patience: float
    #: Prefixes in a row whose lookup at the root failed, and the pause of such lookups after them.
    root_failures: int
    root_pause: float
    #: For one lookup of a service, and for one refresh of the root. No caller's time limits them: callers share them.
    timeout: float

    def bound(self, lifetime: float) -> float:
        """A lifetime within the limits."""
        return max(self.shortest_lifetime, min(lifetime, self.longest_lifetime))


class DirectoryObserver(Protocol):
    """Records what operators need to know. Its methods must be quick and must not raise."""

    def record_refresh(self, error: CouldNotVerify | None) -> None:
        """Record that the root was refreshed, or with an error that it could not be."""

    def record_overdue(self, error: CouldNotVerify) -> None:
        """Record that a known service could not be looked up again, so its last known sites are used on."""
