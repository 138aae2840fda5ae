"""`/<DOI>`: a DOI name's redirect, or the page that says why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal

from app.doi.name import HandleName
from app.doi.presentation import suggestions
from app.doi.uri import url_path
from app.errors import NotADOI
from app.handle.record import Record, read_values
from app.resolver.alias import Chain
from app.resolver.asked import NO_FACTS, NOBODY, Action, Asked, Client, ClientFact, Negotiation
from app.resolver.lookup import Lookup
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolution import Origin, Resolution
from app.resolver.resolver import Resolver
from app.resolver.target import USUAL_STATUS, Places, Target, choose_target, links, plain_target
from app.web.api import HandleApi
from app.web.freshness import VARY_ACCEPT, Freshness, failure_token, vary
from app.web.header import Header
from app.web.limits import ClientLimits
from app.web.link_header import link_header
from app.web.locations_xml import write_locations
from app.web.negotiation import is_browser, negotiate
from app.web.pages import Link, Pages, StaleNote, redirect_stub
from app.web.record_headers import record_headers
from app.web.request import Request
from app.web.request_path import Parameters, read_asked
from app.web.responses import HTML, PAGE_POLICY, XML, Hit, Reply, page

#: HTTP/1.0 knows neither 303 nor 307 nor 308 (RFC 1945, section 9.3).
_MODERN: Final = frozenset({303, 307, 308})
#: Seconds that a not-found page waits for the prefix's contact.
_CONTACT_PATIENCE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a redirect is told besides the request; `chance` is drawn once a request (0 <= chance < 1)."""

    clock: Callable[[], float]
    chance: Callable[[], float]
    country: Callable[[str], str | None]
    #: The headers that records may set, by their lower-case names.
    record_headers: frozenset[bytes] = frozenset()


