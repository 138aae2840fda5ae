"""Settings in, an ASGI application out: the web face on top of the parts that app/assembly.py puts together."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final, get_args
from urllib.parse import urlsplit

from app import __version__
from app.assembly import Observers, Parts, assemble
from app.gauges import expose
from app.lifecycle import Lifecycle
from app.lifespan import run_lifespan
from app.metrics.connections import ConnectionMetrics
from app.metrics.instruments import (
    AnswerMetrics,
    ClientMetrics,
    HttpMetrics,
    StateMetrics,
    StoreMetrics,
    UpstreamMetrics,
)
from app.metrics.workers import FOLDER_VARIABLE, Exposition
from app.program_log import begin_logging, set_log_level
from app.readiness import describe_readiness
from app.resolver.destination import Destinations
from app.resolver.prefix_chain import PrefixChain
from app.resolver.which_ra import WhichRa
from app.server.connections import ConnectionLimits, Connections, Reason
from app.server.descriptors import connections_that_fit
from app.server.proxies import trusted_addresses
from app.settings import Settings, load
from app.upstream.guarded import NOT_ASKED, OUTCOMES
from app.web.access_log import AccessLog, write_to_standard_output
from app.web.api import RestApi
from app.web.application import Application, Face
from app.web.client_network import ClientNetworks
from app.web.country import open_countries
from app.web.error_handlers import ErrorPages
from app.web.express_lane import ExpressLane
from app.web.limits import ClientLimits, Rate
from app.web.operations import create_operations, other_paths
from app.web.pages import Link, Pages
from app.web.record_headers import read_allowed
from app.web.redirect import Facts, Redirects
from app.web.route import Route

#: Static files by path: media type and file in app/web/static.
STATIC_FILES: Final = {
    "/static/style.css": ("text/css;charset=utf-8", "style.css"),
    "/static/favicon.svg": ("image/svg+xml", "favicon.svg"),
    "/favicon.ico": ("image/svg+xml", "favicon.svg"),
}


def create(
    settings: Settings,
    *,
    clock: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
    lifecycle: Lifecycle | None = None,
) -> Application:
    """The application of one process; `clock` tells seconds since the epoch. Raises ConfigurationError."""
    lifecycle = lifecycle or Lifecycle(settings)
    lifecycle.on_reload(set_log_level, "log_level")
    exposition = Exposition(_folder_of_counts(settings))
    http_metrics = HttpMetrics(exposition.registry, time.perf_counter, get_args(Route))
    state = StateMetrics(exposition.registry, __version__)
    client_metrics = ClientMetrics(exposition.registry)
    observers = _observers(exposition, client_metrics)
    exposition.flushers.append(http_metrics.flush)
    parts = assemble(settings, clock, observers)
    sub_path = urlsplit(settings.public_url or "").path.rstrip("/")
    pages = Pages(base_url_hint=settings.public_url or "", product_version=__version__, contact=settings.web_contact)
    link = Link(base=sub_path)
    errors = ErrorPages(pages=pages, link=link)
    access_log = _access_log(settings, clock)
    limits = _limits(settings, clock, client_metrics)
    lifecycle.on_reload(lambda _: limits.reload())
    express = None if limits.is_active else _express_lane(parts, clock, http_metrics, access_log, sub_path)
    api = RestApi(resolver=parts.resolver, limits=limits, clock=clock, max_age=settings.web_max_age)
    prefixes = PrefixChain(observers.resolver)
    redirects = Redirects(
        resolver=parts.resolver,
        limits=limits,
        prefixes=prefixes,
        destinations=Destinations(parts.resolver, prefixes, resolves=settings.resolve),
        api=api,
        pages=pages,
        link=link,
        facts=_facts(settings, clock, chance),
        max_age=settings.web_max_age,
    )
    which_ra = WhichRa(parts.resolver, prefixes, parts.upstream.agencies)
    connections = _connections(settings, exposition)
    lifecycle.on_reload(
        lambda new: connections.set_trusted_proxies(trusted_addresses(new.trusted_proxies)), "trusted_proxies"
    )
    operations = create_operations(
        version=__version__,
        lifespan=lambda app: run_lifespan(parts, clock, state, exposition),
        readiness=lambda: describe_readiness(parts, lifecycle),
        exposed=lambda accept: expose(parts, state, exposition, accept),
        docs_page=lambda schema: pages.docs(link, schema),
        files=_static_files(),
        server_url=settings.public_url or "/",
    )
    return Application(
        Face(redirects=redirects, which_ra=which_ra, api=api, errors=errors, pages=pages, link=link),
        operations=operations,
        other_paths=other_paths(operations),
        limits=limits,
        public_url=settings.public_url.rstrip("/") if settings.public_url else None,
        sub_path=sub_path.encode(),
        express=express,
        http_metrics=http_metrics,
        access_log=access_log,
        connections=connections,
    )


def _limits(settings: Settings, clock: Callable[[], float], counts: ClientMetrics) -> ClientLimits:
    return ClientLimits(
        networks=ClientNetworks(settings.client_ipv4_prefix, settings.client_ipv6_prefix),
        requests=Rate(settings.client_rate, settings.client_burst) if settings.client_rate else None,
        bypasses=Rate(settings.bypass_rate, settings.bypass_burst),
        allow_file=settings.client_allow_file,
        deny_file=settings.client_deny_file,
        clock=clock,
        refused=counts.refused,
    )


def _connections(settings: Settings, exposition: Exposition) -> Connections:
    """What the server keeps about the connections of this process."""
    connections = Connections(
        ConnectionLimits(
            head_timeout=settings.client_head_timeout,
            body_timeout=settings.client_body_timeout,
            write_timeout=settings.client_write_timeout,
            idle_timeout=settings.client_idle_timeout,
            total=settings.max_connections or connections_that_fit(2 * settings.upstream_max_concurrency),
            per_client=settings.client_max_connections,
            client_of=ClientNetworks(settings.client_ipv4_prefix, settings.client_ipv6_prefix).client_of,
            is_trusted=trusted_addresses(settings.trusted_proxies),
        )
    )
    reasons = [reason.value for reason in Reason]
    metrics = ConnectionMetrics(exposition.registry, reasons)
    exposition.flushers.append(
        lambda: metrics.report(
            len(connections), {reason.value: number for reason, number in connections.closed.items()}
        )
    )
    return connections


def _facts(settings: Settings, clock: Callable[[], float], chance: Callable[[], float]) -> Facts:
    return Facts(
        clock=clock,
        chance=chance,
        country=open_countries(settings.country_database),
        record_headers=read_allowed(settings.record_headers),
    )


def _folder_of_counts(settings: Settings) -> Path | None:
    """Where the workers of this machine count, None for a process alone."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named and settings.workers > 1 else None


