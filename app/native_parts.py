"""Builds an upstream that speaks the native Handle protocol from the settings: `hdl:` or `hdl://host:port`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from app import __version__
from app.directory_parts import open_directory
from app.errors import ConfigurationError
from app.root_file import RootFile, root_file_path
from app.settings import Settings
from app.upstream.client import identify
from app.upstream.native.bootstrap import MAX_BOOTSTRAP_BYTES, read_bootstrap
from app.upstream.native.direct import DirectServer
from app.upstream.native.exchange import Clocks, Exchange, ExchangeObserver, TransportProtocol
from app.upstream.native.health import Health, HealthLimits
from app.upstream.native.referral import Service
from app.upstream.native.service_records import RecordStore
from app.upstream.native.source import Finder, NativeSource
from app.upstream.native.transport.base import Transport
from app.upstream.native.transport.engines import Engines
from app.upstream.native.transport.tcp import TcpTransport
from app.upstream.native.transport.tunnel import TunnelTransport
from app.upstream.native.transport.udp import UdpTransport

#: The setting that means: every handle server, from the root.
FROM_ROOT: Final = "hdl:"
#: The port of handle servers (IANA: hdl-srv).
_PORT: Final = 2641


def is_native(url: str) -> bool:
    """Whether a URL of the settings names handle servers."""
    return url.startswith(FROM_ROOT)


def open_native(
    settings: Settings,
    url: str,
    *,
    may_ask_again: Callable[[], Awaitable[bool]],
    observer: ExchangeObserver | None = None,
    only: TransportProtocol | None = None,
    store: RecordStore | None = None,
) -> NativeSource:
    """The source that a URL names, by `only` one transport if it is set. Raises ConfigurationError.

    `store` is the cache, which keeps the records of prefixes and of service handles.
    """
    transports = _open_transports(settings)
    exchange = Exchange(
        transports if only is None else {only: transports[only]},
        Health(_health_limits(settings)),
        clocks=Clocks(time.time, time.monotonic),
        may_ask_again=may_ask_again,
        # The operator names a server. Everything that the root leads to comes from the network.
        private_servers=settings.upstream_private_servers or url != FROM_ROOT,
        head_start=settings.native_head_start,
        max_attempts=settings.native_max_attempts,
        observer=observer,
    )
    return NativeSource(
        _open_finder(settings, url, exchange, store),
        exchange,
        total_timeout=settings.upstream_timeout,
        max_answer_bytes=settings.upstream_max_answer_bytes,
        verification=settings.upstream_verify,
    )


def _open_finder(settings: Settings, url: str, exchange: Exchange, store: RecordStore | None) -> Finder:
    root = read_root(settings)
    kept = None if root is None else RootFile(root_file_path(settings.store_url), root)
    if url != FROM_ROOT:
        parts = urlsplit(url)
        sites = () if kept is None else kept.service.sites
        return DirectServer(parts.hostname or "", parts.port or _PORT, exchange, known=sites, clock=time.monotonic)
    if kept is None:
        raise ConfigurationError(f"upstream_url = {FROM_ROOT!r} needs upstream_bootstrap, a file with the root's sites")
    return open_directory(settings, kept, exchange, store)


def _health_limits(settings: Settings) -> HealthLimits:
    return HealthLimits(
        first_pause=settings.native_pause_first,
        longest_pause=settings.native_pause_max,
        busy_queries=settings.native_busy_queries,
        entries=settings.native_max_servers,
    )


def read_root(settings: Settings) -> Service | None:
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


def _open_transports(settings: Settings) -> dict[TransportProtocol, Transport]:
    most, connect = settings.upstream_max_answer_bytes, settings.upstream_connect_timeout
    tunnel = TunnelTransport(
        Engines(connect_timeout=connect, read_timeout=settings.upstream_read_timeout),
        headers=identify(f"doi-proxy/{__version__}", settings.upstream_contact),
        connect_timeout=connect,
        read_timeout=settings.upstream_read_timeout,
        max_bytes=most,
        clock=time.time,
    )
    return {
        TransportProtocol.UDP: UdpTransport(
            first_wait=settings.native_udp_wait, tries=settings.native_udp_tries, max_bytes=most
        ),
        TransportProtocol.TCP: TcpTransport(
            connect_timeout=connect,
            max_bytes=most,
            max_idle=settings.native_idle_connections,
            idle_timeout=settings.native_idle_timeout,
        ),
        TransportProtocol.HTTP: tunnel,
        TransportProtocol.HTTPS: tunnel,
    }
