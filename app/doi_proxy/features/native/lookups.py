"""How services are looked up: by which client, within which bounds, and what is logged about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from doi_proxy.errors import CouldNotVerify, UpstreamTimeout
from doi_proxy.features.native.referral import HandleService, Question
from doi_proxy.features.native.wire.response import Response

log = logging.getLogger(__name__)
Result = TypeVar("Result")

#: Seconds between two lines about services whose last known sites are used on.
_INTERVAL: Final = 3600.0
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
    lookup_timeout: float = LOOKUP_TIMEOUT

    def bound(self, lifetime: float) -> float:
        """A lifetime within the limits."""
        return max(self.shortest_lifetime, min(lifetime, self.longest_lifetime))


@dataclass(frozen=True, slots=True)
class Lookups:
    """How services are looked up: by which client, at whose cost, and within which bounds."""

    #: An answer that belongs to the question, and is signed if the question says so. Raises CouldNotVerify.
    ask: Callable[[HandleService, Question], Awaitable[Response]]
    #: Spends a token of the budget on each query but the first of a question. Raises BudgetSpent.
    admit_query: Callable[[], Awaitable[None]]
    limits: DirectoryLimits
    #: Seconds since the epoch.
    clock: Callable[[], float]
    log: DirectoryLog
    #: Whether each answer of a lookup must be signed, if the root has keys. The answer about the name need not be.
    are_signed: bool = False


class DirectoryLog:
    """Must not raise. `clock` is monotonic, in seconds. No line has the name of a prefix or of a handle."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._is_root_old = False
        self._overdue = 0
        self._overdue_since: float | None = None

    def record_refresh(self, error: CouldNotVerify | None) -> None:
        """The root was refreshed, or with an error it could not be. Log the first failure of several, and their end."""
        if error is not None and not self._is_root_old:
            log.warning("the root of the handle system could not be refreshed: %s %s", _describe(error), error.detail)
        elif error is None and self._is_root_old:
            log.warning("the root of the handle system was refreshed again")
        self._is_root_old = error is not None

    def record_overdue(self, error: CouldNotVerify) -> None:
        """A known service could not be looked up again, so its last known sites are used on.

        Log the first failed lookup, and then their number once an hour.
        """
        now = self._clock()
        self._overdue += 1
        if self._overdue_since is None or now - self._overdue_since >= _INTERVAL:
            log.warning(
                "handle servers of known prefixes could not be looked up again (%s lookups); their last known "
                "addresses are used: %s",
                self._overdue,
                _describe(error),
            )
            self._overdue, self._overdue_since = 0, now


def _describe(error: CouldNotVerify) -> str:
    # A detail can name a handle, and operators may have chosen not to log names.
    return f"{error.token}: {error.message}"


async def within(seconds: float | None, work: Awaitable[Result], late: str) -> Result:
    """The result of work. After some seconds it is cancelled, and UpstreamTimeout is raised with the message `late`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise UpstreamTimeout(late) from error
