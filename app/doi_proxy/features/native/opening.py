"""Builds an upstream that speaks the native Handle protocol from the settings: `hdl:` or `hdl://host:port`."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpx

from doi_proxy.errors import ConfigurationError, CouldNotVerify
from doi_proxy.features.feature import SourceContext, require_libraries
from doi_proxy.features.native.direct import DirectLimits, DirectServer, NamedServer
from doi_proxy.features.native.directory_log import DirectoryLog
from doi_proxy.features.native.errors import translated_errors
from doi_proxy.features.native.feature import FROM_ROOT, Native, is_from_root
from doi_proxy.features.native.root_file import RootFile, root_file_path
from doi_proxy.features.native.service_records import ServiceRecords
from doi_proxy.features.native.source import NativeSource, ProbedFinder
from doi_proxy.networks.allowed_addresses import Address, AllowedAddresses, read_inside
from doi_proxy.system.files import read_regular
from doi_proxy.system.options import Settings
from doi_proxy.system.version import read_version
from doi_proxy.upstream.breaker import Breaker
from doi_proxy.upstream.budget import SLOW_PREFIX_SECONDS, Budget
from doi_proxy.upstream.client import CONNECT_TIMEOUT, MAX_ANSWER_BYTES, identify
from doi_proxy.upstream.engine import read_egress_proxy
from doi_proxy.upstream.places import SLOW_AFTER
from doi_proxy.upstream.source import CONTROL_NAME
from handle_protocol.client import PORT, NamedSites, open_transports
from handle_protocol.directory import Directory
from handle_protocol.errors import InvalidSite, QueryNotAdmitted
from handle_protocol.exchange import Clocks, QueryLimits, ServiceClient
from handle_protocol.health import HealthLimits, ServerHealth
from handle_protocol.json_sites import (
    MAX_BOOTSTRAP_BYTES,
    read_bootstrap,
    read_bootstrap_keys,
    read_site_file,
)
from handle_protocol.lookups import LOOKUP_TIMEOUT, DirectoryLimits, Lookups
from handle_protocol.referral import HandleService, Question
from handle_protocol.site_bundle import unpack_bundle
from handle_protocol.transport.base import Transport
from handle_protocol.transport.egress import Egress
from handle_protocol.wire.message import ENVELOPE_BYTES
from handle_protocol.wire.site_value import ServiceSite, TransportProtocol

log = logging.getLogger(__name__)
T = TypeVar("T")

#: The highest privacy level at which a log may contain names.
_NAMES_IN_LOG: Final = 2


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """What the messages of lookups and repetitions cost."""

    #: Is awaited before a message is repeated.
    may_ask_again: Callable[[], Awaitable[bool]]
    #: Is awaited before a message of a lookup.
    admit_query: Callable[[], Awaitable[None]]

    async def admit_lookup(self) -> None:
        """Wait for the token of a message of a lookup. Raises QueryNotAdmitted."""
        try:
            await self.admit_query()
        except CouldNotVerify as error:
            raise QueryNotAdmitted from error

    @classmethod
    def of(cls, budget: Budget) -> QueryTokens:
        """The tokens of the budget of upstream queries."""
        return cls(budget.admit_retry, partial(budget.admit_lookup, LOOKUP_TIMEOUT))


def open_source(settings: Settings, url: str, context: SourceContext) -> NativeSource:
    """The upstream that a URL names, with its lookups in the cache. Raises ConfigurationError."""
    return open_native(settings, url, QueryTokens.of(context.budget), context=context)


def open_native(
    settings: Settings,
    url: str,
    tokens: QueryTokens,
    *,
    only: TransportProtocol | None = None,
    context: SourceContext | None = None,
) -> NativeSource:
    """The source that a URL names, by `only` one transport if it is set. Raises ConfigurationError.

    The cache of `context` keeps the records of prefixes and of service handles.
    """
    client = _open_client(settings, url, tokens.may_ask_again, context, only)
    finder: ProbedFinder
    if is_from_root(url):
        finder = _open_directory(settings, client, tokens, context)
    elif url.startswith(f"{FROM_ROOT}//"):
        finder = _open_server(settings, url, client, tokens)
    else:
        finder = NamedSites(read_named_sites(url), client)
    return NativeSource(
        finder,
        client,
        total_timeout=settings.upstream_timeout,
        verification=settings.upstream_verify,
    )


def _open_client(
    settings: Settings,
    url: str,
    may_ask_again: Callable[[], Awaitable[bool]],
    context: SourceContext | None = None,
    only: TransportProtocol | None = None,
) -> ServiceClient:
    require_libraries(Native)
    # Before the first answer: the import takes longer than an answer.
    import_module("handle_protocol.key")
    transports = _open_transports(settings, may_ask_again)
    inside = read_inside(url)
    # The operator names a server. Everything that the root leads to comes from the network.
    allowed = AllowedAddresses(private=True, inside=inside)
    if is_from_root(url):
        allowed = AllowedAddresses(settings.upstream_private_servers, inside)
    return ServiceClient(
        transports if only is None else {only: transports[only]},
        ServerHealth(HealthLimits(slow_query=SLOW_AFTER, slow_server=SLOW_PREFIX_SECONDS)),
        QueryLimits(allowed),
        clocks=Clocks(time.time, time.monotonic),
        may_ask_again=may_ask_again,
        observer=context.observer if context else None,
        mark_slow=context.budget.mark_slow if context else None,
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


async def probe_interface(
    settings: Settings, url: str, site: ServiceSite, may_ask_again: Callable[[], Awaitable[bool]]
) -> None:
    """Query the only interface of a site of the root. Any answer shows that it works. Raises CouldNotVerify."""
    client = _open_client(settings, url, may_ask_again)
    try:
        with translated_errors():
            await client(HandleService((site,), is_verified=False), Question(CONTROL_NAME.text.encode()))
    finally:
        await client.aclose()


def _open_directory(
    settings: Settings, client: ServiceClient, tokens: QueryTokens, context: SourceContext | None
) -> Directory:
    root = _read_kept_root(settings)
    if root is None:
        raise ConfigurationError(f"upstream_url = {FROM_ROOT!r} needs upstream_bootstrap, a file with the root's sites")
    limits = DirectoryLimits(
        timeout=settings.upstream_timeout,
    )
    # The breaker of the whole upstream opens later, because the servers of known prefixes may work.
    breaker = Breaker(max(1, settings.upstream_breaker_failures // 2), settings.upstream_breaker_cooldown)
    clock = time.time if context is None else context.clock
    are_signed = settings.upstream_verify in ("lookups", "always")
    lookups = Lookups(client, tokens.admit_lookup, limits, clock, DirectoryLog(time.monotonic), breaker, are_signed)
    if context is None:
        return Directory(RootFile(None, root.service), lookups)
    return Directory(root, lookups, ServiceRecords(context.cache, context.policy, limits))


def _open_server(settings: Settings, url: str, client: ServiceClient, tokens: QueryTokens) -> DirectServer:
    root, parts = _read_kept_root(settings), urlsplit(url)
    limits = DirectLimits(timeout=settings.upstream_timeout)
    known = () if root is None else root.service.sites
    return DirectServer(
        NamedServer(parts.hostname or "", parts.port or PORT, limits, known),
        client,
        client.read_site,
        clock=time.monotonic,
        may_ask_again=tokens.may_ask_again,
        report=lambda site: _report_site(url, site),
    )


def read_named_sites(url: str) -> HandleService:
    """The sites in a file of the operator, at "hdl:/path" or "hdl:/path?OUTSIDE=INSIDE". Raises ConfigurationError."""
    path, inside = url.removeprefix(FROM_ROOT).partition("?")[0], read_inside(url)
    try:
        content = unpack_bundle(read_regular(Path(path), MAX_BOOTSTRAP_BYTES), MAX_BOOTSTRAP_BYTES)
        service = read_site_file(content)
        _require_addresses(service, inside)
        return service
    except OSError as error:
        raise ConfigurationError(f"{FROM_ROOT}{path} cannot be read: {error.strerror}") from error
    except (ConfigurationError, InvalidSite) as error:
        raise ConfigurationError(f"{FROM_ROOT}{path}: {error.message}; see docs/native.md") from error


def _require_addresses(service: HandleService, outside: Iterable[Address]) -> None:
    known = dict.fromkeys(server.ip for site in service.sites for server in site.servers)
    for address in outside:
        if address not in known:
            addresses = ", ".join(map(str, known))
            raise ConfigurationError(f"no server of the file is at {address}; its addresses are {addresses[:200]}")


def _read_kept_root(settings: Settings) -> RootFile | None:
    root = read_root(settings)
    return None if root is None else RootFile(root_file_path(settings.store_url), root)


def read_root(settings: Settings) -> HandleService | None:
    """The root's sites in the bootstrap file. None without a file. Raises ConfigurationError."""
    return _read_bootstrap_file(settings, read_bootstrap)