def _observers(exposition: Exposition, clients: ClientMetrics) -> Observers:
    answers = AnswerMetrics(exposition.registry, clients.refused)
    exposition.flushers.append(answers.flush)
    upstream = UpstreamMetrics(exposition.registry, OUTCOMES, NOT_ASKED)
    return Observers(answers, upstream.observer, StoreMetrics(exposition.registry))


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


def _express_lane(
    parts: Parts, clock: Callable[[], float], counts: HttpMetrics, access_log: AccessLog | None, sub_path: str
) -> ExpressLane | None:
    if not parts.settings.express_lane:
        return None
    return ExpressLane(
        parts.resolver,
        clock,
        counts.count,
        timer=counts.timer,
        access_log=access_log,
        sub_path=sub_path.encode(),
        max_bytes=parts.settings.express_memory_bytes,
    )


def create_from_environment() -> Application:
    """The application of a worker process, which was started with its settings in the environment."""
    settings = load({}, os.environ)
    begin_logging(settings)
    return create(settings)


def check(settings: Settings) -> None:
    """Find out before workers are started whether these settings can be used. Raises ConfigurationError."""

    async def open_and_close() -> None:
        open_countries(settings.country_database)
        read_allowed(settings.record_headers)
        parts = assemble(settings)
        await parts.upstream.source.aclose()
        await parts.cache.close()

    asyncio.run(open_and_close())


def _static_files() -> dict[str, tuple[str, bytes]]:
    folder = resources.files("app.web").joinpath("static")
    return {path: (kind, folder.joinpath(file).read_bytes()) for path, (kind, file) in STATIC_FILES.items()}
