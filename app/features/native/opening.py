"""Builds an upstream that speaks the native Handle protocol from the settings: `hdl:` or `hdl://host:port`."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

from app import __version__
from app.assembly.settings import Settings
from app.errors import ConfigurationError
from app.features.feature import require_libraries
from app.features.native.bootstrap import MAX_BOOTSTRAP_BYTES, read_bootstrap
from app.features.native.cached_records import CachedRecords
from app.features.native.direct import DirectLimits, DirectServer
from app.features.native.directory_limits import LOOKUP_TIMEOUT
from app.features.native.directory_opening import open_directory
from app.features.native.exchange import Clocks, ExchangeObserver, ServiceClient, TransportProtocol
from app.features.native.feature import FEATURE, FROM_ROOT
from app.features.native.health import ServerHealth
from app.features.native.referral import HandleService, Question
from app.features.native.root_file import RootFile, root_file_path
from app.features.native.service_records import RecordStore
from app.features.native.source import Finder, NativeSource
from app.features.native.transport.base import Transport
from app.features.native.transport.egress import Egress
from app.features.native.transport.http import HttpAnswer
from app.features.native.transport.stream import ConnectionPool
from app.features.native.transport.tcp import TcpTransport
from app.features.native.transport.tunnel import TunnelTransport
from app.features.native.transport.udp import UdpTransport
from app.features.native.wire.envelope import ENVELOPE_BYTES
from app.features.native.wire.site_value import ServiceSite
from app.resolver.source import SourceContext
from app.upstream.client import identify
from app.upstream.source import CONTROL_NAME

log = logging.getLogger(__name__)

#: The port of handle servers (IANA: hdl-srv).
_PORT: Final = 2641


def open_source(settings: Settings, url: str, context: SourceContext) -> NativeSource:
    """The upstream that a URL names, with its lookups in the cache. Raises ConfigurationError."""
    return open_native(
        settings,
        url,
        may_ask_again=context.budget.admit_retry,
        admit_query=partial(context.budget.admit_lookup, LOOKUP_TIMEOUT),
        observer=context.observer,
        store=CachedRecords(context.cache, context.policy, context.clock),
    )


def open_native(
    settings: Settings,
    url: str,
    *,
    may_ask_again: Callable[[], Awaitable[bool]],
    admit_query: Callable[[], Awaitable[None]],
    observer: ExchangeObserver | None = None,
    only: TransportProtocol | None = None,
    store: RecordStore | None = None,
) -> NativeSource:
    """The source that a URL names, by `only` one transport if it is set. Raises ConfigurationError.

    `may_ask_again` is awaited before a message is repeated, and `admit_query` before one of a lookup. `store` is the
    cache, which keeps the records of prefixes and of service handles.
    """
    exchange = _open_exchange(settings, url, may_ask_again, observer, only)
    return NativeSource(
        _open_directory(settings, exchange, admit_query, store)
        if url == FROM_ROOT
        else _open_server(settings, url, exchange, may_ask_again),
        exchange,
        total_timeout=settings.upstream_timeout,
        max_answer_bytes=settings.upstream_max_answer_bytes,
        verification=settings.upstream_verify,
    )


def _open_exchange(
    settings: Settings,
    url: str,
    may_ask_again: Callable[[], Awaitable[bool]],
    observer: ExchangeObserver | None,
    only: TransportProtocol | None,
) -> ServiceClient:
    require_libraries(FEATURE)
    # Before the first answer: the import takes longer than an answer.
    import_module("app.features.native.signature")
    transports = _open_transports(settings, may_ask_again)
    return ServiceClient(
        transports if only is None else {only: transports[only]},
        ServerHealth(),
        clocks=Clocks(time.time, time.monotonic),
        may_ask_again=may_ask_again,
        # The operator names a server. Everything that the root leads to comes from the network.
        private_servers=settings.upstream_private_servers or url != FROM_ROOT,
        observer=observer,
    )


def list_root_interfaces(settings: Settings) -> list[ServiceSite]:
    """Each interface of each server of the root, as a site that has nothing else. Raises ConfigurationError."""
    root = read_root(settings)
    return [
        replace(site, servers=(replace(server, interfaces=(interface,)),))
        for site in (root.sites if root else ())
        for server in site.servers
        for interface in server.interfaces
    ]


async def probe_interface(settings: Settings, site: ServiceSite, may_ask_again: Callable[[], Awaitable[bool]]) -> None:
    """Query the only interface of a site of the root. Any answer shows that it works. Raises CouldNotVerify."""
    exchange = _open_exchange(settings, FROM_ROOT, may_ask_again, None, None)
    try:
        await exchange(HandleService((site,), is_verified=False), Question(CONTROL_NAME.text.encode()))
    finally:
        await exchange.aclose()


def _open_directory(
    settings: Settings, exchange: ServiceClient, admit_query: Callable[[], Awaitable[None]], store: RecordStore | None
) -> Finder:
    root = _read_kept_root(settings)
    if root is None:
        raise ConfigurationError(f"upstream_url = {FROM_ROOT!r} needs upstream_bootstrap, a file with the root's sites")
    return open_directory(settings, root, exchange, admit_query, store)


def _open_server(
    settings: Settings, url: str, exchange: ServiceClient, may_ask_again: Callable[[], Awaitable[bool]]
) -> Finder:
    root, parts = _read_kept_root(settings), urlsplit(url)
    return DirectServer(
        parts.hostname or "",
        parts.port or _PORT,
        exchange,
        exchange.read_site,
        known=() if root is None else root.service.sites,
        limits=DirectLimits(timeout=settings.upstream_timeout),
        clock=time.monotonic,
        may_ask_again=may_ask_again,
        report=lambda site: _report_site(url, site),
    )


def _read_kept_root(settings: Settings) -> RootFile | None:
    root = read_root(settings)
    return None if root is None else RootFile(root_file_path(settings.store_url), root)


def read_root(settings: Settings) -> HandleService | None:
    """The root's sites in the bootstrap file. None without a file. Raises ConfigurationError."""
    path = settings.upstream_bootstrap
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return read_bootstrap(file.read(MAX_BOOTSTRAP_BYTES + 1))
    except OSError as error:
        raise ConfigurationError(f"upstream_bootstrap: {path} cannot be read: {error.strerror}") from error
    except ConfigurationError as error:
        remedy = "get the handle API's answer about 0.NA/0.NA by curl; see docs/native.md"
        raise ConfigurationError(f"upstream_bootstrap: {path}: {error.message}; {remedy}") from error


def _report_site(url: str, site: ServiceSite) -> None:
    if len(site.servers) > 1:
        log.warning(
            "%s is one of %d servers of its site, and has only a part of the names; set upstream_url to hdl: to query "
            "all of them",
            url,
            len(site.servers),
        )


def _open_transports(
    settings: Settings, may_ask_again: Callable[[], Awaitable[bool]]
) -> dict[TransportProtocol, Transport]:
    most, connect = settings.upstream_max_answer_bytes, settings.upstream_connect_timeout
    messages = ConnectionPool[bytes](may_ask_again=may_ask_again)
    requests = ConnectionPool[HttpAnswer](may_ask_again=may_ask_again)
    tunnel = TunnelTransport(
        Egress(connect_timeout=connect, max_bytes=most + ENVELOPE_BYTES),
        requests,
        headers=identify(f"doi-proxy/{__version__}", settings.upstream_contact),
        max_bytes=most,
        clock=time.time,
    )
    return {
        TransportProtocol.UDP: UdpTransport(max_bytes=most),
        TransportProtocol.TCP: TcpTransport(messages, connect_timeout=connect, max_bytes=most),
        TransportProtocol.HTTP: tunnel,
        TransportProtocol.HTTPS: tunnel,
    }
