"""Builds the ASGI application from the settings: metrics, parts, limits, then the web face."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from app import __version__
from app.assembly.lifecycle import Lifecycle
from app.assembly.names import (
    build_express_lane,
    build_face,
    build_pages,
    read_branding,
    read_facts,
    read_public_url,
    read_sub_path,
)
from app.assembly.operations import add_batches, build_admin, build_admin_application, build_operations
from app.assembly.program_log import set_log_level
from app.assembly.resolving import Observers, assemble
from app.assembly.settings import Settings
from app.cache.tiered import TieredStore
from app.features.access_log.access_log import AccessLog, write_to_standard_output
from app.features.admin.gate import ADMIN_PATH
from app.features.compression.compression import Compression
from app.features.country.country import open_countries
from app.features.library.agency import agency_finder
from app.features.library.file import LibraryFile
from app.features.library.library import FindAgency, Library
from app.features.library.preferences import Preferences
from app.features.limits.counts import ClientCounts
from app.features.limits.limits import ClientLimits
from app.features.limits.opening import build_denials, build_limits, open_connections
from app.features.lists.http import RESOLVE_PATH
from app.features.lists.opening import build_suggested_names
from app.features.local_records.files import LocalFiles
from app.features.metrics.history import SharedHistory
from app.features.metrics.instruments import (
    AnswerMetrics,
    BatchMetrics,
    ClientMetrics,
    FollowerMetrics,
    LibraryMetrics,
    StoreMetrics,
    UpstreamMetrics,
)
from app.features.metrics.requests import HttpMetrics
from app.features.metrics.state import StateMetrics
from app.features.metrics.workers import FOLDER_VARIABLE, Exposition
from app.features.parse.http import PARSE_PATH
from app.features.status.models import STATUS_PATH
from app.features.status.reader import StatusReader
from app.features.tracing.opening import Export, TracedQueries, Traces, check_extra, open_traces
from app.features.tracing.stage import TracedRequests
from app.resolver.prefix_chain import PrefixChain
from app.server.connections import Connections
from app.server.proxies import trusted_addresses
from app.upstream.guard import OUTCOMES, UNSENT_OUTCOMES, UpstreamObserver
from app.upstream.loop import read_loop_id
from app.upstream.source import Source
from app.web.application import Application, Operations, Site
from app.web.client_network import ClientNetworks
from app.web.conditions import Conditions
from app.web.fastapi_errors import allowed_methods
from app.web.operations import find_paths
from app.web.pages import Pages
from app.web.record_headers import read_allowed
from app.web.route import ROUTES
from app.web.stage import Stage, Stages, fold_stages


@dataclass(frozen=True, slots=True)
class SuppliedParts:
    """Parts that the caller of `create` supplies. The settings decide about those that are None."""

    cache: TieredStore | None = None
    #: Returns the source that the resolver queries, given the upstream.
    wrap_source: Callable[[Source], Source] | None = None
    access_log: AccessLog | None = None


NO_PARTS: Final = SuppliedParts()


def create(
    settings: Settings,
    *,
    parts: SuppliedParts = NO_PARTS,
    clock: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
    lifecycle: Lifecycle | None = None,
) -> Application:
    """The application of one process. `clock` returns seconds since the epoch. Raises ConfigurationError."""
    lifecycle = lifecycle or Lifecycle(settings)
    traces = _open_traces(settings)
    instruments = _open_instruments(settings, traces)
    assembled = assemble(settings, clock, instruments.observers, cache=parts.cache, wrap_source=parts.wrap_source)
    limits = build_limits(settings, clock, instruments.clients)
    connections = open_connections(settings, instruments.exposition)
    prefixes = PrefixChain(instruments.observers.resolver)
    networks = ClientNetworks()
    clients = ClientCounts(networks.client_of, clock)
    compression = Compression()
    suggested_names = build_suggested_names(settings, assembled.resolver)
    # The library reads the conditions of requests, which do not depend on it.
    agency = agency_finder(assembled.resolver, prefixes, Conditions(networks, Stages(), settings.cache_reload_age))
    library, library_file = _open_library(settings, instruments.library, agency)
    log = parts.access_log or _access_log(settings, clock)
    outer: list[Stage] = [] if log is None else [log]
    if traces is not None:
        outer.append(TracedRequests(traces))
    stages = fold_stages([*outer, limits, library, compression, instruments.http, clients])
    conditions = Conditions(networks, stages, settings.cache_reload_age)
    face = build_face(
        assembled, conditions, read_facts(settings, clock, chance), prefixes, stages, sections=(suggested_names,)
    )
    face.pages.has_preferences = lambda: library.makes_detours
    preferences = Preferences(
        library=library,
        pages=face.pages,
        errors=face.errors,
        link=face.link,
        public_url=read_public_url(settings),
    )
    _follow_reloads(lifecycle, limits, connections, face.pages, traces)
    _follow_file_reloads(lifecycle, library_file, assembled.local_files)
    express = build_express_lane(assembled, stages, clock)
    if express is not None:
        library.followers.append(express.clear)
    denials = build_denials(_shared_file(settings, "denials.json"), clock, limits)
    state, exposition = instruments.state, instruments.exposition
    history = SharedHistory(_shared_file(settings, "history.json"))
    status = StatusReader(assembled, lifecycle, library_file, state, exposition, history, clients, clock)
    record_page = instruments.followers.record
    admin = build_admin(assembled, face, lifecycle, denials, status, clock, record_page)
    operations = build_operations(
        assembled,
        face,
        lifecycle,
        clock,
        library_file=library_file,
        preferences=preferences,
        state=state,
        exposition=exposition,
        refreshes=(denials.refresh, status.record, clients.refresh),
        status=status,
        traces=traces,
        admin=admin,
    )
    add_batches(
        operations,
        assembled,
        networks,
        clock,
        prefixes=prefixes,
        count=instruments.batches.count,
        count_refusal=instruments.clients.refused,
    )
    own_api = {PARSE_PATH.encode(): "parse", RESOLVE_PATH.encode(): "batch"}
    paths = find_paths(operations, own_api)
    gates = () if admin is None or settings.admin_listen is not None else (admin,)
    paths = replace(paths, private=frozenset({STATUS_PATH.encode()}))
    if gates:
        paths = replace(paths, gated=gates[0].paths, gated_below=(ADMIN_PATH,))
    application = Application(
        face,
        Operations(operations, paths, lambda path: allowed_methods(operations, path.decode("latin-1")), gates),
        Site(read_public_url(settings), read_sub_path(settings).encode(), read_loop_id(), time.perf_counter),
        stages,
        express,
        connections,
    )
    application.second = build_admin_application(settings, admin, stages, connections)
    return application


@dataclass(frozen=True, slots=True)
class _Instruments:
    """The metrics of one process."""

    exposition: Exposition
    http: HttpMetrics
    state: StateMetrics
    clients: ClientMetrics
    library: LibraryMetrics
    batches: BatchMetrics
    followers: FollowerMetrics
    observers: Observers


def _open_traces(settings: Settings) -> Traces | None:
    if settings.otel_endpoint is None:
        return None
    export = Export(settings.otel_endpoint, settings.otel_share)
    return open_traces(export, __version__, trusted_addresses(settings.trusted_proxies), time.time_ns)


def _observe_upstreams(metrics: UpstreamMetrics, traces: Traces | None) -> Callable[[int], UpstreamObserver]:
    """The observer of each upstream by its number."""
    if traces is None:
        return metrics.observer
    return lambda number: TracedQueries(metrics.observer(number), traces, number)


def _open_instruments(settings: Settings, traces: Traces | None) -> _Instruments:
    exposition = Exposition(_folder_of_counts(settings))
    registry = exposition.registry
    http = HttpMetrics(registry, (*ROUTES, "parse", "batch"))
    clients = ClientMetrics(registry)
    answers = AnswerMetrics(registry, clients.refused)
    exposition.flushers += [http.flush, answers.flush]
    upstream = UpstreamMetrics(registry, OUTCOMES, UNSENT_OUTCOMES)
    queries = _observe_upstreams(upstream, traces)
    observers = Observers(answers, queries, StoreMetrics(registry), upstream.exchange_observer)
    state, library, batches = StateMetrics(registry, __version__), LibraryMetrics(registry), BatchMetrics(registry)
    return _Instruments(exposition, http, state, clients, library, batches, FollowerMetrics(registry), observers)


def _folder_of_counts(settings: Settings) -> Path | None:
    """Where the workers of this machine count, None for a process alone."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named and settings.workers > 1 else None


