"""Builds cache, upstream and resolver from the settings. `main` adds HTTP."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from app import __version__
from app.cache.address import open_store
from app.cache.tiered import TieredStore, TierObserver
from app.errors import ConfigurationError, StoreError
from app.local_files import FileBounds, LocalFiles
from app.resolver import observer as resolving
from app.resolver.failure_memory import FailureMemory
from app.resolver.local_records import LocalRecords
from app.resolver.resolver import Patience, Resolver
from app.resolver.ttl_policy import TtlPolicy
from app.settings import Settings
from app.shared_budget import SharedBucket, StorePause
from app.upstream.breaker import Breaker
from app.upstream.buckets import AllottedBucket, TokenBucket
from app.upstream.budget import Budget
from app.upstream.client import HandleClient
from app.upstream.guarded import CONTROL_NAME, Guard, GuardedAgencies, GuardedSource, UpstreamObserver
from app.upstream.local import SealedSource
from app.upstream.loop import read_loop_id
from app.upstream.pause import Pause, SharedPause
from app.upstream.routed import RoutedSource
from app.upstream.source import AgencySource, Priority, Source, UpstreamQuery
from app.upstream.upstream_log import BudgetLog, UpstreamLog

log = logging.getLogger(__name__)

#: Upstreams of one process, those of earlier local records included.
MAX_UPSTREAMS: Final = 100
#: The highest privacy level at which a log may contain DOI names.
_NAMES_IN_LOG: Final = 2
#: Seconds between two reads of the store while another process queries the upstream for the same name.
_POLL_INTERVAL: Final = 0.05
#: Length of a lease on a query, in seconds. It is renewed while the query lasts.
_LEASE: Final = 1.5
#: Seconds that a query waits for the budget if no person waits for its answer.
_UNATTENDED_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers of the parts. `upstream` returns the observer of an upstream, given its number, from 1."""

    resolver: resolving.ResolutionObserver | None = None
    upstream: Callable[[int], UpstreamObserver] | None = None
    store: TierObserver | None = None


UNOBSERVED: Final = Observers()


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one process."""

    settings: Settings
    cache: TieredStore
    upstream: Upstream
    resolver: Resolver
    #: The budget's tokens, if other processes share them.
    bucket: SharedBucket | None = None
    #: The files of local records, None without them.
    local_files: LocalFiles | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """The two services of the upstreams, with a breaker for each upstream and one budget."""

    source: Source
    agencies: AgencySource | None
    #: The guard of each upstream by its base URL; all of them share one budget.
    guards: dict[str, Guard]
    budget: Budget
    #: Opens an upstream, or returns the one that is open. None if nothing is queried.
    open_source: Callable[[str], Source] | None = None

    def use_routes(self, routes: Mapping[str, str]) -> None:
        """Put the routes of local records in force: an upstream's URL by prefix. Raises ConfigurationError."""
        if self.open_source is not None and isinstance(self.source, RoutedSource):
            self.source.use_local_routes({prefix: self.open_source(url) for prefix, url in routes.items()})


