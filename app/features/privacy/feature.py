"""`/privacy`: what this instance stores, in the words of its readers."""

from __future__ import annotations

from typing import Any, Final

import fastapi
from fastapi import FastAPI, Response

from app.features.feature import Context, Feature, Opened
from app.features.own_pages import language_of, own_page
from app.features.privacy.facts import PrivacyFacts, read_privacy
from app.web.freshness import OWN_PAGE
from app.web.operations import Face
from app.web.pages import PageLink


def open_privacy(context: Context) -> Opened:
    """The page, and its link in the footer of every page."""

    def add(app: FastAPI, face: Face) -> None:
        face.pages.links.append(PageLink("footer", "/privacy", "site.privacy"))

        @app.api_route("/privacy", methods=["GET", "HEAD"], include_in_schema=False)
        async def privacy(request: fastapi.Request) -> Response:
            # The upstreams can change with the local records.
            facts = read_privacy(context.settings, context.core.upstream.guards)
            links = (link.cookie_key for link in face.pages.links if link.cookie_key and link.is_shown())
            cookies = next(links, "privacy.cookies_none")
            language = language_of(request, face.pages)
            body = face.pages.render("privacy", face.link, language, "privacy.title", privacy=facts, cookies=cookies)
            return own_page(body, OWN_PAGE)

    return Opened(routes=(add,))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the page, by its template."""
    facts = PrivacyFacts(2, "file", 30, ("doi.org",), 24, 64, has_countries=False)
    return {"privacy": {"privacy": facts, "cookies": "privacy.cookies_none"}}


FEATURE: Final = Feature(
    "privacy",
    "/privacy: what this instance stores, from its settings",
    open=open_privacy,
    samples=_sample_facts,
)
