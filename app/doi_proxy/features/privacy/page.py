"""`/privacy`: what is recorded of readers, by the settings in force."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal
from urllib.parse import urlsplit

import fastapi
from fastapi import FastAPI, Response

from doi_proxy.endpoints import language_of, own_page
from doi_proxy.system.options import Settings
from doi_proxy.web.freshness import OWN_PAGE
from doi_proxy.web.pages import PageLink
from doi_proxy.web.redirect import Face
from doi_proxy.web.request_path import IPV4_PREFIX, IPV6_PREFIX


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
        grace_days=ceil(settings.cache_grace / 86_400),
        # Only the hosts, because a URL may contain a password.
        hosts=tuple(dict.fromkeys(hosts)),
        ipv4_prefix=IPV4_PREFIX,
        ipv6_prefix=IPV6_PREFIX,
        has_countries=settings.value("country_database") is not None,
        has_metadata=settings.value("metadata") is True
        and settings.mode == "online"
        and settings.privacy_level < 3
        and settings.upstream_contact is not None,
    )


def add_privacy(app: FastAPI, face: Face, settings: Settings, upstreams: Collection[str]) -> None:
    """Answer the path in an application. `upstreams` are the URLs of those in use, which local records can change."""
    face.pages.links.append(PageLink("footer", "/privacy", "site.privacy"))

    @app.api_route("/privacy", methods=["GET", "HEAD"], include_in_schema=False)
    async def privacy(request: fastapi.Request) -> Response:
        facts = read_privacy(settings, upstreams)
        links = (link.cookie_key for link in face.pages.links if link.cookie_key and link.is_shown())
        cookies = next(links, "privacy.cookies_none")
        language = language_of(request, face.pages)
        body = face.pages.render("privacy", face.link, language, "privacy.title", privacy=facts, cookies=cookies)
        return own_page(body, OWN_PAGE)
