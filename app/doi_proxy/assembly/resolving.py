"""Builds cache, upstream and resolver from the settings. `main` adds HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from doi_proxy.assembly import upstreams
from doi_proxy.assembly.settings import Settings
from doi_proxy.assembly.stores import open_cache
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.feature import Observers
from doi_proxy.resolver.failure_memory import FailureMemory
from doi_proxy.resolver.fetcher import ResolverOptions, ResolverTimeouts
from doi_proxy.resolver.proof import Proofs
from doi_proxy.resolver.resolution import TtlPolicy
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.routed import Upstream
from doi_proxy.upstream.source import Source, Verification

#: Seconds to wait for the upstream before a stale record is served instead. A reader does not leave in two seconds, and
#: clients of the handle API time out after a few.
STALE_TIMEOUT: Final = 1.8
#: Seconds before the next query for a name that is served stale after a failed query. A popular name costs a failing
#: upstream two queries a minute.
RECHECK: Final = 30.0
#: Seconds before the next query for a name that the upstream refused, or whose record is unreadable.
FAILURE_TTL: Final = 15.0
#: Memory for the names whose queries failed, in bytes.
_FAILURE_BYTES: Final = 4 * 1024 * 1024

UNOBSERVED: Final = Observers()


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one process."""

    settings: Settings
    cache: TieredStore
    upstream: Upstream
    resolver: Resolver


def assemble(
    settings: Settings,
    clock: Callable[[], float] = time.time,
    observers: Observers = UNOBSERVED,
    *,
    cache: TieredStore | None = None,
    wrap_source: Callable[[Source], Source] | None = None,
    timeouts: ResolverTimeouts | None = None,
) -> Parts:
    """The parts that resolve names, without HTTP. Raises ConfigurationError.

    `cache` takes the place of the cache that the settings name. `wrap_source` returns the source that the resolver
    queries, given the upstream. `timeouts` take the place of the usual ones.
    """
    cache = cache or open_cache(settings, clock, observers.store)
    policy = read_ttl_policy(settings)
    upstream = upstreams.open_upstream(settings, cache, policy, clock, observers=observers)
    resolver = Resolver(
        cache,
        wrap_source(upstream.source) if wrap_source else upstream.source,
        clock,
        options=ResolverOptions(
            policy,
            timeouts or read_resolver_timeouts(),
            proofs=Proofs(read_verification(settings)),
        ),
        failures=FailureMemory(ttl=FAILURE_TTL, most=upstreams.FIRST_PAUSE, max_bytes=_FAILURE_BYTES),
        observer=observers.resolver,
    )
    return Parts(settings, cache, upstream, resolver)


def read_ttl_policy(settings: Settings) -> TtlPolicy:
    """The limits of a record's lifetime."""
    return TtlPolicy(
        floor=settings.cache_ttl_floor,
        ceiling=settings.cache_ttl_ceiling,
        negative=settings.cache_negative_ttl,
        grace=settings.cache_grace,
    )


def read_verification(settings: Settings) -> Verification:
    """Which answers are verified: none without handle servers."""
    urls = (*settings.upstream_url, *settings.upstream_route_urls.values())
    return settings.upstream_verify if any(map(upstreams.is_signed, urls)) else "never"


def read_resolver_timeouts() -> ResolverTimeouts:
    """How long the resolver waits."""
    return ResolverTimeouts(upstream=STALE_TIMEOUT, recheck=RECHECK)