def _open_library(settings: Settings, metrics: LibraryMetrics, find_agency: FindAgency) -> tuple[Library, LibraryFile]:
    """The library with the rules of its file, and the file. Raises ConfigurationError."""
    library = Library(metrics.count, find_agency)
    file = LibraryFile(library.use)
    file.load(settings.library_rules)
    return library, file


def _follow_reloads(
    lifecycle: Lifecycle, limits: ClientLimits, connections: Connections, pages: Pages, traces: Traces | None
) -> None:
    """Apply a reload to the parts."""

    def trust(new: Settings) -> None:
        is_trusted = trusted_addresses(new.trusted_proxies)
        connections.set_trusted_proxies(is_trusted)
        if traces is not None:
            traces.trust(is_trusted)

    branding = (name for name in Settings.model_fields if name.startswith("branding_"))
    lifecycle.on_reload(set_log_level, "log_level")
    lifecycle.on_reload(lambda _: limits.reload())
    lifecycle.on_reload(trust, "trusted_proxies")
    lifecycle.on_reload(lambda new: pages.rebrand(read_branding(new)), *branding)


def _follow_file_reloads(lifecycle: Lifecycle, library_file: LibraryFile, local_files: LocalFiles | None) -> None:
    """Apply a reload to the files of library rules and of local records."""
    lifecycle.on_reload(lambda new: library_file.request_reload(new.library_rules), "library_rules")
    if local_files is not None:
        lifecycle.on_reload(local_files.request_reload)


def _shared_file(settings: Settings, name: str) -> Path | None:
    """A file that the workers of this machine share until the service ends, None for a process alone."""
    folder = _folder_of_counts(settings)
    return None if folder is None else folder / name


def _access_log(settings: Settings, clock: Callable[[], float]) -> AccessLog | None:
    if settings.access_log == "off":
        return None
    return AccessLog(
        form=settings.access_log,
        privacy_level=settings.privacy_level,
        clock=clock,
        timer=time.perf_counter,
        new_id=lambda: secrets.token_hex(8),
        write=write_to_standard_output,
    )


def check(settings: Settings) -> None:
    """Find out before workers are started whether these settings can be used. Raises ConfigurationError."""

    async def open_and_close() -> None:
        open_countries(settings.country_database)
        read_allowed(settings.record_headers)
        build_pages(settings)
        if settings.otel_endpoint is not None:
            check_extra()
        LibraryFile(lambda _: None).load(settings.library_rules)
        parts = assemble(settings)
        await parts.upstream.source.aclose()
        await parts.cache.close()

    asyncio.run(open_and_close())
