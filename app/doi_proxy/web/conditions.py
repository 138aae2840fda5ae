"""The conditions of a request: who is charged for its queries, and which cached records it takes.

The latter are the directives of its Cache-Control (RFC 9111, section 5.2.1; RFC 5861, section 4).
"""

from __future__ import annotations

import time
from functools import cache, lru_cache, partial
from math import inf
from typing import Final

import msgspec

from doi_proxy.resolver.options import Conditions, ResolveOptions
from doi_proxy.web.client_network import client_of
from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.request import Request
from doi_proxy.web.stage import Stages

#: A record younger than this answers the reload of a page, in seconds: a reload must not cost a query each time.
RELOAD_AGE: Final = 10.0
#: Seconds that all queries of one request may take, with their waits. They go on for the next request.
REQUEST_SECONDS: Final = 8.0
#: Longer headers are ignored.
_MAX_HEADER: Final = 1_024
#: Larger numbers count as this one (RFC 9111, section 1.2.2).
_MAX_SECONDS: Final = 2_147_483_648.0


class CacheDirectives(msgspec.Struct, frozen=True, gc=False):
    """Which cached records a request accepts. Times are in seconds; None where the request does not say."""

    #: The largest age of a record. `no-cache` is 0.
    max_age: float | None = None
    #: The longest time past its TTL of a record that is used without an upstream query.
    max_stale: float | None = None
    #: The longest time past its TTL of a record that is used because the upstream failed.
    stale_if_error: float | None = None
    only_if_cached: bool = False


NO_DIRECTIVES: Final = CacheDirectives()


def read_directives(cache_control: str | None) -> CacheDirectives:
    """The directives of a header. Unknown ones, and those with a bad value, are ignored."""
    if not cache_control or len(cache_control) > _MAX_HEADER:
        return NO_DIRECTIVES
    return _read(cache_control)


@lru_cache(maxsize=256)
def _read(cache_control: str) -> CacheDirectives:
    found = dict(_split(part) for part in cache_control.split(","))
    max_stale = inf if found.get("max-stale") == "" else _seconds(found.get("max-stale"))
    return CacheDirectives(
        max_age=0.0 if "no-cache" in found else _seconds(found.get("max-age")),
        max_stale=max_stale,
        stale_if_error=_seconds(found.get("stale-if-error")),
        only_if_cached="only-if-cached" in found,
    )


def _split(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _seconds(text: str | None) -> float | None:
    """A number of seconds (RFC 9111, section 1.2.2), None for anything else."""
    return min(float(text), _MAX_SECONDS) if text is not None and text.isascii() and text.isdigit() else None


def read_conditions(request: Request, options: ResolveOptions, stages: Stages) -> Conditions:
    """The conditions of a request: its options, and the client that is charged."""
    client = client_of(request.client_address)
    directives = directives_of(request)
    if directives is NO_DIRECTIVES and not options.bypasses_cache:
        return Conditions(client=client, due=due_of(request))
    address, youngest, admission = request.client_address, directives.max_age, stages.admission
    return Conditions(
        options.authoritative,
        options.certified,
        client=client,
        # A request with aliases bypasses the cache several times, and is counted once.
        admit_bypass=cache(partial(admission.charge_bypass, address)),
        only_cached=directives.only_if_cached,
        max_age=None if youngest is None else max(youngest, RELOAD_AGE),
        may_renew=partial(admission.may_renew, address),
        max_stale=directives.max_stale,
        stale_if_error=inf if directives.stale_if_error is None else directives.stale_if_error,
        due=due_of(request),
    )


def conditions_for_others(request: Request) -> Conditions:
    """The conditions for further names that the answer to a request needs, at the cost of its client."""
    only_cached = directives_of(request).only_if_cached
    return Conditions(client=client_of(request.client_address), only_cached=only_cached, due=due_of(request))


def due_of(request: Request) -> float:
    """When the answer to a request is due. The same for all queries that the request causes."""
    request.due = request.due or time.monotonic() + REQUEST_SECONDS
    return request.due


def directives_of(request: Request) -> CacheDirectives:
    """The directives of a request's Cache-Control."""
    # Most requests have none.
    sent = request.header(CACHE_CONTROL)
    return NO_DIRECTIVES if sent is None else read_directives(sent)
