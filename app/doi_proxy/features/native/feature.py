"""Handle servers themselves, by the native Handle protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.feature import Extra, Feature, UpstreamKind
from doi_proxy.features.options import Settings
from doi_proxy.features.source_context import SourceContext

#: The setting that means: every handle server, from the root. URLs of one handle server begin with it.
FROM_ROOT: Final = "hdl:"


def is_native(url: str) -> bool:
    """Whether a URL of the settings names handle servers."""
    return url.startswith(FROM_ROOT)


def is_from_root(url: str) -> bool:
    """Whether a URL of the settings names every handle server: "hdl:", with the addresses inside a NAT or without."""
    return url.partition("?")[0] == FROM_ROOT


def _is_on(settings: Settings) -> bool:
    """Whether handle servers are an upstream. A sealed resolver has none."""
    urls = (*settings.upstream_url, *settings.upstream_route_urls.values())
    return settings.mode != "sealed" and any(map(is_native, urls))


def _open_upstream(settings: Settings, url: str, context: SourceContext) -> Any:
    """The upstream that a URL names. Raises ConfigurationError."""
    from doi_proxy.features.native.opening import open_source  # noqa: PLC0415 - only an upstream of this kind needs it

    return open_source(settings, url, context)


async def _examine(settings: Settings, url: str) -> list[Finding]:
    """Which transports work."""
    from doi_proxy.features.native.check import examine_transports  # noqa: PLC0415 - see _open_upstream

    return await examine_transports(settings, url)


def _check(inspection: Inspection) -> Iterator[Finding]:
    """A bootstrap file that cannot be used, and handle servers that do not answer."""
    from doi_proxy.features.native.check import find_native_problems  # noqa: PLC0415 - see _open_upstream

    return find_native_problems(inspection)


FEATURE: Final = Feature(
    "native",
    "handle servers themselves, by the native Handle protocol",
    extra=Extra("native", ("cryptography",)),
    is_on=_is_on,
    check=_check,
    upstreams={"hdl": UpstreamKind(_open_upstream, _examine, is_signed=True)},
)
