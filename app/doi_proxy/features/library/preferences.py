"""`/preferences`: the page on which a reader chooses among the services of the library, or none of them."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi import Request as FastAPIRequest

from doi_proxy.endpoints.operators import respond
from doi_proxy.errors import DoiProxyError, InvalidParameter
from doi_proxy.features.library.copy import NO_SERVICE
from doi_proxy.features.library.feature import CrossSiteForm
from doi_proxy.features.library.library import Library, write_cookie
from doi_proxy.resolver.resolution import ClientFact
from doi_proxy.web.freshness import NO_STORE, vary
from doi_proxy.web.pages import Link, PageLink, Pages
from doi_proxy.web.redirect import Face
from doi_proxy.web.request import Request
from doi_proxy.web.responses import Reply, page
from doi_proxy.web.shown_values import host_of_address

PATH: Final = "/preferences"
#: The field of the form: the name of a service, NO_SERVICE, or "" to follow the rules of the library.
FIELD: Final = "service"
#: The query of the page after a choice was saved.
_SAVED: Final = "saved"
#: The values of Sec-Fetch-Site that our own page causes, and a person who types the address.
_OWN_SITE: Final = ("same-origin", "none")


class Preferences:
    """Shows the choices, and keeps the reader's one in a cookie."""

    def __init__(self, library: Library, link: Link, public_url: str | None) -> None:
        """`public_url` is this resolver's own URL, without a slash at its end."""
        self._library = library
        self._link = link
        self._public_url = public_url

    def add_to(self, app: FastAPI, face: Face) -> None:
        """Answer the path in an application. While there are rules, every page has a link to it."""
        face.pages.links.append(
            PageLink("footer", PATH, "preferences.title", lambda: self._library.makes_detours, "privacy.cookies_choice")
        )

        @app.api_route(PATH, methods=["GET", "HEAD", "POST"], include_in_schema=False)
        async def preferences(given: FastAPIRequest) -> Response:
            request = Request(given.scope, given.receive, public_url=self._public_url, sub_path=b"")
            return respond(await self.answer(request, face))

    async def answer(self, request: Request, face: Face) -> Reply:
        """Show the page; for POST, set the cookie and lead back to the page."""
        try:
            return await self._save(request) if request.method == "POST" else self._show(request, face.pages)
        except DoiProxyError as error:
            return face.errors.answer(request, error, name=None, typed="")

    def _show(self, request: Request, pages: Pages) -> Reply:
        services = self._library.rules.services if self._library.makes_detours else ()
        choice = self._library.choice_of(request)
        chosen = next((service.name for service in services if service.base == choice), choice or "")
        facts: dict[str, Any] = {"services": [(service.name, service.label) for service in services], "chosen": chosen}
        facts["saved"] = request.query == _SAVED.encode()
        language = request.language(pages.languages)
        body = pages.render("preferences", self._link, language, "preferences.title", **facts)
        return page(200, body, vary=vary(ClientFact.COOKIE, is_page=True))

    async def _save(self, request: Request) -> Reply:
        _refuse_other_sites(request)
        wanted = (await request.form()).first(FIELD)
        values = {"": None, NO_SERVICE: NO_SERVICE} | {
            service.name: service.base for service in self._library.rules.services
        }
        if wanted not in values:
            raise InvalidParameter(f"{FIELD} must be one of the choices on the page; open {PATH} and choose again.")
        secure = request.base_url.startswith("https:")
        cookie = write_cookie(values[wanted], path=self._link.base, secure=secure)
        # The page is fetched again, so a reload of it sends no form (RFC 9110, section 15.4.4).
        location = f"{self._link.base}{PATH}?{_SAVED}".encode()
        return Reply(303, ((b"location", location), cookie), freshness=(NO_STORE,))


def _refuse_other_sites(request: Request) -> None:
    """Refuse a form that a page of another site sent (W3C Fetch Metadata, section 2.4; WHATWG Fetch, section 3.2)."""
    site = request.header(b"sec-fetch-site")
    if site is not None and site not in _OWN_SITE:
        raise CrossSiteForm
    origin = request.header(b"origin")
    # A front proxy may terminate TLS, so neither scheme nor port counts.
    own_host = host_of_address(request.base_url)
    if site is None and origin is not None and host_of_address(origin) != own_host:
        raise CrossSiteForm
