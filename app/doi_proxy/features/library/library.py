"""Library copy for requests: the rules in force, the facts about the reader, and the cookie with a reader's choice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from html import escape
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify
from doi_proxy.features.library import copy
from doi_proxy.resolver.destination import Destination
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import NO_FACTS
from doi_proxy.system.check import CounterData
from doi_proxy.web.negotiation import Varies, preferred_languages, wants_page
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Header, Parameters, read_address
from doi_proxy.web.stage import NO_DETOUR, Detour, Explanation, Stage, conditions_for_others

#: The cookie with a reader's choice. The DOI Handbook has the name "Demo-OpenURL" for it (section 3.8.4.1).
COOKIE: Final = "Library-OpenURL"
#: How long it keeps a choice.
_COOKIE_SECONDS: Final = 180 * 86_400
#: Parameters that lead past the library. The second one is deprecated (DOI Handbook, ibid.).
OPT_OUTS: Final = ("nols", "nosfx")
#: Cookies after this many are not looked at.
_MAX_COOKIES: Final = 100
_MAX_COOKIE_CHARACTERS: Final = 8_192
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
        self.rules, self.makes_detours, self.awaits_detours = rules, bool(rules.rules), rules.uses_agencies
        for follow in self.followers:
            follow()

    async def prepare_detour(self, request: Request, found: Destination) -> str | None:
        """The registration agency of a target's name, if the rules have a condition about it.

        The client of the request is charged for the look-up. None if the agency is not known in time.
        """
        name = found.chain.last.name
        if found.target is None or not name.is_doi or not self.is_for_readers(request):
            return None
        try:
            # Seconds that a redirect waits for the registration agency.
            async with asyncio.timeout(1.0):
                return await self._prefixes.find_agency(name.prefix, conditions_for_others(request))
        except (TimeoutError, CouldNotVerify):
            return None

    def find_detour(self, request: Request, parameters: Parameters, found: Destination, prepared: str | None) -> Detour:
        """The service that a redirect goes through, with a second link that leads past it."""
        if not self.makes_detours or found.target is None:
            return NO_DETOUR
        decision = self.decide(
            request, parameters, copy.LibraryWork(found.chain.last.name, found.target.location, prepared)
        )
        if decision.outcome is not copy.Outcome.NOT_CONCERNED:
            self._count(decision.outcome.value)
        return _detour(request, found.chain.last.name, decision)

    def explain_detour(
        self, request: Request, parameters: Parameters, found: Destination, prepared: str | None
    ) -> Explanation:
        """What becomes of a redirect, with the line of the rule that decides."""
        settings = ("library_rules",)
        if not self.makes_detours:
            return Explanation("none", "The installation has no library rules.", settings)
        if found.target is None:
            return Explanation("none", "The name has no target that a rule could change.", settings)
        work = copy.LibraryWork(found.chain.last.name, found.target.location, prepared)
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
    direct = direct_url(request, name)
    stub = library_stub(decision.url, decision.service.label, direct)
    # `detail` in Cache-Status of a redirect through a service (RFC 9211, section 2.8).
    return Detour(decision.url, stub, (direct_link(direct),), decision.facts, "library-copy")


def read_cookie(header: str | None) -> str | None:
    """The value of COOKIE in a Cookie header, without quotation marks and escapes; None if it is absent."""
    for pair in (header or "")[:_MAX_COOKIE_CHARACTERS].split(";", _MAX_COOKIES)[:_MAX_COOKIES]:
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return unquote(value.strip().removeprefix('"').removesuffix('"'), errors="replace")
    return None


def write_cookie(value: str | None, *, path: str, secure: bool) -> Header:
    """`Set-Cookie` with a choice; None removes it. It holds the base URL of a service, in quotation marks.

    A link from another site sends it (SameSite=Lax), and no script can read it (RFC 6265, section 4.1.2).
    """
    quoted = f'"{quote(value or "", safe=_COOKIE_OCTETS)}"'
    parts = [f"{COOKIE}={quoted}", f"Path={path or '/'}", f"Max-Age={_COOKIE_SECONDS if value else 0}"]
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


def direct_url(request: Request, name: HandleName) -> str:
    """This resolver's URL of a name that leads past the library."""
    return f"{request.url_of(name)}?{OPT_OUTS[0]}=y"


def direct_link(url: str) -> Header:
    """The `Link` header to the redirect past the library (RFC 8288)."""
    return b"link", f'<{url}>; rel="alternate"; title="Without the library service"'.encode("ascii")


@lru_cache(maxsize=64)
def _own_address(base_url: str) -> copy.OwnAddress | None:
    try:
        parts = urlsplit(base_url)
        return copy.OwnAddress(parts.hostname, parts.path.rstrip("/")) if parts.hostname else None
    except ValueError:
        return None
