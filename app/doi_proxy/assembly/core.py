"""Builds the core from the settings and from what features add to it: the parts that answer names, and the pages."""

from __future__ import annotations

import resource
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.assembly.features import Features, find_records, store_openers, text_packages, upstream_kinds
from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.assembly.settings.upstream import MIN_STORE_BYTES
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.missed import LateStore
from doi_proxy.cache.store import Store, StoreUnavailable
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.features.feature import Context, Core, Observers, Opened, SourceContext
from doi_proxy.list_formats.fair_lock import FairLock
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.fetcher import FailureMemory, ResolverOptions, ResolverTimeouts
from doi_proxy.resolver.prefix_chain import PrefixChain, WhichRa
from doi_proxy.resolver.resolution import TtlPolicy
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.server import connections
from doi_proxy.server.prepared_answers import PreparedAnswers
from doi_proxy.server.proxies import trusted_addresses
from doi_proxy.store.file import StoreOptions, find_store_file, open_store, read_store_path
from doi_proxy.store.stored_entry import STORE_FORMAT
from doi_proxy.system.check import EventLog, Meter
from doi_proxy.system.version import read_version
from doi_proxy.upstream import guard
from doi_proxy.upstream.budget import Budget, BudgetLimits, LocalBucket
from doi_proxy.upstream.client import ClientIdentity, HandleClient, HttpOptions
from doi_proxy.upstream.counted_bucket import CountedBucket
from doi_proxy.upstream.source import AgencySource, SealedSource, Source, read_loop_id
from doi_proxy.upstream.upstream_log import UpstreamLog
from doi_proxy.web.api import RestApi
from doi_proxy.web.name_pages import NamePages
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.problem import ErrorPages
from doi_proxy.web.redirect import Face, Redirects
from doi_proxy.web.request_path import client_of
from doi_proxy.web.stage import Stage

#: Timeout of a Valkey or Redis command, in seconds. A server in the same network answers in a millisecond, and
#: after this time an upstream query is as fast.
STORE_TIMEOUT: Final = 0.1


def open_cache(
    settings: Settings,
    clock: Callable[[], float] = time.time,
    observer: Callable[[str], None] | None = None,
    *,
    read_only: bool = False,
    timeout: float | None = None,
) -> TieredStore:
    """The cache of a command. Raises ConfigurationError for a URL or a file that cannot be used."""
    try:
        store = _open_store(settings, clock, read_only=read_only, timeout=timeout)
    except StoreError as error:
        raise _refuse(error) from error
    return _build_cache(settings, clock, observer, store)


def open_service_cache(
    settings: Settings, clock: Callable[[], float] = time.time, observer: Callable[[str], None] | None = None
) -> TieredStore:
    """The cache of a service. A store that cannot be opened now is tried again while the service runs, and is only
    read until then, if it can be. So is one whose file is lost later.

    Raises ConfigurationError for a URL or a file that can never be used.
    """
    open_again = partial(_open_store, settings, clock)
    try:
        return _build_cache(settings, clock, observer, open_again(), LateStore(open_again, clock))
    except StoreUnavailable as error:
        late = LateStore(open_again, clock, error.message)
    except StoreError as error:
        raise _refuse(error) from error
    readable = None
    with suppress(StoreError):
        readable = _open_store(settings, clock, read_only=True)
    return _build_cache(settings, clock, observer, readable, late)


def _open_store(
    settings: Settings, clock: Callable[[], float], *, read_only: bool = False, timeout: float | None = None
) -> Store | None:
    file = find_store_file(settings.store_url)
    before = _count_bytes(file)
    max_bytes = fitting_bytes(settings, file, before)

    def find_freed() -> int:
        return max(0, fitting_bytes(settings, file, before) - max_bytes)

    seconds = STORE_TIMEOUT if timeout is None else timeout
    options = StoreOptions(clock, max_bytes, seconds, read_only, find_records, find_freed)
    return open_store(settings.store_url, options, store_openers())


def _count_bytes(path: Path | None) -> int:
    with suppress(OSError):
        return path.stat().st_size if path is not None and path.is_file() else 0
    return 0


