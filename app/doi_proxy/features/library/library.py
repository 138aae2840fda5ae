"""Library copy for requests: the rules in force, the facts about the reader, and the page where a reader chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from html import escape
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from fastapi import FastAPI, Response
from fastapi import Request as FastAPIRequest

from doi_names.name import HandleName
from doi_proxy.endpoints import respond
from doi_proxy.errors import CouldNotVerify, DoiProxyError, InvalidParameter
from doi_proxy.features.library import copy
from doi_proxy.features.library.copy import NO_SERVICE
from doi_proxy.features.library.feature import CrossSiteForm
from doi_proxy.features.library.rules import read_rules
from doi_proxy.resolver.destination import Destination
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import NO_FACTS, ClientFact
from doi_proxy.store.kept_file import FileKind
from doi_proxy.system.check import CounterData
from doi_proxy.system.eager import in_task
from doi_proxy.web.freshness import NO_STORE, vary
from doi_proxy.web.negotiation import Varies, preferred_languages, wants_page
from doi_proxy.web.pages import Link, PageLink, Pages
from doi_proxy.web.redirect import Face
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Header, Parameters, read_address
from doi_proxy.web.responses import Reply, page
from doi_proxy.web.shown_values import host_of_address
from doi_proxy.web.stage import NO_DETOUR, Detour, Explanation, Stage, conditions_for_others

#: The rules of the library. A thread takes seconds for 1 MiB.
RULES_FILE: Final = FileKind("library_rules", "library-rules.toml", read_rules, 1024 * 1024, "remove rules")

#: The cookie with a reader's choice. The DOI Handbook has the name "Demo-OpenURL" for it (section 3.8.4.1).
COOKIE: Final = "Library-OpenURL"
#: Parameters that lead past the library. The second one is deprecated (DOI Handbook, ibid.).
OPT_OUTS: Final = ("nols", "nosfx")
#: Characters of a cookie's value without "%" (RFC 6265, section 4.1.1).
_COOKIE_OCTETS: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
_REASONS: Final = {
    copy.Outcome.SENT: "A rule sends this client through the service.",
    copy.Outcome.CHOSEN: "The reader's cookie chooses the service.",
    copy.Outcome.OPTED_OUT: "The reader wants no service.",
    copy.Outcome.LEFT_ALONE: "A rule concerns the work, but not this client, or the request is not one for a page.",
    copy.Outcome.NOT_CONCERNED: "No rule concerns the work.",
}
COPIES: Final = CounterData(
    "library_copies",
    "Redirects that a library rule applies to, by outcome.",
    "outcome",
    tuple(outcome.value for outcome in copy.Outcome if outcome is not copy.Outcome.NOT_CONCERNED),
)


class Library(Stage):
    """The rules in force. At first there are none."""

    def __init__(self, count: Callable[[str], None], prefixes: PrefixChain) -> None:
        """`count` gets the outcome of each redirect that a rule concerns."""
        self._count = count
        self._prefixes = prefixes
        #: Called after the rules have changed.
        self.followers: list[Callable[[], None]] = []
        self.use(copy.LibraryRules())

    def use(self, rules: copy.LibraryRules) -> None:
        """Put rules in force."""
        self.rules, self.makes_detours = rules, bool(rules.rules)
        self.awaits_detours = any(rule.agencies for rule in rules.rules)
        for follow in self.followers:
            follow()

    async def prepare_detour(self, request: Request, found: Destination) -> str | None:
        """The registration agency of a target's name, if the rules have a condition about it.

        The client of the request is charged for the look-up. None if the agency is not known in time.
        """
        name = found.resolution.name
        if found.target is None or not name.is_doi or not self.is_for_readers(request):
            return None
        try:
            # Seconds that a redirect waits for the registration agency.
            await in_task()
            async with asyncio.timeout(1.0):
                return await self._prefixes.find_agency(name.prefix, conditions_for_others(request))
        except (TimeoutError, CouldNotVerify):
            return None

    def find_detour(self, request: Request, parameters: Parameters, found: Destination, prepared: str | None) -> Detour:
        """The service that a redirect goes through, with a second link that leads past it."""
        if not self.makes_detours or found.target is None:
            return NO_DETOUR
        decision = self.decide(
            request, parameters, copy.LibraryWork(found.resolution.name, found.target.location, prepared)
        )
        if decision.outcome is not copy.Outcome.NOT_CONCERNED:
            self._count(decision.outcome.value)
        return _detour(request, found.resolution.name, decision)

    def explain_detour(
        self, request: Request, parameters: Parameters, found: Destination, prepared: str | None
    ) -> Explanation:
        """What becomes of a redirect, with the line of the rule that decides."""
        settings = ("library_rules",)
        if not self.makes_detours:
            return Explanation("none", "The installation has no library rules.", settings)
        if found.target is None:
            return Explanation("none", "The name has no target that a rule could change.", settings)
        work = copy.LibraryWork(found.resolution.name, found.target.location, prepared)
        decision = self.decide(request, parameters, work)
        reason = _REASONS[decision.outcome]
        if decision.line is not None:
            reason += f" The rule is in line {decision.line}."
        shown = decision.outcome.value if decision.service is None else f"through {decision.service.name}"
        return Explanation(shown.replace("_", " "), reason, settings, _detour(request, work.name, decision))

    def decide(self, request: Request, parameters: Parameters, work: copy.LibraryWork) -> copy.Decision:
        """What becomes of the redirect of a request."""
        concerning = self.rules.find_concerning(work, _own_address(request.base_url))
        if not concerning:
            # Without a URL of its own, this resolver takes the Host of the request, which any client can choose.
            by_host = request.public_url is None and self.rules.find_concerning(work, None)
            return copy.Decision(copy.Outcome.NOT_CONCERNED) if by_host else copy.NOT_CONCERNED
        if any(parameter in parameters for parameter in OPT_OUTS):
            decision = copy.Decision(copy.Outcome.OPTED_OUT, NO_FACTS)  # the URL alone decides that
        elif not self.is_for_readers(request):
            decision = copy.Decision(copy.Outcome.LEFT_ALONE, NO_FACTS)
        else:
            decision = copy.decide_copy(self.rules, concerning, work, self._describe(request))
        return decision

    def is_for_readers(self, request: Request) -> bool:
        """Whether a request is one for pages. Accept alone decides that, which every redirect has in Vary."""
        return wants_page(request.header(b"accept"))

    def _describe(self, request: Request) -> copy.ReaderFacts:
        languages = preferred_languages(request.header(b"accept-language"))
        return copy.ReaderFacts(read_address(request.client_address), languages, self.choice_of(request))

    def choice_of(self, request: Request) -> str | None:
        """The base URL of a configured service in the reader's cookie, NO_SERVICE, or None for anything else."""
        value = read_cookie(request.header(b"cookie"))
        return value if value == copy.NO_SERVICE or self.rules.service_of(value) is not None else None