class Redirects:
    """Answers DOI names to browsers, and to programs that follow links."""

    def __init__(
        self,
        *,
        resolver: Resolver,
        limits: ClientLimits,
        prefixes: PrefixChain,
        api: HandleApi,
        pages: Pages,
        link: Link,
        facts: Facts,
        resolves: Literal["doi", "any"],
        max_age: float,
    ) -> None:
        self._resolver = resolver
        self._limits = limits
        self._prefixes = prefixes
        self._api = api
        self._pages = pages
        self._link = link
        self._facts = facts
        self._resolves = resolves
        self._freshness = Freshness(max_age)

    def at_once(self, request: Request, name: HandleName) -> Reply | None:
        """The answer to a path alone, where nothing has to be asked or chosen; None where something has.

        It is the answer that `answer` gives, without its detours: a test compares the two.
        """
        found = self._resolver.at_hand(name)
        if found is None or not name.is_doi:
            return None
        values = found.entry.answer.values
        plain = _plain(values) if len(values) <= _MOST_KEPT_BYTES else None
        accept = request.header(b"accept")
        if plain is None or (accept is not None and negotiate(accept, None, False).conneg):
            return None
        location, body = plain
        self._resolver.give(found)
        freshness = self._freshness.of_redirect_hit(found, self._now())
        hit = Hit(found, self._freshness.of_redirect_hit)
        return Reply(USUAL_STATUS, (HTML, location, VARY_ACCEPT), body, freshness, hit)

    async def answer(self, request: Request, name: HandleName, parameters: Parameters) -> Reply:
        """Answer a request for `name`. Raises DoiProxyError for what `error_handlers` turns into a page."""
        asked = read_asked(parameters)
        chain = await self._resolved(request, name, asked)
        resolution = chain.last
        if asked.action is Action.API:
            return self._api.found(request, chain.resolutions[0], asked, parameters)
        if not resolution.found:
            return await self._not_found(request, resolution)
        if (
            chain.is_alias
            and asked.action is Action.REDIRECT
            and request.method != "POST"
            and self._resolves_here(chain.last.name)
        ):
            return self._alias(request, chain)
        record = resolution.record.select(asked.types, asked.indexes)
        if not record.values:
            return self._values_not_found(request, resolution)
        return await self._leads(request, chain, record, asked)

    async def _resolved(self, request: Request, name: HandleName, asked: Asked) -> Chain:
        """The chain of a name that may be resolved here. Raises NotADOI and whatever the resolver raises."""
        follow = asked if asked.action is not Action.API else ALIASES_ARE_DATA
        demand = self._limits.demand(request, asked)
        if self._resolves_here(name):
            return await self._resolver.follow(name, follow, demand)
        short = name.expanded_short_doi()
        if short is not None:
            chain = await self._resolver.follow(short, follow, demand)
            if chain.resolutions[0].found:
                return chain
        raise NotADOI(
            f"“{name.text}” is not a DOI name: a DOI name begins with “10.” and has a slash behind its prefix."
        )

    def _resolves_here(self, name: HandleName) -> bool:
        return self._resolves == "any" or name.is_doi or name.is_short_doi or name.is_prefix

    async def _leads(self, request: Request, chain: Chain, record: Record, asked: Asked) -> Reply:
        resolution = chain.last
        negotiation = negotiate(
            request.header(b"accept"), request.header(b"accept-language"), is_browser(request.header(b"user-agent"))
        )
        places = await self._prefixes.places(resolution.name, record, asked, negotiation, self._lookup(request))
        if asked.action is Action.SHOW_URLS:
            body = write_locations(resolution.name, record, places)
            return Reply(200, (XML, VARY_ACCEPT), body, self._freshness.of_page(chain, self._now()))
        if asked.action is Action.REDIRECT:
            # Without locations there is nothing to choose, and nobody needs to know who asks.
            client = self._client(request, asked, negotiation) if places.any else NOBODY
            choice = choose_target(resolution.name, record, places, asked, client)
            if choice.target is not None:
                headers = [vary(choice.facts), *record_headers(record, resolution.name, self._facts.record_headers)]
                headers += [link_header(*one) for one in links(record, places, resolution.name)]
                freshness = self._freshness.of_redirect(chain, self._now(), choice.facts, places.ends_at)
                is_plain = _is_plain(chain, places, negotiation)
                hit = Hit(resolution, self._freshness.of_redirect_hit) if is_plain else None
                return _redirect(request, choice.target, asked, headers, freshness, hit)
            return self._values(request, resolution, record, asked, choice.facts)
        return self._values(request, resolution, record, asked, NO_FACTS)

    def _lookup(self, request: Request) -> Lookup:
        return Lookup(self._resolver, self._limits.client_of(request))

    def _client(self, request: Request, asked: Asked, negotiation: Negotiation) -> Client:
        host = request.client_address
        try:
            address = ip_address(host)
        except ValueError:
            address = None
        country = asked.country or self._facts.country(host)
        return Client(address, country, self._facts.chance(), negotiation)

    def _alias(self, request: Request, chain: Chain) -> Reply:
        """The redirect to this resolver's own URL of the name that the alias stands for, with the query kept."""
        path = url_path(chain.last.name)
        # A handle may begin with a slash, and "//" would begin a host (RFC 3986, section 4.2).
        path = "%2F" + path[1:] if path.startswith("/") else path
        location = f"{request.base_url}/{path}".encode()
        if request.query:
            location += b"?" + request.query
        return Reply(301, ((b"location", location),), freshness=self._freshness.of_redirect(chain, self._now()))

    def _now(self) -> int:
        return int(self._facts.clock())

    async def _not_found(self, request: Request, resolution: Resolution) -> Reply:
        name = resolution.name
        body = self._pages.not_found(
            self._link,
            request.language(self._pages.languages),
            name=name,
            suggestions=suggestions(name),
            questionable=name.questionable(),
            contact=await self._contact(name, self._lookup(request)),
        )
        return page(404, body, freshness=self._freshness.of_page(Chain((resolution,)), self._now()))

    async def _contact(self, name: HandleName, lookup: Lookup) -> str | None:
        try:
            async with asyncio.timeout(_CONTACT_PATIENCE):
                return await self._prefixes.contact(name, lookup) if name.is_doi else None
        except TimeoutError:
            return None

    def _values_not_found(self, request: Request, resolution: Resolution) -> Reply:
        language = request.language(self._pages.languages)
        note = self._stale_note(language, resolution)
        body = self._pages.values_not_found(self._link, language, name=resolution.name, stale=note)
        return page(200, body, freshness=self._freshness.of_page(Chain((resolution,)), self._now()))

    def _stale_note(self, language: str, resolution: Resolution) -> StaleNote | None:
        """What a page says about a record past its TTL."""
        if resolution.origin is not Origin.STALE:
            return None
        at = resolution.entry.fetched_at
        fetched = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC") if at > 0 else ""
        return StaleNote(
            fetched=fetched, reason=self._pages.failure_reason(language, failure_token(resolution.failure))
        )

    def _values(
        self, request: Request, resolution: Resolution, record: Record, asked: Asked, facts: ClientFact
    ) -> Reply:
        note = "not_a_web_target" if asked.action is Action.REDIRECT and resolution.name.suffix is not None else None
        language = request.language(self._pages.languages)
        body = self._pages.values(
            self._link,
            language,
            name=resolution.name,
            values=record.values,
            stale=self._stale_note(language, resolution),
            note=note,
        )
        freshness = self._freshness.of_page(Chain((resolution,)), self._now(), facts)
        return page(200, body, freshness=freshness, vary=vary(facts, is_page=True))


#: Larger records are read anew for each request, so that what is kept stays below 32 MiB.
_MOST_KEPT_BYTES: Final = 16_384


@lru_cache(maxsize=1024)
def _plain(values: bytes) -> tuple[Header, bytes] | None:
    """`Location` and body of the redirect that a record is for everybody; None for other records."""
    target = plain_target(read_values(values))
    return None if target is None else ((b"location", target.location.encode()), redirect_stub(target.display))


def _redirect(
    request: Request,
    target: Target,
    asked: Asked,
    headers: list[Header],
    freshness: tuple[Header, ...],
    hit: Hit | None,
) -> Reply:
    status = target.status
    policy: tuple[Header, ...] = ()
    if status in _MODERN and request.scope["http_version"] == "1.0":
        status = 302
    if asked.redirection_headers:
        # A browser shows this stub: it is a page.
        status, policy = 200, PAGE_POLICY
    location = (b"location", target.location.encode())
    return Reply(status, (HTML, location, *policy, *headers), redirect_stub(target.display), freshness, hit)


def _is_plain(chain: Chain, places: Places, negotiation: Negotiation) -> bool:
    """Whether the redirect depends on nothing but the record, which is fresh."""
    hit = chain.last.origin is Origin.HIT and not chain.is_alias
    return hit and not places.any and not negotiation.conneg


#: The API shows an alias as data.
ALIASES_ARE_DATA: Final = Asked(ignore_aliases=True)
