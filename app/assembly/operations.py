"""Puts together the other paths: health, metrics, status, documentation, the admin API, parsing and lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_network
from math import ceil
from typing import Final
from urllib.parse import urlsplit

from fastapi import FastAPI

from app import __version__
from app.assembly.lifecycle import Lifecycle
from app.assembly.lifespan import run_lifespan
from app.assembly.names import read_public_url
from app.assembly.resolving import Parts
from app.assembly.settings import Settings
from app.errors import ConfigurationError, RateExceeded
from app.features.admin.actions import build_actions
from app.features.admin.application import AdminApplication
from app.features.admin.gate import WRONG_TOKEN_RATE, WRONG_TOKENS, AdminGate, AdminTokens
from app.features.admin.http import create_admin
from app.features.library.file import LibraryFile
from app.features.library.preferences import Preferences
from app.features.limits.buckets import ClientBuckets
from app.features.limits.denials import Denials
from app.features.limits.network_list import NetworkList
from app.features.lists.answer import BatchService
from app.features.lists.body import ListLimits
from app.features.lists.http import add_resolve
from app.features.lists.open_lists import OpenBatches
from app.features.lists.opening import build_batches
from app.features.lists.verdict import Verdict
from app.features.metrics.gauges import expose
from app.features.metrics.http import add_metrics
from app.features.metrics.state import StateMetrics
from app.features.metrics.workers import Exposition
from app.features.openapi.http import add_openapi
from app.features.parse.http import PARSE_LIMITS, add_parse
from app.features.setup.probe import Probe, add_probe
from app.features.status.health_http import add_health
from app.features.status.models import STATUS_PATH
from app.features.status.page import add_status
from app.features.status.reader import StatusReader
from app.features.status.readiness import describe_readiness
from app.features.tracing.opening import Traces
from app.resolver.prefix_chain import PrefixChain
from app.web.application import Face
from app.web.client_network import ClientNetworks
from app.web.operations import OperationPages, create_operations, no_file
from app.web.privacy import PrivacyFacts
from app.web.stage import Stages

_SECONDS_A_DAY: Final = 86_400
#: One client can have this part of the lists that are answered at a time.
_CLIENT_SHARE: Final = 4
#: The settings of the admin API that a reload changes.
_TOKENS: Final = ("admin_token", "admin_replica_token")


def read_privacy(settings: Settings, urls: Iterable[str]) -> PrivacyFacts:
    """The settings that decide what is stored. `urls` are those of the upstreams that have been opened."""
    scheme, networks = settings.store_url.partition(":")[0], ClientNetworks()
    return PrivacyFacts(
        log_level=None if settings.access_log == "off" else settings.privacy_level,
        store="memory" if scheme == "memory" else "file" if scheme == "sqlite" else "server",
        grace_days=ceil(settings.cache_grace / _SECONDS_A_DAY),
        # Only the hosts, because a URL may contain a password.
        hosts=tuple(dict.fromkeys(urlsplit(url).hostname or url for url in urls)),
        ipv4_prefix=networks.ipv4_prefix,
        ipv6_prefix=networks.ipv6_prefix,
        has_countries=settings.country_database is not None,
    )


def build_admin(
    parts: Parts,
    face: Face,
    lifecycle: Lifecycle,
    denials: Denials,
    status: StatusReader,
    clock: Callable[[], float],
    record_page: Callable[[str, int], None],
) -> AdminGate | None:
    """The admin API, if there is a token. Behind the same gate is `/status`, if only operators may see it."""
    settings = parts.settings
    if not settings.has_admin_api:
        lifecycle.on_reload(_refuse_first_token, *_TOKENS)
        return None
    admin = create_admin(__version__, build_actions(parts, lifecycle, denials, clock, record_page), face.link.base)
    paths = frozenset[bytes]()
    if settings.status_access == "admin":
        paths = frozenset({STATUS_PATH.encode()})
        add_status(admin, status.read, lambda address: True, face.pages, face.link)
    gate = AdminGate(
        admin,
        tokens=_read_tokens(settings),
        attempts=ClientBuckets(WRONG_TOKENS, WRONG_TOKEN_RATE, RateExceeded, clock),
        client_of=ClientNetworks().client_of,
        base=face.link.base,
        paths=paths,
        routes=admin.routes,
    )
    lifecycle.on_reload(lambda new: gate.set_tokens(_read_tokens(new)), *_TOKENS)
    return gate


def _read_tokens(settings: Settings) -> AdminTokens:
    return AdminTokens(settings.admin_token, settings.admin_replica_token)


def _refuse_first_token(new: Settings) -> None:
    """A process that began without the admin API does not open it later."""
    if new.has_admin_api:
        raise ConfigurationError("the admin API has its first token; restart the service to open the API")


def build_admin_application(
    settings: Settings, gate: AdminGate | None, stages: Stages, connections: object
) -> AdminApplication | None:
    """The admin API on its own address, if it has one."""
    if gate is None or settings.admin_listen is None:
        return None
    return AdminApplication(gate, stages, timer=time.perf_counter, connections=connections)


def build_operations(
    parts: Parts,
    face: Face,
    lifecycle: Lifecycle,
    clock: Callable[[], float],
    *,
    library_file: LibraryFile,
    preferences: Preferences,
    state: StateMetrics,
    exposition: Exposition,
    refreshes: Sequence[Callable[[], None]],
    status: StatusReader,
    traces: Traces | None,
    admin: AdminGate | None,
) -> FastAPI:
    """The few other paths: health, metrics, status, API documentation, static files."""
    settings = parts.settings
    pages = OperationPages(face.pages, face.link, lambda: read_privacy(settings, parts.upstream.guards))
    admin_routes = () if admin is None or settings.admin_listen is not None else admin.routes

    def add_features(app: FastAPI) -> None:
        add_health(app, lambda: describe_readiness(parts, lifecycle, library_file))
        add_metrics(app, lambda accept: expose(parts, state, exposition, accept))
        add_openapi(app, pages, admin_routes, server_url=settings.public_url or "/")
        preferences.add_to(app)
        if settings.probe_key:
            add_probe(app, Probe(settings.probe_key, clock), lambda request: no_file(pages, request))
        add_parse(app, read_public_url(settings), PARSE_LIMITS)
        if settings.status_access != "admin":
            add_status(app, status.read, _read_status_access(settings), face.pages, face.link)

    return create_operations(
        version=__version__,
        lifespan=lambda app: run_lifespan(parts, clock, library_file, state, exposition, refreshes, traces),
        face=pages,
        add_routes=(add_features,),
    )


def add_batches(
    operations: FastAPI,
    parts: Parts,
    networks: ClientNetworks,
    clock: Callable[[], float],
    *,
    prefixes: PrefixChain,
    count: Callable[[Verdict], None],
    count_refusal: Callable[[str], None],
) -> None:
    """Add `POST /api/resolve`. `count` gets the verdict of each row, `count_refusal` the name of a limit."""
    settings = parts.settings
    service = BatchService(
        build_batches(parts, clock, prefixes=prefixes, count=count),
        OpenBatches(settings.batch_max_open, max(1, settings.batch_max_open // _CLIENT_SHARE), count_refusal),
        ListLimits(names=settings.batch_max_names),
    )
    add_resolve(operations, service, networks.client_of)


def _read_status_access(settings: Settings) -> Callable[[str], bool]:
    """Whether the client with an address may see `/status`."""
    networks = NetworkList(ip_network(network) for network in settings.status_networks.split())
    return lambda address: settings.status_access == "public" or address in networks
