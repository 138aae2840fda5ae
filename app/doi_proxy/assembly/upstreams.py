"""Opens the upstreams: a client, a breaker and a log for each, and one budget for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.assembly.features import upstream_kinds
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Observers, SourceContext
from doi_proxy.resolver.resolution import TtlPolicy
from doi_proxy.system.version import read_version
from doi_proxy.upstream.breaker import Breaker
from doi_proxy.upstream.budget import QUEUE_TIMEOUT, RESERVED_SHARE, Budget, BudgetLimits
from doi_proxy.upstream.client import ClientIdentity, HandleClient, HttpOptions
from doi_proxy.upstream.counted_bucket import CountedBucket
from doi_proxy.upstream.guard import Guard, GuardedAgencies, UpstreamApi, UpstreamHealth
from doi_proxy.upstream.local import SealedSource
from doi_proxy.upstream.loop import read_loop_id
from doi_proxy.upstream.pause import Pause
from doi_proxy.upstream.routed import RoutedSource, Upstream
from doi_proxy.upstream.source import AgencySource, Priority, Source
from doi_proxy.upstream.upstream_log import UpstreamLog

#: The schemes of the HTTP API. Features open the others.
_HTTP: Final = frozenset({"http", "https"})
#: Upstreams of one process, those of earlier local records included.
MAX_UPSTREAMS: Final = 100
#: The highest privacy level at which a log may contain DOI names.
_NAMES_IN_LOG: Final = 2
#: The longest first pause after a 429 or 503 with Retry-After, in seconds. It doubles with each further one, up to an
#: hour, until the upstream answers.
FIRST_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 3_600.0
#: Upstream queries of one client that can wait, twice as many as the default budget admits while they wait. One more is
#: answered 429.
MOST_WAITING: Final = 100
#: Seconds that a query waits for the budget if no person waits for its answer.
_UNATTENDED_TIMEOUT: Final = 60.0


class _Upstreams:
    """Opens each upstream once, behind a guard, with one budget for all."""

    def __init__(self, settings: Settings, context: SourceContext, observers: Observers) -> None:
        self._settings = settings
        self._context = context
        self._observers = observers
        self._timeouts = read_queue_timeouts()
        self.guards: dict[str, Guard] = {}
        self.agencies: dict[str, AgencySource] = {}

    def open(self, url: str) -> Source:
        """The upstream at a URL. Raises ConfigurationError."""
        if url not in self.guards:
            if len(self.guards) >= MAX_UPSTREAMS:
                raise ConfigurationError(f"more than {MAX_UPSTREAMS} upstreams; remove some, and restart")
            self.guards[url] = self._open_guard(url, len(self.guards) + 1)
        return self.guards[url]

    def _open_guard(self, url: str, number: int) -> Guard:
        settings, context, observers = self._settings, self._context, self._observers
        if observers.exchanges is not None and is_signed(url):
            context = replace(context, observer=observers.exchanges(number))
        api = _open_api(settings, url, context)
        health = UpstreamHealth(
            Breaker(settings.upstream_breaker_failures, settings.upstream_breaker_cooldown),
            Pause(FIRST_PAUSE, _LONGEST_PAUSE),
            _upstream_log(settings, number, url),
        )
        record = observers.upstream(number) if observers.upstream else None
        # A route leads to the server of its prefixes. A default upstream, or a URL without a host, has many behind it.
        server = url if urlsplit(url).hostname and url not in settings.upstream_url else ""
        guard = Guard(
            api, health, context.budget, time.monotonic, timeouts=self._timeouts, record_query=record, server=server
        )
        # Handle servers have no Which RA service.
        if isinstance(api, HandleClient):
            self.agencies[url] = GuardedAgencies(api, guard)
        return guard


def open_upstream(
    settings: Settings,
    cache: TieredStore,
    policy: TtlPolicy,
    clock: Callable[[], float],
    *,
    observers: Observers,
) -> Upstream:
    """The upstreams behind their breakers and one budget. Raises ConfigurationError."""
    budget = Budget(read_budget_limits(settings), time.monotonic, bucket=_open_counted_bucket(settings, cache))
    if settings.mode == "sealed":
        return Upstream(SealedSource(), SealedSource(), {}, budget)
    context = SourceContext(budget, cache, policy, clock)
    upstreams = _Upstreams(settings, context, observers)
    default = [upstreams.open(url) for url in settings.upstream_url]
    routes = {prefix: upstreams.open(url) for prefix, url in settings.upstream_route_urls.items()}
    is_routed = len(default) > 1 or routes or settings.value("local_records") is not None
    source: Source = RoutedSource(routes, default) if is_routed else default[0]
    agencies = upstreams.agencies
    which_ra = next((agencies[url] for url in settings.upstream_url if url in agencies), None)
    return Upstream(source, which_ra, upstreams.guards, budget, upstreams.open)


def read_budget_limits(settings: Settings) -> BudgetLimits:
    """The limits of upstream queries of one instance: an equal part, but the whole rate where a store counts them."""
    return BudgetLimits(
        rate=settings.upstream_rate / (1 if _counts_queries(settings) else settings.instances),
        burst=max(1.0, settings.upstream_burst / settings.instances),
        max_concurrency=max(1, settings.upstream_max_concurrency // settings.instances),
        reserved_for_people=RESERVED_SHARE,
        most_of_client=MOST_WAITING,
    )


def is_signed(url: str) -> bool:
    """Whether the answers of the upstream at this URL can be signed."""
    scheme = urlsplit(url).scheme
    if scheme in _HTTP:
        return False
    kind = upstream_kinds().get(scheme)
    return kind is not None and kind.is_signed


def _open_api(settings: Settings, url: str, context: SourceContext) -> UpstreamApi:
    scheme = urlsplit(url).scheme
    if scheme not in _HTTP:
        kind = upstream_kinds().get(scheme)
        if kind is None:
            raise ConfigurationError(
                f"upstream_url: {scheme}: needs a feature that is not part of this installation; install doi-proxy "
                "again, or name an https: URL"
            )
        api: UpstreamApi = kind.open(settings, url, context)
        return api
    if settings.upstream_verify == "always":
        # Settings refuse it too. This one is a route of the local records.
        raise ConfigurationError(
            f"upstream_verify = 'always' needs handle servers, but {urlsplit(url).hostname} is an HTTP API; name "
            "hdl://host:port instead, or set upstream_verify to lookups"
        )
    identity = ClientIdentity(f"doi-proxy/{read_version()}", settings.upstream_contact, read_loop_id())
    options = HttpOptions(
        total_timeout=settings.upstream_timeout,
        ca_file=str(settings.upstream_ca_bundle) if settings.upstream_ca_bundle else None,
    )
    return HandleClient(url, identity, options, clock=time.time, may_ask_again=context.budget.admit_retry)


def _upstream_log(settings: Settings, number: int, url: str) -> UpstreamLog:
    # Only the host, because a URL may contain a password.
    label = f"upstream {number} ({urlsplit(url).hostname or 'handle servers'})"
    return UpstreamLog(label, time.monotonic, shows_names=settings.privacy_level <= _NAMES_IN_LOG)


def read_queue_timeouts() -> Mapping[Priority, float]:
    """How long a query waits for the budget, in seconds, by who waits for the answer."""
    return {
        Priority.PERSON: QUEUE_TIMEOUT,
        Priority.BULK: _UNATTENDED_TIMEOUT,
        Priority.BACKGROUND: _UNATTENDED_TIMEOUT,
    }


def _counts_queries(settings: Settings) -> bool:
    return urlsplit(settings.store_url).scheme not in ("memory", "sqlite")


def _open_counted_bucket(settings: Settings, cache: TieredStore) -> CountedBucket | None:
    """The tokens that the instances count in a server of their store. None without one."""
    if not _counts_queries(settings):
        return None
    limits = read_budget_limits(settings)
    spend = partial(cache.spend, "queries")
    return CountedBucket(spend, limits.rate, limits.burst, settings.instances, time.monotonic)
