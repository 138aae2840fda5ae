"""Checks of the settings alone: values without an effect, values that contradict each other, and risky values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from doi_names.name import HandleName
from doi_proxy.server.listening import UNIX
from doi_proxy.system.check import Finding, Inspection
from doi_proxy.system.options import Settings


@dataclass(frozen=True, slots=True)
class _Dependency:
    """A setting that has an effect only if `holds`."""

    name: str
    holds: Callable[[Settings], bool]
    condition: str


#: Settings that depend on another one.
_DEPENDENCIES: Final = (
    _Dependency("client_burst", lambda settings: bool(settings.value("client_rate")), "client_rate is set"),
    _Dependency("express_memory_bytes", lambda settings: settings.express_lane, "express_lane is true"),
    _Dependency("privacy_level", lambda settings: settings.value("access_log") != "off", "access_log is json or text"),
    _Dependency(
        "store_max_bytes", lambda settings: settings.store_url.startswith("sqlite:"), "store_url names a SQLite file"
    ),
    _Dependency(
        "cache_negative_ttl",
        lambda settings: settings.mode == "online" or bool(settings.value("seed")),
        "mode is online",
    ),
)


def find_ineffective(inspection: Inspection) -> Iterator[Finding]:
    """Settings that are set and have no effect."""
    upstream = (name for name in type(inspection.settings).model_fields if name.startswith("upstream_"))
    online = (_Dependency(name, lambda settings: settings.mode == "online", "mode is online") for name in upstream)
    for dependency in (*_DEPENDENCIES, *online):
        if inspection.is_set(dependency.name) and not dependency.holds(inspection.settings):
            yield Finding(
                "warning",
                inspection.source(dependency.name),
                f"{dependency.name} has an effect only if {dependency.condition}",
                "change the other setting, or remove this one",
            )


def find_contradictions(inspection: Inspection) -> Iterator[Finding]:
    """A shortest lifetime of records that is longer than the longest one."""
    floor, ceiling = inspection.settings.value("cache_ttl_floor"), inspection.settings.cache_ttl_ceiling
    if floor > ceiling:
        # The explicit value is the one to change. Usually only one of the two is set.
        name = "cache_ttl_floor" if inspection.is_set("cache_ttl_floor") else "cache_ttl_ceiling"
        yield Finding(
            "warning",
            inspection.source(name),
            f"cache_ttl_floor is {floor:g}, and cache_ttl_ceiling is only {ceiling:g}",
            "set cache_ttl_floor to at most cache_ttl_ceiling",
        )


def find_refused_routes(inspection: Inspection) -> Iterator[Finding]:
    """Routes of prefixes whose names `resolve` refuses."""
    settings = inspection.settings
    for prefix in settings.upstream_route_urls if settings.resolve == "doi" else ():
        if not HandleName(f"{prefix}/x").is_doi:
            yield Finding(
                "warning",
                inspection.source("upstream_routes"),
                f"{prefix} is not a DOI prefix, so its names are refused and the route is never used",
                'set resolve to "any", or remove the route',
            )


def find_risks(inspection: Inspection) -> Iterator[Finding]:
    """Values that work and expose the proxy or surprise its users."""
    settings, source = inspection.settings, inspection.source
    if any(network == "*" or network.endswith("/0") for network in settings.trusted_proxies):
        yield Finding(
            "warning",
            source("trusted_proxies"),
            "every client can claim any address and scheme by X-Forwarded-For and X-Forwarded-Proto",
            "set trusted_proxies to the addresses of your front proxies",
        )
    if any(map(_is_open_to_others, settings.management_listen)):
        yield Finding(
            "warning",
            source("management_listen"),
            "other machines reach the admin API, and its token travels without TLS",
            "set management_listen to addresses of this machine alone, such as 127.0.0.1:8101 and a Unix socket",
        )
    if settings.instances > 1 and settings.store_url.startswith("memory:"):
        yield Finding(
            "warning",
            source("store_url"),
            "the instances share no records, purges and imports",
            "set store_url to a SQLite file, or on several machines to a Valkey server",
        )
    if settings.upstream_contact is None and settings.mode == "online":
        yield Finding(
            "warning",
            "upstream_contact",
            "the upstream cannot write to you before it blocks you",
            "set upstream_contact to an e-mail address or a URL",
        )
    if settings.public_url is None:
        yield Finding(
            "note",
            "public_url",
            "links and redirects to this resolver use the scheme and Host of each request",
            "set public_url to the address that browsers see",
        )


def _is_open_to_others(address: str) -> bool:
    """Whether a management address is one other than loopback."""
    if address.startswith(UNIX):
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