def _detour(request: Request, name: HandleName, decision: copy.Decision) -> Detour:
    if decision is copy.NOT_CONCERNED:
        return NO_DETOUR
    if decision.service is None or decision.url is None:
        # Without a fact about the client, the URL and Accept decided that the redirect stays as it is.
        is_for_all = decision.outcome is not copy.Outcome.NOT_CONCERNED and not decision.facts
        return Detour(facts=decision.facts, varies=Varies.DATA | Varies.PAGE if is_for_all else None)
    direct = f"{request.url_of(name)}?{OPT_OUTS[0]}=y"
    stub = library_stub(decision.url, decision.service.label, direct)
    # RFC 8288: the redirect past the library.
    link = f'<{direct}>; rel="alternate"; title="Without the library service"'.encode("ascii")
    # `detail` in Cache-Status of a redirect through a service (RFC 9211, section 2.8).
    return Detour(decision.url, stub, ((b"link", link),), decision.facts, "library-copy")


def read_cookie(header: str | None) -> str | None:
    """The value of COOKIE in a Cookie header, without quotation marks and escapes; None if it is absent."""
    # Cookies after this many are not looked at.
    for pair in (header or "")[:8_192].split(";", 100)[:100]:
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return unquote(value.strip().removeprefix('"').removesuffix('"'), errors="replace")
    return None


def write_cookie(value: str | None, *, path: str, secure: bool) -> Header:
    """`Set-Cookie` with a choice; None removes it. It holds the base URL of a service, in quotation marks.

    A link from another site sends it (SameSite=Lax), and no script can read it (RFC 6265, section 4.1.2).
    """
    quoted = f'"{quote(value or "", safe=_COOKIE_OCTETS)}"'
    # The cookie keeps a choice for half a year.
    parts = [f"{COOKIE}={quoted}", f"Path={path or '/'}", f"Max-Age={180 * 86_400 if value else 0}"]
    parts += ["SameSite=Lax", "HttpOnly", *(["Secure"] if secure else [])]
    return b"set-cookie", "; ".join(parts).encode("ascii")


def library_stub(location: str, service: str, direct: str) -> bytes:
    """The body of a redirect through a service of the library. Its second link leads past the service."""
    location, service, direct = escape(location), escape(service), escape(direct)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Handle Redirect</title></head>\n'
        f'<body><p>This name leads to <a href="{location}">{location}</a>, through {service}.</p>'
        f'<p>Without it: <a href="{direct}">{direct}</a></p></body></html>\n'
    ).encode("utf-8", "replace")


@lru_cache(maxsize=64)
def _own_address(base_url: str) -> copy.OwnAddress | None:
    try:
        parts = urlsplit(base_url)
        return copy.OwnAddress(parts.hostname, parts.path.rstrip("/")) if parts.hostname else None
    except ValueError:
        return None


PATH: Final = "/preferences"
#: The field of the form: the name of a service, NO_SERVICE, or "" to follow the rules of the library.
FIELD: Final = "service"
#: The query of the page after a choice was saved.
_SAVED: Final = "saved"


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
    # The values of Sec-Fetch-Site that our own page causes, and a person who types the address.
    if site is not None and site not in ("same-origin", "none"):
        raise CrossSiteForm
    origin = request.header(b"origin")
    # A front proxy may terminate TLS, so neither scheme nor port counts.
    own_host = host_of_address(request.base_url)
    if site is None and origin is not None and host_of_address(origin) != own_host:
        raise CrossSiteForm
