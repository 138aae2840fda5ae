"""The conditions of a request: who is charged for its queries, and which cached records it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from math import inf
from typing import Final

from doi_proxy.resolver.demand import Demand
from doi_proxy.resolver.options import ResolveOptions
from doi_proxy.web.cache_directives import NO_DIRECTIVES, CacheDirectives, read_directives
from doi_proxy.web.client_network import client_of
from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.request import Request
from doi_proxy.web.stage import Stages

#: A record younger than this answers the reload of a page, in seconds: a reload must not cost a query each time.
RELOAD_AGE: Final = 10.0
#: Seconds that all queries of one request may take, with their waits. They go on for the next request.
REQUEST_SECONDS: Final = 8.0


def read_demand(request: Request, options: ResolveOptions, stages: Stages) -> Demand:
    """The demand of a request: its options, and the client that is charged."""
    client = client_of(request.client_address)
    directives = directives_of(request)
    if directives is NO_DIRECTIVES and not options.bypasses_cache:
        return Demand(client=client, due=due_of(request))
    address, youngest = request.client_address, directives.max_age
    return Demand(
        options.authoritative,
        options.certified,
        client=client,
        admit_bypass=_charge_once(address, stages),
        only_cached=directives.only_if_cached,
        max_age=None if youngest is None else max(youngest, RELOAD_AGE),
        may_renew=lambda: stages.may_renew is None or stages.may_renew(address),
        max_stale=directives.max_stale,
        stale_if_error=inf if directives.stale_if_error is None else directives.stale_if_error,
        due=due_of(request),
    )


def _charge_once(address: str, stages: Stages) -> Callable[[], object]:
    """Counts a bypass of the cache at its first call. A request with aliases bypasses it several times."""
    charge = stages.charge_bypass
    return (lambda: None) if charge is None else cache(partial(charge, address))


def demand_for_others(request: Request) -> Demand:
    """The demand for further names that the answer to a request needs, at the cost of its client."""
    only_cached = directives_of(request).only_if_cached
    return Demand(client=client_of(request.client_address), only_cached=only_cached, due=due_of(request))


def due_of(request: Request) -> float:
    """When the answer to a request is due. The same for all queries that the request causes."""
    request.due = request.due or time.monotonic() + REQUEST_SECONDS
    return request.due


def directives_of(request: Request) -> CacheDirectives:
    """The directives of a request's Cache-Control."""
    # Most requests have none.
    sent = request.header(CACHE_CONTROL)
    return NO_DIRECTIVES if sent is None else read_directives(sent)
