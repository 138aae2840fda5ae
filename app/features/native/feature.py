"""Handle servers themselves, by the native Handle protocol."""

from __future__ import annotations

from typing import Final

from app.features.feature import Extra, Feature
from app.features.options import Settings

#: The setting that means: every handle server, from the root. URLs of one handle server begin with it.
FROM_ROOT: Final = "hdl:"


def is_native(url: str) -> bool:
    """Whether a URL of the settings names handle servers."""
    return url.startswith(FROM_ROOT)


def is_on(settings: Settings) -> bool:
    """Whether handle servers are an upstream. A sealed resolver has none."""
    urls = (*settings.upstream_urls, *settings.upstream_route_urls.values())
    return settings.mode != "sealed" and any(map(is_native, urls))


FEATURE: Final = Feature(
    "native",
    "handle servers themselves, by the native Handle protocol",
    extra=Extra("native", ("cryptography",)),
    is_on=is_on,
)
