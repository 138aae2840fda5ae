"""Checks of restricted values: the file, its keys, its prefixes and its readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.doi.name import fold
from app.errors import ConfigurationError
from app.features.check import Finding, Inspection
from app.features.native.feature import is_native
from app.features.options import Settings
from app.features.restricted.file import RestrictedAccess, read_access
from app.features.restricted.settings import RestrictedSettings

_SALT: Final = bytes(16)
_LOOPBACK: Final = ("127.0.0.1", "::1")


def find_restricted_problems(inspection: Inspection) -> Iterator[Finding]:
    """What keeps readers from restricted values, or shows them to others."""
    settings = inspection.settings
    path = settings.group(RestrictedSettings).native_restricted
    if path is None:
        return
    source = inspection.source("native_restricted")
    try:
        access = read_access(path, _SALT)
        refuse_settings(settings, access)
    except ConfigurationError as error:
        problem, _, remedy = error.message.partition("; ")
        yield Finding("error", source, problem, remedy)
        return
    if settings.mode == "sealed":
        yield Finding("warning", source, "a sealed proxy does not query handle servers, so no reader gets these values")
    for secret in access.exposed:
        yield Finding("warning", source, f"every user of this machine can read {secret}", f"run: chmod o= {secret}")
    if any(address in access.readers.networks for address in _LOOPBACK):
        text = (
            "networks has this machine: behind a front proxy that is not in trusted_proxies, every client is a reader"
        )
        yield Finding("warning", source, text, "give programs on this machine a token instead")


def refuse_settings(settings: Settings, access: RestrictedAccess) -> None:
    """Refuse a file that the other settings make useless or unsafe. Raises ConfigurationError."""
    for prefix in access.prefixes if settings.mode != "sealed" else ():
        if not any(map(is_native, _list_upstreams(settings, prefix))):
            raise ConfigurationError(
                f"no handle server answers the names of {prefix}, and an HTTP API has no restricted values; add "
                f"{prefix}=hdl://host:port to upstream_routes"
            )
    if not access.readers.networks:
        return
    if settings.trusted_proxies.strip() == "*":
        raise ConfigurationError(
            "networks cannot be used with trusted_proxies = '*', because every client can claim any address; name the "
            "front proxies in trusted_proxies, or use tokens"
        )
    if settings.public_url is None:
        raise ConfigurationError(
            "networks needs public_url, because a request from a network counts only with the host of this proxy; set "
            "public_url, or use tokens"
        )


def _list_upstreams(settings: Settings, prefix: str) -> tuple[str, ...]:
    """The upstreams of the names of a prefix."""
    routes = {fold(route).rstrip("/"): url for route, url in settings.upstream_route_urls.items()}
    while prefix:
        if prefix in routes:
            return (routes[prefix],)
        prefix = prefix.rpartition(".")[0]
    return settings.upstream_urls
