"""Handle servers themselves, by the native Handle protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from doi_proxy.features.feature import Extra, Feature, SourceContext, UpstreamKind, require_libraries
from doi_proxy.features.native import errors  # noqa: F401 - the tokens of all errors are one vocabulary
from doi_proxy.system.options import Settings

if TYPE_CHECKING:
    from doi_proxy.system.check import Finding, Inspection

#: The setting that means: every handle server, from the root. URLs of one handle server begin with it.
FROM_ROOT: Final = "hdl:"


def is_native(url: str) -> bool:
    """Whether a URL of the settings names handle servers."""
    return url.startswith(FROM_ROOT)


def is_from_root(url: str) -> bool:
    """Whether a URL of the settings names every handle server: "hdl:", with the addresses inside a NAT or without."""
    return url.partition("?")[0] == FROM_ROOT


def _open_upstream(settings: Settings, url: str, context: SourceContext) -> Any:
    """The upstream that a URL names. Raises ConfigurationError."""
    from doi_proxy.features.native.opening import open_source

    return open_source(settings, url, context)


async def _examine(settings: Settings, url: str) -> list[Finding]:
    """Which transports work. Raises ConfigurationError without the library."""
    require_libraries(Native)
    from doi_proxy.features.native.opening import examine_transports

    return await examine_transports(settings, url)


class Native(Feature):
    """The upstream of URLs that begin with `hdl:`."""

    name = "native"
    summary = "handle servers themselves, by the native Handle protocol"
    extra = Extra("native", ("cryptography",))
    upstreams = {"hdl": UpstreamKind(_open_upstream, _examine, is_signed=True)}

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether handle servers are an upstream. A sealed resolver has none."""
        urls = (*settings.upstream_url, *settings.upstream_route_urls.values())
        return settings.mode != "sealed" and any(map(is_native, urls))

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """A bootstrap file that cannot be used, and handle servers that do not answer."""
        from doi_proxy.features.native.opening import find_native_problems

        return find_native_problems(inspection)
