"""Builds the core from the settings and from what features add to it: the parts that answer names, and the pages."""

from __future__ import annotations

import resource
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.assembly.features import Features, text_folders
from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.resolving import UNOBSERVED, assemble
from doi_proxy.assembly.settings import Settings
from doi_proxy.assembly.upstreams import read_budget_limits
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.endpoints.fair_lock import FairLock
from doi_proxy.features.feature import Context, Core, Observers, Opened
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.fetcher import ResolverTimeouts
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.which_ra import WhichRa
from doi_proxy.server.connections import (
    BODY_TIMEOUT,
    HEAD_TIMEOUT,
    IDLE_TIMEOUT,
    PER_CLIENT,
    WRITE_TIMEOUT,
    ConnectionLimits,
    Connections,
)
from doi_proxy.server.prepared_answers import PreparedAnswers
from doi_proxy.server.proxies import trusted_addresses
from doi_proxy.system.events import EventLog
from doi_proxy.system.meter import Meter
from doi_proxy.system.version import read_version
from doi_proxy.upstream.budget import LocalBucket
from doi_proxy.upstream.source import Source
from doi_proxy.web.api import RestApi
from doi_proxy.web.client_network import client_of
from doi_proxy.web.error_handlers import ErrorPages
from doi_proxy.web.name_pages import NamePages
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.redirect import Redirects
from doi_proxy.web.stage import Stage

#: The share of the upstream's budget for look-ups that no client requested, of all pages, problems and lists together.
_BACKGROUND_SHARE: Final = 0.05
#: Seconds of it that are saved up.
_BACKGROUND_SECONDS: Final = 10.0


def read_sub_path(settings: Settings) -> str:
    """The path under which a front proxy serves the service, without a slash at its end."""
    return urlsplit(settings.public_url or "").path.rstrip("/")


def read_public_url(settings: Settings) -> str | None:
    """This resolver's own URL without a slash at its end."""
    return settings.public_url.rstrip("/") if settings.public_url else None


def build_pages(settings: Settings) -> Pages:
    """The pages, with the texts and templates of the features."""
    return Pages(
        base_url_hint=settings.public_url or "",
        product_version=read_version(),
        of_features=text_folders(),
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
#: The open files of a process without clients, and as many again for sockets that are being closed.
_LEAST_RESERVED: Final = 64
#: Connections of a process whose limit of open files leaves less, and of one without a limit.
_LEAST: Final = 8
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
    connections: Connections | None = None,
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
    # All instances have this share together.
    rate = _BACKGROUND_SHARE * settings.upstream_rate / settings.instances
    return rate, max(1.0, rate * _BACKGROUND_SECONDS)


def _count_connections(settings: Settings) -> int:
    """The client connections of this instance: those that the limit of open files (RLIMIT_NOFILE) leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = UNLIMITED if soft == resource.RLIM_INFINITY else soft
    # With a small limit, clients get half of it. Half of 64 would leave nothing for the program: under a crowd that
    # comes and goes, none of 100 requests was answered, and with 10 connections all were.
    half = min(files // 2, files - _LEAST_RESERVED)
    fitting = max(files - RESERVED - 2 * settings.upstream_max_concurrency, half, _LEAST)
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
    return Face(redirects, which_ra, api, errors, pages, core.link, stages)


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


def open_connections(settings: Settings) -> Connections:
    """What the server keeps about the connections of this process."""
    limits = ConnectionLimits(
        head_timeout=HEAD_TIMEOUT,
        body_timeout=BODY_TIMEOUT,
        write_timeout=WRITE_TIMEOUT,
        idle_timeout=IDLE_TIMEOUT,
        total=_count_connections(settings),
        per_client=PER_CLIENT,
        client_of=client_of,
        is_trusted=trusted_addresses(settings.trusted_proxies),
    )
    return Connections(limits)