def read_root_keys(settings: Settings) -> tuple[bytes, ...] | None:
    """The keys of the bootstrap file, with which certificates begin. None without a file. Raises ConfigurationError."""
    return _read_bootstrap_file(settings, read_bootstrap_keys)


def _read_bootstrap_file(settings: Settings, parse: Callable[[bytes], T]) -> T | None:
    path = settings.upstream_bootstrap
    if path is None:
        return None
    try:
        return parse(read_regular(path, MAX_BOOTSTRAP_BYTES))
    except OSError as error:
        raise ConfigurationError(f"upstream_bootstrap: {path} cannot be read: {error.strerror}") from error
    except InvalidSite as error:
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
    egress = Egress(
        connect_timeout=CONNECT_TIMEOUT,
        max_bytes=MAX_ANSWER_BYTES + ENVELOPE_BYTES,
        find_proxy_url=find_proxy_url,
        trust_proxy=httpx.create_ssl_context,
    )
    return open_transports(
        may_ask_again=may_ask_again,
        egress=egress,
        connect_timeout=CONNECT_TIMEOUT,
        max_bytes=MAX_ANSWER_BYTES,
        headers=identify(f"doi-proxy/{read_version()}", settings.upstream_contact),
    )


def find_proxy_url(scheme: str, host: str) -> str | None:
    """The egress proxy for a host. Raises ValueError."""
    try:
        return read_egress_proxy(scheme, host)
    except ConfigurationError as error:
        raise ValueError(error.message) from error
