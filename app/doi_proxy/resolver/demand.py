"""The conditions of one resolution: who is charged, and which cached records will do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from doi_proxy.upstream.source import ClientNetwork, Priority


@dataclass(frozen=True, slots=True)
class Demand:
    """Conditions of one resolution."""

    #: Whether cached answers must not be used.
    authoritative: bool = False
    #: Whether a signature must prove the answer. Of the cached answers, only one with a proof is used.
    certified: bool = False
    priority: Priority = Priority.PERSON
    #: The client that upstream queries are charged to.
    client: ClientNetwork = None
    #: Whether the cache alone answers. A demand that bypasses the cache then fails, but for one that a record proves.
    only_cached: bool = False
    #: The largest age of a cached record, in seconds. None: its TTL decides alone. See `may_renew`.
    max_age: float | None = None
    #: Called before a fresh record is fetched again because of `max_age`. If it returns False, the record is used.
    may_renew: Callable[[], bool] = lambda: True
    #: Called before a query that bypasses the cache. It may raise TooManyRequests.
    admit_bypass: Callable[[], object] = lambda: None
    #: The longest time past its TTL, in seconds, of a record that is used without a query. None: it never is.
    max_stale: float | None = None
    #: The longest time past its TTL, in seconds, of a record that is used because the upstream failed.
    stale_if_error: float = inf
    #: When the answer is due, in seconds of the event loop's clock. None: it waits as long as its queries do.
    due: float | None = None

    def for_others(self) -> Demand:
        """The demand for further names that the answer depends on: only the client and the deadline are the same."""
        return Demand(priority=self.priority, client=self.client, only_cached=self.only_cached, due=self.due)


ORDINARY: Final = Demand()
