"""How services are looked up: by which client, within which bounds, and what is logged about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from handle_protocol.errors import HandleProtocolError, ServerTimeout
from handle_protocol.referral import HandleService, Question
from handle_protocol.wire.response import Response

Result = TypeVar("Result")

#: Seconds for which a service, or what is known about a server that the operator named, is used at least and at most.
#: Services of a handle system change rarely, so an hour is short.
SHORTEST_LIFETIME: Final = 60.0
LONGEST_LIFETIME: Final = 3_600.0
#: Seconds for a lookup that is not needed, and for its tokens. The rest of the caller's time is for the name itself.
LOOKUP_TIMEOUT: Final = 4.0


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """The bounds of a directory. Times are in seconds."""

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

    #: An answer that belongs to the question, and is signed if the question says so. Raises HandleProtocolError.
    ask: Callable[[HandleService, Question], Awaitable[Response]]
    #: Is awaited before each query but the first of a question. Raises QueryNotAdmitted.
    admit_query: Callable[[], Awaitable[None]]
    limits: DirectoryLimits
    #: Seconds since the epoch.
    clock: Callable[[], float]
    observer: DirectoryObserver
    breaker: RootBreaker
    #: Whether each answer of a lookup must be signed, if the root has keys. The answer about the name need not be.
    are_signed: bool = False


class DirectoryObserver(Protocol):
    """Records what happens to lookups. Must be quick and must not raise."""

    def record_refresh(self, error: HandleProtocolError | None) -> None:
        """The root was refreshed, or with an error it could not be."""

    def record_overdue(self, error: HandleProtocolError) -> None:
        """A known service could not be looked up again, so its last known sites are used on."""


class RootBreaker(Protocol):
    """Decides whether the root is left alone after failures. Times are seconds since the epoch."""

    def allow(self, now: float) -> bool:
        """Whether a query may be sent. The query that is sent after a pause is a probe."""

    def retry_after(self, now: float) -> float:
        """Seconds until a query may be sent; 0 if one may be sent now."""

    def record_answer(self) -> None:
        """The root answered."""

    def record_failure(self, name: str, now: float) -> bool:
        """The root did not answer about a name."""


async def within(seconds: float | None, work: Awaitable[Result], late: str) -> Result:
    """The result of work. After some seconds it is cancelled, and ServerTimeout is raised with the message `late`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise ServerTimeout(late) from error
