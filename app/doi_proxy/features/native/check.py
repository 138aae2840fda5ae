"""Checks of handle servers: whether one answers, and by which transports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator
from typing import Final

from doi_proxy.errors import ConfigurationError, CouldNotVerify
from doi_proxy.features.native import opening
from doi_proxy.features.native.errors import NoResponsibleService
from doi_proxy.features.native.feature import FROM_ROOT, is_from_root, is_native
from doi_proxy.system.check import Finding, Inspection
from doi_proxy.system.options import Settings
from doi_proxy.system.redaction import redact
from handle_protocol.wire.site_value import ServiceSite, TransportProtocol

#: Longest time for one upstream or transport, in seconds.
_DEADLINE: Final = 10.0
#: The same for a probe of all transports, one after the other.
_PROBE_DEADLINE: Final = 15.0
#: Interfaces of the root that are queried. A root in use has about 20.
_MAX_INTERFACES: Final = 100
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
    refused = list(inspection.find_refusal("upstream_bootstrap", lambda: opening.read_root(settings)))
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
            failure, text = asyncio.run(_time(_probe(settings, url), _PROBE_DEADLINE))
            if failure is not None:
                name = _name_setting(settings, url)
                remedy = _ALLOW if isinstance(failure, NoResponsibleService) else _CORRECT
                yield Finding("error", inspection.source(name), f"{redact(url)}: {text}", remedy)


def _find_site_problems(inspection: Inspection, url: str) -> Iterator[Finding]:
    """A file of a site that cannot be used, or with which `cert` or `auth` fails."""
    name = _name_setting(inspection.settings, url)
    if refused := list(inspection.find_refusal(name, lambda: opening.read_named_sites(url))):
        yield from refused
        return
    sites = opening.read_named_sites(url).sites
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
    sites = opening.list_root_interfaces(settings)[:_MAX_INTERFACES]
    deadline = min(_DEADLINE, settings.upstream_timeout)
    results = await asyncio.gather(
        *(_time(opening.probe_interface(settings, url, site, _allow), deadline) for site in sites)
    )
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
    source = opening.open_native(settings, url, opening.QueryTokens(_allow, _admit), only=protocol)
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
