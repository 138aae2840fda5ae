"""The bounds of a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Seconds for which a service, or what is known about a server that the operator named, is used at least and at most.
#: Services of a handle system change rarely, so an hour is short.
SHORTEST_LIFETIME: Final = 60.0
LONGEST_LIFETIME: Final = 3_600.0
#: Seconds for a lookup that is not needed, and for its tokens. The rest of `upstream_timeout` is for the name itself.
LOOKUP_TIMEOUT: Final = 4.0


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """The bounds of a directory. Times are in seconds."""

    #: Prefixes in a row whose lookup at the root failed, and the pause of such lookups after them.
    root_failures: int
    root_pause: float
    #: For one lookup of a service, and for one refresh of the root. No caller's time limits them: callers share them.
    timeout: float
    #: Queries for one handle, with those for prefixes, service handles and referrals; also records that lead to it.
    #: The reference software follows 20 service handles.
    queries: int = 20
    #: Services that are remembered; a large one counts as several. The one that was used least recently is forgotten.
    services: int = 10_000
    #: A service is looked up again after the TTL of its record, at least and at most so long.
    shortest_lifetime: float = SHORTEST_LIFETIME
    longest_lifetime: float = LONGEST_LIFETIME
    #: So long after that time, the last known sites are used if the lookup fails. Records are served stale for longer,
    #: but servers can change their addresses in a week.
    grace: float = 7 * 86_400.0
    #: Wait for the lookup of a service whose last known sites could be used, and for a root that is not needed.
    patience: float = LOOKUP_TIMEOUT

    def bound(self, lifetime: float) -> float:
        """A lifetime within the limits."""
        return max(self.shortest_lifetime, min(lifetime, self.longest_lifetime))