def describe_left_file(settings: Settings) -> str | None:
    """Why the store is not in the file of `store_url`. None if it is."""
    named, used = read_store_path(settings.store_url), find_store_file(settings.store_url)
    if named == used:
        return None
    return (
        f"{named} is a store of another format than {STORE_FORMAT}, or a database of another program; it is not"
        f" changed, and the store is {used}"
    )


def fitting_bytes(settings: Settings, file: Path | None, before: int | None = None) -> int:
    """The size of the SQLite store: `store_max_bytes`, but at most what it has and half of the free disk.

    `file` is the store. `before` is what it had when it was opened. What it has taken since then counts as free.
    """
    most = settings.store_max_bytes
    folder = None if file is None else next((parent for parent in file.absolute().parents if parent.is_dir()), None)
    if file is None or folder is None:
        return most
    try:
        present = _count_bytes(file)
        first = present if before is None else before
        return max(MIN_STORE_BYTES, min(most, first + (present - first + disk_usage(folder).free) // 2))
    except OSError:
        return most


def _build_cache(
    settings: Settings,
    clock: Callable[[], float],
    observer: Callable[[str], None] | None,
    store: Store | None,
    late: LateStore | None = None,
) -> TieredStore:
    return TieredStore(
        MemoryStore(settings.cache_memory_bytes, clock=clock),
        store,
        clock=clock,
        ceiling=settings.cache_ttl_ceiling,
        observer=observer,
        only_verified=settings.upstream_verify == "always",
        late=late,
    )


def _refuse(error: StoreError) -> ConfigurationError:
    return ConfigurationError(f"the store cannot be opened: {error.message}")


#: The schemes of the HTTP API. Features open the others.
_HTTP: Final = frozenset({"http", "https"})
#: The longest first pause after a 429 or 503 with Retry-After, in seconds. It doubles with each further one, up to an
#: hour, until the upstream answers.
FIRST_PAUSE: Final = 60.0


class _Upstreams:
    """Opens each upstream once, behind a guard, with one budget for all."""

    def __init__(self, settings: Settings, context: SourceContext, observers: Observers) -> None:
        self._settings = settings
        self._context = context
        self._observers = observers
        self.guards: dict[str, guard.Guard] = {}
        self.agencies: dict[str, AgencySource] = {}

    def open(self, url: str) -> Source:
        """The upstream at a URL. Raises ConfigurationError."""
        if url not in self.guards:
            # Upstreams of one process, those of earlier local records included.
            if len(self.guards) >= 100:
                raise ConfigurationError("more than 100 upstreams; remove some, and restart")
            self.guards[url] = self._open_guard(url, len(self.guards) + 1)
        return self.guards[url]

    def _open_guard(self, url: str, number: int) -> guard.Guard:
        settings, context, observers = self._settings, self._context, self._observers
        if observers.exchanges is not None and is_signed(url):
            context = replace(context, observer=observers.exchanges(number))
        api = _open_api(settings, url, context)
        # Only the host, because a URL may contain a password.
        label = f"upstream {number} ({urlsplit(url).hostname or 'handle servers'})"
        health = guard.UpstreamHealth(
            guard.Breaker(settings.upstream_breaker_failures, settings.upstream_breaker_cooldown),
            guard.Pause(FIRST_PAUSE, 3_600.0),
            # The highest privacy level at which a log may contain DOI names.
            UpstreamLog(label, time.monotonic, shows_names=settings.privacy_level <= 2),
        )
        record = observers.upstream(number) if observers.upstream else None
        # A route leads to the server of its prefixes. A default upstream, or a URL without a host, has many behind it.
        server = url if urlsplit(url).hostname and url not in settings.upstream_url else ""
        opened = guard.Guard(api, health, context.budget, time.monotonic, record_query=record, server=server)
        # Handle servers have no Which RA service.
        if isinstance(api, HandleClient):
            self.agencies[url] = guard.GuardedAgencies(api, opened)
        return opened


def open_upstream(
    settings: Settings,
    cache: TieredStore,
    policy: TtlPolicy,
    clock: Callable[[], float],
    *,
    observers: Observers,
) -> guard.Upstream:
    """The upstreams behind their breakers and one budget. Raises ConfigurationError."""
    budget = Budget(read_budget_limits(settings), time.monotonic, bucket=_open_counted_bucket(settings, cache))
    if settings.mode == "sealed":
        return guard.Upstream(SealedSource(), SealedSource(), {}, budget)
    context = SourceContext(budget, cache, policy, clock)
    upstreams = _Upstreams(settings, context, observers)
    default = [upstreams.open(url) for url in settings.upstream_url]
    routes = {prefix: upstreams.open(url) for prefix, url in settings.upstream_route_urls.items()}
    is_routed = len(default) > 1 or routes or settings.value("local_records") is not None
    source: Source = guard.RoutedSource(routes, default) if is_routed else default[0]
    agencies = upstreams.agencies
    which_ra = next((agencies[url] for url in settings.upstream_url if url in agencies), None)
    return guard.Upstream(source, which_ra, upstreams.guards, budget, upstreams.open)


def read_budget_limits(settings: Settings) -> BudgetLimits:
    """The limits of upstream queries of one instance: an equal part, but the whole rate where a store counts them."""
    return BudgetLimits(
        rate=settings.upstream_rate / (1 if _counts_queries(settings) else settings.instances),
        burst=max(1.0, settings.upstream_burst / settings.instances),
        max_concurrency=max(1, settings.upstream_max_concurrency // settings.instances),
    )


def is_signed(url: str) -> bool:
    """Whether the answers of the upstream at this URL can be signed."""
    scheme = urlsplit(url).scheme
    if scheme in _HTTP:
        return False
    kind = upstream_kinds().get(scheme)
    return kind is not None and kind.is_signed


def _open_api(settings: Settings, url: str, context: SourceContext) -> guard.UpstreamApi:
    scheme = urlsplit(url).scheme
    if scheme not in _HTTP:
        kind = upstream_kinds().get(scheme)
        if kind is None:
            raise ConfigurationError(
                f"upstream_url: {scheme}: needs a feature that is not part of this installation; install doi-proxy "
                "again, or name an https: URL"
            )
        api: guard.UpstreamApi = kind.open(settings, url, context)
        return api
    if settings.upstream_verify == "always":
        # Settings refuse it too. This one is a route of the local records.
        raise ConfigurationError(
            f"upstream_verify = 'always' needs handle servers, but {urlsplit(url).hostname} is an HTTP API; name "
            "hdl://host:port instead, or set upstream_verify to lookups"
        )
    identity = ClientIdentity(f"doi-proxy/{read_version()}", settings.upstream_contact, name_service(settings))
    options = HttpOptions(
        total_timeout=settings.upstream_timeout,
        ca_file=str(settings.upstream_ca_bundle) if settings.upstream_ca_bundle else None,
    )
    return HandleClient(url, identity, options, clock=time.time, may_ask_again=context.budget.admit_retry)


def _counts_queries(settings: Settings) -> bool:
    return urlsplit(settings.store_url).scheme not in ("memory", "sqlite")


def _open_counted_bucket(settings: Settings, cache: TieredStore) -> CountedBucket | None:
    """The tokens that the instances count in a server of their store. None without one."""
    if not _counts_queries(settings):
        return None
    limits = read_budget_limits(settings)
    spend = partial(cache.spend, "queries")
    return CountedBucket(spend, limits.rate, limits.burst, settings.instances, time.monotonic)


#: Seconds to wait for the upstream before a stale record is served instead. A reader does not leave in two seconds, and
#: clients of the handle API time out after a few.
STALE_TIMEOUT: Final = 1.8
#: Seconds before the next query for a name that is served stale after a failed query. A popular name costs a failing
#: upstream two queries a minute.
RECHECK: Final = 30.0
#: Seconds before the next query for a name that the upstream refused, or whose record is unreadable.
FAILURE_TTL: Final = 15.0

UNOBSERVED: Final = Observers()


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one process."""

    cache: TieredStore
    upstream: guard.Upstream
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
    upstream = open_upstream(settings, cache, policy, clock, observers=observers)
    urls = (*settings.upstream_url, *settings.upstream_route_urls.values())
    resolver = Resolver(
        cache,
        wrap_source(upstream.source) if wrap_source else upstream.source,
        clock,
        options=ResolverOptions(
            policy,
            timeouts or read_resolver_timeouts(),
            # No answer is verified without handle servers.
            verification=settings.upstream_verify if any(map(is_signed, urls)) else "never",
        ),
        # 4 MiB for the names whose queries failed.
        failures=FailureMemory(ttl=FAILURE_TTL, most=FIRST_PAUSE, max_bytes=4 * 1024 * 1024),
        observer=observers.resolver,
    )
    return Parts(cache, upstream, resolver)


def read_ttl_policy(settings: Settings) -> TtlPolicy:
    """The limits of a record's lifetime."""
    return TtlPolicy(
        floor=settings.cache_ttl_floor,
        ceiling=settings.cache_ttl_ceiling,
        negative=settings.cache_negative_ttl,
        grace=settings.cache_grace,
    )


def read_resolver_timeouts() -> ResolverTimeouts:
    """How long the resolver waits."""
    return ResolverTimeouts(upstream=STALE_TIMEOUT, recheck=RECHECK)


def read_sub_path(settings: Settings) -> str:
    """The path under which a front proxy serves the service, without a slash at its end."""
    return urlsplit(settings.public_url or "").path.rstrip("/")


def name_service(settings: Settings) -> str:
    """What this service is called in the header that detects a loop."""
    return read_loop_id(settings.store_url, settings.public_url, settings.upstream_url)


def read_public_url(settings: Settings) -> str | None:
    """This resolver's own URL without a slash at its end."""
    return settings.public_url.rstrip("/") if settings.public_url else None


def build_pages(settings: Settings) -> Pages:
    """The pages, with the texts and templates of the features."""
    return Pages(
        base_url_hint=settings.public_url or "",
        product_version=read_version(),
        of_features=text_packages(),
    )


@dataclass(frozen=True, slots=True)
class SuppliedParts:
    """Parts that the caller supplies. The settings decide about those that are None."""

    cache: TieredStore | None = None
    #: Returns the source that the resolver queries, given the upstream.
    wrap_source: Callable[[Source], Source] | None = None
    access_log: Stage | None = None
    timeouts: ResolverTimeouts | None = None


#: Open files other than connections: the program, its store, its log, the port, and sockets that are being closed while
#: new ones are accepted.
RESERVED: Final = 96
UNLIMITED: Final = 65_536
#: The settings that `set_budget` follows.
BUDGET_SETTINGS: Final = ("upstream_rate", "upstream_burst", "upstream_max_concurrency")
NO_PARTS: Final = SuppliedParts()


def open_core(
    settings: Settings,
    features: Features | None = None,
    observers: Observers = UNOBSERVED,
    *,
    parts: SuppliedParts = NO_PARTS,
    connections: connections.Connections | None = None,
    read_only: bool = False,
) -> Core:
    """The parts that answer names, with the local sources of features. Raises ConfigurationError.

    A command needs no `features`. If it is `read_only`, it has the records of the store alone.
    """
    features = features or Features(new_context(settings, Lifecycle(settings)))
    assembled = assemble(
        settings,
        features.context.clock,
        observers,
        cache=parts.cache,
        wrap_source=parts.wrap_source,
        timeouts=parts.timeouts,
    )
    prefixes = PrefixChain(assembled.resolver, observers.resolver)
    core = Core(
        cache=assembled.cache,
        upstream=assembled.upstream,
        resolver=assembled.resolver,
        prefixes=prefixes,
        destinations=Destinations(assembled.resolver, prefixes, resolves=settings.resolve, own_url=settings.public_url),
        link=Link(base=read_sub_path(settings)),
        prepared=[],
        background=LocalBucket(*_read_background_rate(settings), time.monotonic),
        meter=observers.meter or Meter(),
        text_turns=FairLock(),
        connections=connections,
    )
    if not read_only:
        features.add_sources(core)
    return core


def set_budget(core: Core, settings: Settings) -> None:
    """Follow other limits of upstream queries: `upstream_rate`, `upstream_burst` and `upstream_max_concurrency`."""
    core.upstream.budget.set_limits(read_budget_limits(settings))
    core.background.set_rate(*_read_background_rate(settings))
    if core.connections is not None:
        core.connections.set_total(_count_connections(settings))


def _read_background_rate(settings: Settings) -> tuple[float, float]:
    # All instances together have this share of the budget, for look-ups of pages, problems and lists that no client
    # requested.
    rate = 0.05 * settings.upstream_rate / settings.instances
    # Seconds of it that are saved up.
    return rate, max(1.0, rate * 10.0)


def _count_connections(settings: Settings) -> int:
    """The client connections of this instance: those that the limit of open files (RLIMIT_NOFILE) leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = UNLIMITED if soft == resource.RLIM_INFINITY else soft
    # With a small limit, clients get half of it. Half of 64 would leave nothing for the program: under a crowd that
    # comes and goes, none of 100 requests was answered, and with 10 connections all were.
    # The open files of a process without clients, and as many again for sockets that are being closed.
    half = min(files // 2, files - 64)
    # Connections of a process whose limit of open files leaves less, and of one without a limit.
    fitting = max(files - RESERVED - 2 * settings.upstream_max_concurrency, half, 8)
    return settings.max_connections or min(fitting, UNLIMITED)


def new_context(
    settings: Settings,
    reloads: Lifecycle,
    clock: Callable[[], float] = time.time,
    access_log: Stage | None = None,
) -> Context:
    """What features are made with."""
    return Context(settings, read_public_url(settings), reloads, clock, EventLog(), access_log)


def build_face(
    settings: Settings,
    core: Core,
    pages: Pages,
    opened: Opened,
    *,
    clock: Callable[[], float],
    chance: Callable[[], float],
) -> Face:
    """The answers to names. `chance` is called once a request: 0 <= chance < 1."""
    sections, stages = opened.sections, opened.stages
    api = RestApi(
        resolver=core.resolver,
        clock=clock,
        resolves=settings.resolve,
        stages=stages,
    )
    redirects = Redirects(
        destinations=core.destinations,
        api=api,
        name_pages=NamePages(pages=pages, link=core.link, sections=sections, clock=clock),
        clock=clock,
        chance=chance,
        stages=stages,
    )
    which_ra = WhichRa(core.resolver, core.prefixes, core.upstream.agencies)
    errors = ErrorPages(pages=pages, link=core.link, sections=sections)
    return Face(core.resolver, redirects, which_ra, api, errors, pages, core.link, stages)


def build_prepared_answers(
    settings: Settings, core: Core, face: Face, clock: Callable[[], float]
) -> PreparedAnswers | None:
    """The prepared answers, if they are switched on."""
    if not settings.express_lane:
        return None
    prepared = PreparedAnswers(
        core.resolver,
        face,
        clock=clock,
        timer=time.perf_counter,
        sub_path=read_sub_path(settings).encode(),
        secret=secrets.token_bytes(16),
        max_bytes=settings.express_memory_bytes,
    )
    core.prepared.append(prepared)
    return prepared


def open_connections(settings: Settings) -> connections.Connections:
    """What the server keeps about the connections of this process."""
    limits = connections.ConnectionLimits(
        head_timeout=connections.HEAD_TIMEOUT,
        body_timeout=connections.BODY_TIMEOUT,
        write_timeout=connections.WRITE_TIMEOUT,
        idle_timeout=connections.IDLE_TIMEOUT,
        total=_count_connections(settings),
        per_client=connections.PER_CLIENT,
        client_of=client_of,
        is_trusted=trusted_addresses(settings.trusted_proxies),
    )
    return connections.Connections(limits)