def assemble(
    settings: Settings,
    clock: Callable[[], float] = time.time,
    observers: Observers = UNOBSERVED,
    *,
    cache: TieredStore | None = None,
    wrap_source: Callable[[Source], Source] | None = None,
    read_only: bool = False,
) -> Parts:
    """The parts that resolve names, without HTTP. Raises ConfigurationError.

    `cache` takes the place of the cache that the settings name. `wrap_source` returns the source that the resolver
    queries, given the upstream.
    """
    if settings.seed is not None and not settings.seed.is_file():
        raise ConfigurationError(f"--seed {settings.seed}: there is no such file")
    cache = cache or open_cache(settings, clock, observers.store, read_only=read_only)
    shared = _is_shared(settings)
    # To the upstream, all processes with this store are one client, also a command beside a running proxy.
    is_stored = settings.store_url.partition(":")[0] != "memory"
    rate, burst = settings.upstream_rate, settings.upstream_burst
    bucket = SharedBucket(cache, rate, burst, count_processes(settings)) if is_stored else None
    upstream = open_upstream(settings, _allot(settings, bucket), observers.upstream, cache if is_stored else None)
    resolver = Resolver(
        cache=cache,
        source=wrap_source(upstream.source) if wrap_source else upstream.source,
        policy=read_ttl_policy(settings),
        clock=clock,
        failures=FailureMemory(
            ttl=settings.upstream_failure_ttl,
            most=settings.upstream_pause_first,
            max_bytes=settings.upstream_failure_memory_bytes,
        ),
        patience=read_patience(settings),
        owner=f"{os.getpid()}-{uuid.uuid4().hex}" if shared else None,
        observer=observers.resolver,
    )
    # A command that only reads the store has its records, not those of the operator.
    local_files = None if read_only else load_local_files(settings, clock, upstream, resolver)
    return Parts(settings, cache, upstream, resolver, bucket, local_files)


def load_local_files(
    settings: Settings, clock: Callable[[], float], upstream: Upstream, resolver: Resolver
) -> LocalFiles | None:
    """Put the local records in force, if there are any files. Raises ConfigurationError if a file has an error."""
    if settings.local_records is None:
        return None

    def use(records: LocalRecords) -> None:
        upstream.use_routes(records.routes())
        resolver.local_records = records if len(records) else None

    bounds = FileBounds(settings.local_records_max, settings.local_records_max_bytes)
    files = LocalFiles(settings.local_records, bounds, clock, use)
    files.load()
    return files


def read_ttl_policy(settings: Settings) -> TtlPolicy:
    """The limits of a record's lifetime."""
    return TtlPolicy(
        floor=settings.cache_ttl_floor,
        ceiling=settings.cache_ttl_ceiling,
        negative=settings.cache_negative_ttl,
        grace=settings.cache_grace,
    )


def read_patience(settings: Settings) -> Patience:
    """How long the resolver waits."""
    return Patience(
        upstream=settings.upstream_patience,
        recheck=settings.upstream_recheck,
        query=settings.upstream_timeout + settings.upstream_queue_patience,
        lease=_LEASE,
        poll=_POLL_INTERVAL,
    )


def read_queue_patience(settings: Settings) -> Mapping[Priority, float]:
    """How long a query waits for the budget, in seconds, by who waits for the answer."""
    return {
        Priority.PERSON: settings.upstream_queue_patience,
        Priority.BULK: _UNATTENDED_PATIENCE,
        Priority.BACKGROUND: _UNATTENDED_PATIENCE,
    }


def open_cache(
    settings: Settings,
    clock: Callable[[], float] = time.time,
    observer: TierObserver | None = None,
    *,
    read_only: bool = False,
) -> TieredStore:
    """The cache. Raises ConfigurationError for a URL or a file that cannot be used."""
    try:
        return open_store(
            settings.store_url,
            clock=clock,
            memory_bytes=settings.cache_memory_bytes,
            store_bytes=settings.store_max_bytes,
            timeout=settings.store_timeout,
            ceiling=settings.cache_ttl_ceiling,
            observer=observer,
            read_only=read_only,
        )
    except StoreError as error:
        raise ConfigurationError(f"the store cannot be opened: {error.message}") from error


