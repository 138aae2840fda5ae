"""What `/privacy` states about one instance: which of its settings decide what is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal
from urllib.parse import urlsplit

from doi_proxy.system.options import Settings
from doi_proxy.web.client_network import IPV4_PREFIX, IPV6_PREFIX

_SECONDS_A_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class PrivacyFacts:
    """The settings that `/privacy` puts into words."""

    #: The privacy level of the access log, None without an access log.
    log_level: int | None
    store: Literal["memory", "file", "server"]
    #: Days after the end of its TTL in which a record may be used.
    grace_days: int
    #: The hosts of the upstreams, none in sealed mode.
    hosts: tuple[str, ...]
    #: The lengths of the prefixes that count as one client.
    ipv4_prefix: int
    ipv6_prefix: int
    #: Whether countries are looked up.
    has_countries: bool
    #: Whether metadata are fetched from the agencies.
    has_metadata: bool = False


def read_privacy(settings: Settings, urls: Iterable[str]) -> PrivacyFacts:
    """The settings that decide what is stored. `urls` are those of the upstreams that have been opened."""
    scheme = settings.store_url.partition(":")[0]
    # Of "hdl:/path" and "hdl:?OUTSIDE=INSIDE", the scheme alone: a path and an address inside are the operator's.
    hosts = (urlsplit(url).hostname or f"{urlsplit(url).scheme}:" for url in urls)
    return PrivacyFacts(
        log_level=None if settings.value("access_log") in (None, "off") else settings.value("privacy_level"),
        store="memory" if scheme == "memory" else "file" if scheme == "sqlite" else "server",
        grace_days=ceil(settings.cache_grace / _SECONDS_A_DAY),
        # Only the hosts, because a URL may contain a password.
        hosts=tuple(dict.fromkeys(hosts)),
        ipv4_prefix=IPV4_PREFIX,
        ipv6_prefix=IPV6_PREFIX,
        has_countries=settings.value("country_database") is not None,
        has_metadata=settings.mode == "online" and settings.value("metadata") is True,
    )
