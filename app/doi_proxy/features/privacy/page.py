"""`/privacy`: what is recorded of readers, by the settings in force."""

from __future__ import annotations

from collections.abc import Collection

import fastapi
from fastapi import FastAPI, Response

from doi_proxy.endpoints.own_pages import language_of, own_page
from doi_proxy.features.privacy.facts import read_privacy
from doi_proxy.system.options import Settings
from doi_proxy.web.freshness import OWN_PAGE
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import PageLink


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