def open_upstream(
    settings: Settings,
    bucket: TokenBucket | None,
    observer: Callable[[int], UpstreamObserver] | None = None,
    cache: TieredStore | None = None,
) -> Upstream:
    """The upstreams behind their breakers and one budget; `cache` shares their pauses. Raises ConfigurationError."""
    budget = Budget(
        rate=settings.upstream_rate,
        burst=settings.upstream_burst,
        # The processes divide the limit among them.
        max_concurrency=max(1, settings.upstream_max_concurrency // count_processes(settings)),
        reserved_for_people=settings.upstream_reserved_share,
        most_of_client=settings.client_most_waiting,
        clock=time.monotonic,
        bucket=bucket,
    )
    if settings.mode == "sealed":
        return Upstream(SealedSource(), SealedSource(), {}, budget)
    budget_log = BudgetLog(time.monotonic)
    opened: dict[str, tuple[GuardedSource, AgencySource]] = {}
    guards: dict[str, Guard] = {}

    def open_source(url: str) -> Source:
        if url not in opened:
            if len(opened) >= MAX_UPSTREAMS:
                raise ConfigurationError(f"more than {MAX_UPSTREAMS} upstreams; remove some, and restart")
            number = len(opened) + 1
            api = _open_api(settings, url, budget)
            guard = _open_guard(
                settings,
                api,
                budget,
                budget_log,
                log=_upstream_log(settings, number, url),
                shared=StorePause(cache, url) if cache else None,
                observer=observer(number) if observer else None,
            )
            opened[url] = GuardedSource(api, guard), GuardedAgencies(api, guard)
            guards[url] = guard
        return opened[url][0]

    default = [open_source(url) for url in settings.upstream_urls]
    routes = {prefix: open_source(url) for prefix, url in settings.upstream_route_urls.items()}
    is_routed = len(default) > 1 or routes or settings.local_records is not None
    source: Source = RoutedSource(routes, default) if is_routed else default[0]
    return Upstream(source, opened[settings.upstream_urls[0]][1], guards, budget, open_source)


def _open_api(settings: Settings, url: str, budget: Budget) -> HandleClient:
    return HandleClient(
        url,
        user_agent=f"doi-proxy/{__version__}",
        contact=settings.upstream_contact,
        loop_id=read_loop_id(),
        connect_timeout=settings.upstream_connect_timeout,
        read_timeout=settings.upstream_read_timeout,
        total_timeout=settings.upstream_timeout,
        max_answer_bytes=settings.upstream_max_answer_bytes,
        literal_slashes=settings.upstream_literal_slashes,
        http2=settings.upstream_http2,
        ca_file=str(settings.upstream_ca_bundle) if settings.upstream_ca_bundle else None,
        clock=time.time,
        may_ask_again=budget.admit_retry,
    )


def _open_guard(
    settings: Settings,
    api: HandleClient,
    budget: Budget,
    budget_log: BudgetLog,
    *,
    log: UpstreamLog,
    shared: SharedPause | None,
    observer: UpstreamObserver | None,
) -> Guard:
    return Guard(
        budget=budget,
        breaker=Breaker(settings.upstream_breaker_failures, settings.upstream_breaker_cooldown),
        pause=Pause(settings.upstream_pause_first, settings.upstream_pause_max, shared),
        log=log,
        budget_log=budget_log,
        control=lambda: api.fetch(UpstreamQuery(CONTROL_NAME)),
        clock=time.monotonic,
        observer=observer,
        patience=read_queue_patience(settings),
    )


def _upstream_log(settings: Settings, number: int, url: str) -> UpstreamLog:
    # Only the host, because a URL may contain a password.
    label = f"upstream {number} ({urlsplit(url).hostname})"
    return UpstreamLog(label, time.monotonic, shows_names=settings.privacy_level <= _NAMES_IN_LOG)


def _allot(settings: Settings, bucket: SharedBucket | None) -> TokenBucket | None:
    if bucket is None:
        return None
    most = settings.upstream_allotment
    return AllottedBucket(bucket, burst=settings.upstream_burst, most=most, clock=time.monotonic)


def count_processes(settings: Settings) -> int:
    """The processes that share the store and the budget, on all machines."""
    return settings.workers * settings.upstream_machines


def _is_shared(settings: Settings) -> bool:
    return settings.workers > 1 or urlsplit(settings.store_url).scheme not in ("memory", "sqlite")
