"""Library copy for requests: the rules in force, the facts about the reader, and the cookie with a reader's choice."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from app.doi.name import HandleName
from app.features.library.copy import (
    NO_SERVICE,
    NOT_CONCERNED,
    Decision,
    LibraryRules,
    Outcome,
    OwnAddress,
    Reader,
    Work,
    decide,
)
from app.features.limits.network import read_address
from app.resolver.options import NO_FACTS
from app.resolver.target import Target
from app.web.header import Header
from app.web.negotiation import preferred_languages, wants_page
from app.web.request import Request
from app.web.request_path import Parameters

#: The cookie with a reader's choice. The DOI Handbook has the name "Demo-OpenURL" for it (section 3.8.4.1).
COOKIE: Final = "Library-OpenURL"
#: Parameters that lead past the library. The second one is deprecated (DOI Handbook, ibid.).
OPT_OUTS: Final = ("nols", "nosfx")
#: `detail` in Cache-Status of a redirect through a service (RFC 9211, section 2.8).
DETAIL: Final = "library-copy"
#: Cookies after this many are not looked at.
_MAX_COOKIES: Final = 100
_MAX_COOKIE_CHARACTERS: Final = 8_192
#: Characters of a cookie's value without "%" (RFC 6265, section 4.1.1).
_COOKIE_OCTETS: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"


class Library:
    """The rules in force. At first there are none."""

    def __init__(self, count: Callable[[str], None]) -> None:
        """`count` gets the outcome of each redirect that a rule concerns."""
        self._count = count
        #: Called after the rules have changed.
        self.followers: list[Callable[[], None]] = []
        self.use(LibraryRules())

    def use(self, rules: LibraryRules) -> None:
        """Put rules in force."""
        self.rules, self.is_active, self.uses_agencies = rules, bool(rules.rules), rules.uses_agencies
        for follow in self.followers:
            follow()

    def decide(
        self, request: Request, parameters: Parameters, name: HandleName, target: Target, agency: str | None
    ) -> Decision:
        """What becomes of the redirect of a request."""
        if not self.is_active:
            return NOT_CONCERNED
        work = Work(name, target.location, agency)
        concerning = self.rules.find_concerning(work, _own_address(request.base_url))
        if not concerning:
            return NOT_CONCERNED
        if any(one in parameters for one in OPT_OUTS):
            decision = Decision(Outcome.OPTED_OUT, NO_FACTS)  # the URL alone decides that
        elif not self.is_for_readers(request):
            decision = Decision(Outcome.LEFT_ALONE, NO_FACTS)
        else:
            decision = decide(self.rules, concerning, work, self._describe(request))
        self._count(decision.outcome.value)
        return decision

    def is_for_readers(self, request: Request) -> bool:
        """Whether a request is one for pages. Accept alone decides that, which every redirect has in Vary."""
        return wants_page(request.header(b"accept"))

    def _describe(self, request: Request) -> Reader:
        languages = preferred_languages(request.header(b"accept-language"))
        return Reader(read_address(request.client_address), languages, self.choice_of(request))

    def choice_of(self, request: Request) -> str | None:
        """The base URL of a configured service in the reader's cookie, NO_SERVICE, or None for anything else."""
        value = read_cookie(request.header(b"cookie"))
        return value if value == NO_SERVICE or self.rules.service_of(value) is not None else None


def read_cookie(header: str | None) -> str | None:
    """The value of COOKIE in a Cookie header, without quotation marks and escapes; None if it is absent."""
    for pair in (header or "")[:_MAX_COOKIE_CHARACTERS].split(";", _MAX_COOKIES)[:_MAX_COOKIES]:
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return unquote(value.strip().removeprefix('"').removesuffix('"'), errors="replace")
    return None


def write_cookie(value: str | None, *, path: str, secure: bool, max_age: float) -> Header:
    """`Set-Cookie` with a choice; None removes it. It holds the base URL of a service, in quotation marks.

    A link from another site sends it (SameSite=Lax), and no script can read it (RFC 6265, section 4.1.2).
    """
    quoted = f'"{quote(value or "", safe=_COOKIE_OCTETS)}"'
    parts = [f"{COOKIE}={quoted}", f"Path={path or '/'}", f"Max-Age={int(max_age) if value else 0}"]
    parts += ["SameSite=Lax", "HttpOnly", *(["Secure"] if secure else [])]
    return b"set-cookie", "; ".join(parts).encode("ascii")


def direct_url(request: Request, name: HandleName) -> str:
    """This resolver's URL of a name that leads past the library."""
    return f"{request.url_of(name)}?{OPT_OUTS[0]}=y"


def direct_link(url: str) -> Header:
    """The `Link` header to the redirect past the library (RFC 8288)."""
    return b"link", f'<{url}>; rel="alternate"; title="Without the library service"'.encode("ascii")


@lru_cache(maxsize=64)
def _own_address(base_url: str) -> OwnAddress | None:
    try:
        parts = urlsplit(base_url)
        return OwnAddress(parts.hostname, parts.path.rstrip("/")) if parts.hostname else None
    except ValueError:
        return None
