"""Builds an upstream that speaks the native Handle protocol from the settings: `hdl:` or `hdl://host:port`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from doi_proxy.errors import ConfigurationError, CouldNotVerify
from doi_proxy.features.feature import SourceContext, require_libraries
from doi_proxy.features.native.direct import DirectLimits, DirectServer, NamedServer, NativeSource, ProbedFinder
from doi_proxy.features.native.errors import NoResponsibleService, translated_errors
from doi_proxy.features.native.feature import FROM_ROOT, Native, is_from_root, is_native
from doi_proxy.features.native.root_file import DirectoryLog, RootFile, ServiceRecords, root_file_path
from doi_proxy.networks import Address, AllowedAddresses, read_inside
from doi_proxy.system.check import Finding, Inspection
from doi_proxy.system.files import read_regular
from doi_proxy.system.options import Settings, redact
from doi_proxy.system.version import read_version
from doi_proxy.upstream.budget import Budget
from doi_proxy.upstream.client import CONNECT_TIMEOUT, MAX_ANSWER_BYTES, identify, read_egress_proxy
from doi_proxy.upstream.guard import Breaker
from doi_proxy.upstream.source import CONTROL_NAME
from handle_protocol.client import PORT, NamedSites, open_transports
from handle_protocol.directory import Directory
from handle_protocol.errors import InvalidSite, QueryNotAdmitted
from handle_protocol.exchange import Clocks, QueryLimits, ServiceClient
from handle_protocol.json_sites import MAX_BOOTSTRAP_BYTES, read_bootstrap, read_site_file
from handle_protocol.referral import LOOKUP_TIMEOUT, DirectoryLimits, HandleService, Lookups, Question
from handle_protocol.site import ServerHealth, unpack_bundle
from handle_protocol.transport.stream import Transport
from handle_protocol.wire.site_value import ServiceSite, TransportProtocol

log = logging.getLogger(__name__)


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
    import_module("handle_protocol.signature")
    transports = _open_transports(settings, may_ask_again)
    inside = read_inside(url)
    # The operator names a server. Everything that the root leads to comes from the network.
    allowed = AllowedAddresses(private=True, inside=inside)
    if is_from_root(url):
        allowed = AllowedAddresses(settings.upstream_private_servers, inside)
    return ServiceClient(
        transports if only is None else {only: transports[only]},
        ServerHealth(),
        QueryLimits(allowed.find),
        clocks=Clocks(time.time, time.monotonic),
        may_ask_again=may_ask_again,
        observer=context.observer if context else None,
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
    path = settings.upstream_bootstrap
    if path is None:
        return None
    try:
        return read_bootstrap(read_regular(path, MAX_BOOTSTRAP_BYTES))
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
    return open_transports(
        may_ask_again=may_ask_again,
        connect_timeout=CONNECT_TIMEOUT,
        max_bytes=MAX_ANSWER_BYTES,
        headers=identify(f"doi-proxy/{read_version()}", settings.upstream_contact),
        find_proxy_url=find_proxy_url,
        trust_proxy=httpx.create_ssl_context,
    )


def find_proxy_url(scheme: str, host: str) -> str | None:
    """The egress proxy for a host. Raises ValueError."""
    try:
        return read_egress_proxy(scheme, host)
    except ConfigurationError as error:
        raise ValueError(error.message) from error


#: Longest time for one upstream or transport, in seconds.
_DEADLINE: Final = 10.0
_OPEN_PORTS: Final = "open UDP and TCP 2641, or TCP 8000, in the firewall; docs/native.md has more"
_NOT_QUERIED: Final = (
    "is not queried: the interface is not for queries, or the address is private; see upstream_private_servers"
)
_COPY: Final = "copy siteinfo.json from the folder of the server, or save the record of its prefix; see docs/native.md"
_ALLOW: Final = "correct the file that names its servers, or allow private addresses by upstream_private_servers"
_CORRECT: Final = "correct the address, or allow this machine to reach it; HTTPS_PROXY names an egress proxy"


def find_native_problems(inspection: Inspection) -> Iterator[Finding]:
    """A bootstrap file that cannot be used, and handle servers that do not answer."""
    settings = inspection.settings
    urls = dict.fromkeys(filter(is_native, (*settings.upstream_url, *settings.upstream_route_urls.values())))
    refused = list(inspection.find_refusal("upstream_bootstrap", lambda: read_root(settings)))
    yield from refused
    unusable = set(filter(is_from_root, urls)) if refused else set[str]()
    for url in urls:
        if url.startswith(f"{FROM_ROOT}/") and not url.startswith(f"{FROM_ROOT}//"):
            found = list(_find_site_problems(inspection, url))
            unusable.update(url for finding in found if finding.severity == "error")
            yield from found
    if inspection.offline or settings.mode == "sealed":
        return
    for url in urls:
        if url not in unusable:
            # The same for a probe of all transports, one after the other.
            failure, text = asyncio.run(_time(_probe(settings, url), 15.0))
            if failure is not None:
                name = _name_setting(settings, url)
                remedy = _ALLOW if isinstance(failure, NoResponsibleService) else _CORRECT
                yield Finding("error", inspection.source(name), f"{redact(url)}: {text}", remedy)


def _find_site_problems(inspection: Inspection, url: str) -> Iterator[Finding]:
    """A file of a site that cannot be used, or with which `cert` or `auth` fails."""
    name = _name_setting(inspection.settings, url)
    if refused := list(inspection.find_refusal(name, lambda: read_named_sites(url))):
        yield from refused
        return
    sites = read_named_sites(url).sites
    if not all(server.public_key for site in sites for server in site.servers):
        text = "a server has no key in the file, so its answers about cert cannot be verified"
        yield Finding("warning", inspection.source(name), f"{url}: {text}", _COPY)
    if not any(site.is_primary for site in sites):
        text = "the file has no primary site, so auth fails"
        yield Finding("warning", inspection.source(name), f"{url}: {text}", _COPY)


def _name_setting(settings: Settings, url: str) -> str:
    return "upstream_url" if url in settings.upstream_url else "upstream_routes"


async def examine_transports(settings: Settings, url: str) -> list[Finding]:
    """A note for each transport, and an error if none works."""
    if is_from_root(url):
        return await _examine_root(settings, url)
    findings, works = [], False
    for protocol in TransportProtocol:
        failure, text = await _time(_probe(settings, url, protocol))
        works = works or failure is None
        findings.append(Finding("note", f"{url} by {protocol.name}", _describe(failure, text, "no server offers it")))
    if not works:
        findings.append(Finding("error", url, "no transport works", _OPEN_PORTS))
    return findings


async def _examine_root(settings: Settings, url: str) -> list[Finding]:
    """Every interface of every server of the root, at the same time: silent ones take all of their time."""
    # Interfaces of the root that are queried. A root in use has about 20.
    sites = list_root_interfaces(settings)[:100]
    deadline = min(_DEADLINE, settings.upstream_timeout)
    results = await asyncio.gather(*(_time(probe_interface(settings, url, site, _allow), deadline) for site in sites))
    findings = [
        Finding("note", f"{url} {_name_interface(site)}", _describe(failure, text, _NOT_QUERIED))
        for site, (failure, text) in zip(sites, results, strict=True)
    ]
    if all(failure is not None for failure, _ in results):
        findings.append(Finding("error", url, "no server of the root answers", _OPEN_PORTS))
    return findings


def _name_interface(site: ServiceSite) -> str:
    server = site.servers[0]
    interface = server.interfaces[0]
    names = {protocol.value: protocol.name for protocol in TransportProtocol}
    return f"{server.ip} port {interface.port} by {names.get(interface.protocol, interface.protocol)}"


def _describe(failure: Exception | None, text: str, not_queried: str) -> str:
    if isinstance(failure, NoResponsibleService):
        return not_queried
    return f"works, {text}" if failure is None else text


async def _probe(settings: Settings, url: str, protocol: TransportProtocol | None = None) -> None:
    """Query the control name. A server that is not responsible for it works too."""
    source = open_native(settings, url, QueryTokens(_allow, _admit), only=protocol)
    try:
        await source.probe()
    finally:
        await source.aclose()


async def _allow() -> bool:
    return True


async def _admit() -> None:
    """No budget limits a check."""


async def _time(work: Awaitable[None], deadline: float = _DEADLINE) -> tuple[Exception | None, str]:
    """The failure, if there is one, and its text, else the time that it took."""
    began = time.monotonic()
    try:
        await asyncio.wait_for(work, deadline)
    except (ConfigurationError, CouldNotVerify) as error:
        detail = error.detail if isinstance(error, CouldNotVerify) else ""
        return error, f"{error.message} {redact(detail)}".strip()
    except TimeoutError as error:
        return error, f"no answer within {deadline:g} s"
    return None, f"{(time.monotonic() - began) * 1000:.0f} ms"
