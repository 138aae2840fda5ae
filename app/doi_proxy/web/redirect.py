"""`/<DOI>`: the redirect of a DOI name, or a page that explains why it has no redirect."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from html import escape
from ipaddress import ip_address
from typing import Any, Final, Protocol

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import decode, read, read_typed, url_path
from doi_proxy.resolver.destination import Destination, DestinationQuery, Destinations, Kind
from doi_proxy.resolver.prefix_chain import (
    COULD_NOT_VERIFY,
    DOES_NOT_EXIST,
    INVALID,
    NO_REPORT_CONTACT,
    UNKNOWN,
    ReportContact,
    WhichRa,
)
from doi_proxy.resolver.resolution import (
    DEFAULT_OPTIONS,
    NO_FACTS,
    Client,
    Conditions,
    Negotiation,
    Resolution,
    ResolveOptions,
)
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.resolver.target import USUAL_STATUS, Target
from doi_proxy.system.eager import in_task
from doi_proxy.web import responses
from doi_proxy.web.api import RestApi
from doi_proxy.web.freshness import AGENCIES, CACHE_CONTROL, NO_STORE, OWN_PAGE, VARY_ACCEPT, Freshness, vary
from doi_proxy.web.name_pages import NamePages
from doi_proxy.web.negotiation import Varies, is_browser, negotiate, wants_data, wants_page, wants_problem
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.problem import ErrorPages
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import NO_PARAMETERS, Header, Parameters, Paths, client_of, read_form_body, read_options
from doi_proxy.web.responses import HTML, JSON, PAGE_POLICY, Basis, Reply, link_header, page
from doi_proxy.web.stage import (
    NO_DETOUR,
    Detour,
    Encoder,
    Stages,
    conditions_for_others,
    directives_of,
    due_of,
    read_conditions,
)
from handle_protocol.value import escape_separators

#: HTTP/1.0 does not have 303, 307 and 308 (RFC 1945, section 9.3).
_MODERN: Final = frozenset({303, 307, 308})
_DATA: Final = Varies.DATA  # see doi_proxy.resolver.resolution.HIT


class Redirects:
    """Answers DOI names to browsers, and to programs that follow links."""

    def __init__(
        self,
        *,
        destinations: Destinations,
        api: RestApi,
        name_pages: NamePages,
        clock: Callable[[], float],
        chance: Callable[[], float],
        stages: Stages,
    ) -> None:
        """`chance` is called once a request: 0 <= chance < 1."""
        self._destinations = destinations
        self._api = api
        self._name_pages = name_pages
        self._clock, self._chance = clock, chance
        self._stages = stages
        self._detours = stages.detours
        self._freshness = Freshness()

    def answer_plain(self, found: Resolution) -> Reply | None:
        """The redirect of a fresh record for requests that want no data, without the lines about freshness.

        None if more than the record decides it.
        """
        target = None if self._detours.makes_detours else self._destinations.read_target(found)
        # A prepared reply has the freshness of each second. A second one would take 4 us.
        return None if target is None else self._redirect_all(found, target, is_timed=False)

    async def answer(self, request: Request, name: HandleName, parameters: Parameters) -> Reply:
        """Answer a request for `name`. Raises the errors of FAILURES, which ErrorPages shows."""
        reply = None if parameters.pairs else self._answer_from_memory(request, name)
        if reply is not None:
            return reply
        query = self.read_query(request, name, parameters)
        conditions = read_conditions(request, query.options, self._stages)
        found = await self._destinations.find(query, conditions)
        contact = await self._prepare_not_found(request, found) if found.kind is Kind.NOT_FOUND else NO_REPORT_CONTACT
        if found.kind is Kind.VALUES:
            name, for_others = found.resolution.name, conditions_for_others(request)
            await asyncio.gather(
                *(each.prepare_record(name, for_others) for each in self._name_pages.preparing_records)
            )
        detour = None
        if self._detours.awaits_detours and self._can_detour(query.options, found):
            fact = await self._detours.prepare_detour(request, found)
            detour = self._detours.find_detour(request, parameters, found, fact)
        return self.reply(request, query.options, parameters, found, contact, detour)

    def _answer_from_memory(self, request: Request, name: HandleName) -> Reply | None:
        """The redirect that a fresh record alone decides: most requests get it. None if there is more to it."""
        detours = self._detours
        if detours.awaits_detours or request.method == "POST" or request.header(CACHE_CONTROL) is not None:
            return None
        if wants_data(request.header(b"accept")):
            return None
        resolution = self._destinations.resolver.resolve_now(name)
        target = None if resolution is None else self._destinations.read_target(resolution)
        if resolution is None or target is None:
            return None
        self._destinations.resolver.count_answer(resolution)
        if not detours.makes_detours:
            return self._redirect_all(resolution, target)
        destination = Destination(Kind.TARGET, resolution, target=target, is_repeatable=True)
        return self.reply(request, DEFAULT_OPTIONS, NO_PARAMETERS, destination)

    def read_query(self, request: Request, name: HandleName, parameters: Parameters) -> DestinationQuery:
        """What a request wants to know about a name. Raises InvalidParameter."""
        options = read_options(parameters)
        accept = options.media_type or request.header(b"accept")
        negotiation = negotiate(accept, request.header(b"accept-language"), is_browser(request.header(b"user-agent")))
        describe_client = partial(self._describe_client, request, options, negotiation)
        return DestinationQuery(name, options, negotiation, describe_client, shows_alias=request.method != "POST")

    def reply(
        self,
        request: Request,
        options: ResolveOptions,
        parameters: Parameters,
        found: Destination,
        contact: ReportContact = NO_REPORT_CONTACT,
        detour: Detour | None = None,
    ) -> Reply:
        """The reply about a destination. Without a `detour`, one is found from what is in memory."""
        if found.target is not None:
            if detour is None and self._can_detour(options, found):
                detour = self._detours.find_detour(request, parameters, found, None)
            return self._redirect(request, options, found, found.target, detour or NO_DETOUR)
        match found.kind:
            case Kind.ALIAS:
                return self._redirect_to_alias(request, options, found)
            case Kind.RECORD:
                return self._api.answer_record(request, found.resolution, options, parameters)
            case Kind.LOCATIONS:
                return self._name_pages.locations(request, found)
            case Kind.NO_VALUES:
                return self._name_pages.values_not_found(request, options, found)
            case Kind.NOT_FOUND:
                return self._name_pages.not_found(request, options, found, contact)
        known = self._destinations.prefixes.recall_contact(found.resolution.name)
        return self._name_pages.values(request, options, found, known)

    def _redirect_all(self, resolution: Resolution, target: Target, *, is_timed: bool = True) -> Reply:
        """The redirect that every client gets, from one fresh record; with its freshness if it `is_timed`."""
        (location, stub), now = _location_and_stub(target), self._now()
        freshness = self._freshness.redirect_terms(resolution, now).headers(now) if is_timed else ()
        basis = Basis(resolution, self._freshness.redirect_terms, _DATA)
        return Reply(target.status, (HTML, location, VARY_ACCEPT), stub, freshness, basis)

    def _redirect(
        self, request: Request, options: ResolveOptions, found: Destination, target: Target, detour: Detour
    ) -> Reply:
        """The redirect to a target or to a detour: the same for every client, or chosen for this one."""
        resolution, now, facts = found.resolution, self._now(), found.facts | detour.facts
        read_headers = self._stages.record_headers
        from_record = () if read_headers is None else read_headers(found.record, resolution.name)
        headers = (*from_record, *(link_header(*link) for link in found.links), *detour.headers)
        status, (location, stub) = target.status, _location_and_stub(target)
        if detour.location is not None:
            status, location, stub = USUAL_STATUS, (b"location", detour.location.encode()), detour.stub
        headers = (HTML, location, vary(facts), *headers)
        if status in _MODERN and request.scope["http_version"] == "1.0":
            status = 302
        if options.redirection_headers:
            # A browser shows this stub: it is a page.
            status, headers = 200, (*headers, *PAGE_POLICY)
        is_for_all = detour.varies is not None and not self._detours.awaits_detours and not options.bypasses_cache
        if found.is_repeatable and is_for_all:
            basis = Basis(found.resolution, self._freshness.redirect_terms, detour.varies or Varies.DATA)
            return Reply(status, headers, stub, basis.freshness(found.resolution, now).headers(now), basis)
        freshness = self._freshness.of_redirect(found.resolution, now, facts, found.locations.ends_at, detour.detail)
        return Reply(status, headers, stub, freshness)

    def _can_detour(self, options: ResolveOptions, found: Destination) -> bool:
        """Whether a redirect may lead to something else than its target."""
        may_detour = self._detours.makes_detours and found.target is not None and options.media_type is None
        return may_detour and found.resolution.allows_detour

    def _describe_client(self, request: Request, options: ResolveOptions, negotiation: Negotiation) -> Client:
        host = request.client_address
        try:
            address = ip_address(host)
        except ValueError:
            address = None
        find_country = self._stages.country
        country = options.country or (None if find_country is None else find_country(host))
        return Client(address, country, self._chance(), negotiation)

    def _redirect_to_alias(self, request: Request, options: ResolveOptions, found: Destination) -> Reply:
        """The redirect from an alias to this resolver's own URL of its target name, with the same query."""
        resolution, query = found.resolution, b"?" + request.query if request.query else b""
        location = (b"location", request.url_of(resolution.name).encode() + query)
        # Without a URL of its own, this resolver takes the host of the request.
        is_for_all = found.is_repeatable and not options.bypasses_cache and request.public_url is not None
        basis = Basis(resolution, self._freshness.redirect_terms) if is_for_all else None
        freshness = self._freshness.of_redirect(resolution, self._now())
        if options.redirection_headers:
            stub = redirect_stub(location[1].decode("latin-1"))
            return Reply(200, (HTML, location, *PAGE_POLICY), stub, freshness, basis)
        return Reply(301, (location,), freshness=freshness, basis=basis)

    def _now(self) -> int:
        return int(self._clock())

    async def _prepare_not_found(self, request: Request, found: Destination) -> ReportContact:
        """The contact for the not-found page. Meanwhile the sections of the page get what they need, for a person."""
        last, client = found.resolution, client_of(request.client_address)
        only_cached = directives_of(request).only_if_cached
        if only_cached or last.tombstone is not None or not wants_page(request.header(b"accept")):
            return await self._find_contact(request, found)
        await in_task()
        async with asyncio.TaskGroup() as tasks:
            for section in self._name_pages.preparing:
                tasks.create_task(section.prepare(last.name, client))
            return await self._find_contact(request, found)

    async def _find_contact(self, request: Request, found: Destination) -> ReportContact:
        """The contact who can correct a name that is not registered. Only a page shows it."""
        last = found.resolution
        if wants_problem(request.header(b"accept")) or not last.name.is_doi or last.tombstone is not None:
            return NO_REPORT_CONTACT
        conditions = conditions_for_others(request)
        await in_task()
        try:
            # Seconds that a not-found page waits for the prefix's contact.
            async with asyncio.timeout(1.0):
                return await self._destinations.prefixes.report_contact(last.name, conditions)
        except TimeoutError:
            return replace(NO_REPORT_CONTACT, is_complete=False)


def _location_and_stub(target: Target) -> tuple[Header, bytes]:
    """`Location` and the body of a redirect."""
    # Longer locations are not cached, in characters. This keeps the cache below 16 MiB.
    if len(target.location) > 2_048:
        return _write_location_and_stub(target)
    return _remember_location_and_stub(target)


def _write_location_and_stub(target: Target) -> tuple[Header, bytes]:
    return (b"location", target.location.encode()), redirect_stub(target.display)


_remember_location_and_stub = lru_cache(maxsize=1024)(_write_location_and_stub)


def redirect_stub(target_for_display: str) -> bytes:
    """The body of a redirect: a document of two lines titled "Handle Redirect" with one link, which clients read."""
    target = escape(target_for_display)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Handle Redirect</title></head>\n'
        f'<body><p>This name leads to <a href="{target}">{target}</a>.</p></body></html>\n'
    ).encode("utf-8", "replace")


class Gate(Protocol):
    """Answers paths of operation behind a check of its own: all below certain beginnings, and requests with a token."""

    @property
    def below(self) -> tuple[bytes, ...]:
        """The beginnings."""

    def answers(self, request: Request) -> bool:
        """Whether a request is for this gate."""

    async def answer(self, request: Request, scope: responses.Scope, send: responses.Send) -> int:
        """Answer a request. Returns the status."""


@dataclass(frozen=True, slots=True)
class Face:
    """The parts that answer names, and the pages."""

    resolver: Resolver
    redirects: Redirects
    which_ra: WhichRa
    api: RestApi
    errors: ErrorPages
    pages: Pages
    link: Link
    stages: Stages
    #: Paths whose answers no page of another site may read.
    private: set[bytes] = field(default_factory=set)
    #: JSON endpoints for which the limits of clients hold, each with its route.
    own_api: dict[bytes, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operations:
    """What answers the paths that are not names: FastAPI, and gates. `allow_of` returns the methods of such a path."""

    app: Callable[[responses.Scope, responses.Receive, responses.Send], Awaitable[None]]
    paths: Paths
    allow_of: Callable[[bytes], str | None]
    gates: Sequence[Gate] = ()

    async def answer(self, request: Request, receive: responses.Receive, send: responses.Send, encoder: Encoder) -> int:
        """Let a gate or FastAPI answer, with the headers of every answer added. Returns the status.

        `encoder` encodes the answers of FastAPI.
        """
        scope = {**request.scope, "path": request.path.decode("latin-1"), "raw_path": request.path, "root_path": ""}
        for gate in self.gates:
            if gate.answers(request):
                return await gate.answer(request, scope, send)
        status = 500

        async def send_complete(message: responses.Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                common = responses.NO_CORS_HEADERS if request.path in self.paths.private else responses.COMMON_HEADERS
                message["headers"] = [*message.get("headers", ()), *common]
            elif request.head_only:
                message["body"] = b""
            await send(message)

        await self.app(scope, receive, encoder.wrap_send(request, send_complete))
        return status


#: Names in one request.
MAX_NAMES: Final = 100
#: The parameter of the form.
FORM_PARAMETER: Final = "names"
_SEPARATORS: Final = re.compile(r"[\s,]+")


async def answer(request: Request, raw: bytes, client: str, face: Face) -> Reply:
    """The answer about the names in `raw`: a page, or JSON. Upstream queries are charged to `client`."""
    conditions = Conditions(client=client, due=due_of(request))
    if wants_page(request.header(b"accept")):
        return await _answer_page(raw, conditions, request, face)
    return await _answer_json(face.which_ra, raw, conditions, request.query)


async def _answer_json(which_ra: WhichRa, raw: bytes, conditions: Conditions, query: bytes) -> Reply:
    """A JSON array with a row for each name, always 200. A comma inside a name must be written `%2C`.

    If the path has no names, each parameter of the form is one: generated clients escape the commas of a path.
    """
    listed = () if raw else read_form_body(query).all(FORM_PARAMETER)
    parts = raw.split(b",")
    if len(listed or parts) > MAX_NAMES:
        message = f"At most {MAX_NAMES} names are answered at once; these are {len(listed or parts)}."
        return Reply(400, (JSON, VARY_ACCEPT), msgspec.json.encode({"message": message}), (NO_STORE,))
    names = [_read_text(text) for text in listed] or [_read_part(part) for part in parts]
    rows = await which_ra.rows(names, conditions)
    body = escape_separators(msgspec.json.format(msgspec.json.encode(rows), indent=2))
    return Reply(200, (JSON, VARY_ACCEPT), body, (AGENCIES if _is_verified(rows) else NO_STORE,))


#: The texts about a name without an agency, by its status.
_AGENCY_TEXTS: Final = {
    INVALID: "invalid",
    DOES_NOT_EXIST: "missing",
    UNKNOWN: "unknown",
    COULD_NOT_VERIFY: "unverified",
}


async def _answer_page(raw: bytes, conditions: Conditions, request: Request, face: Face) -> Reply:
    """The answer as a page. If the path has no names, they come from the form, where spaces can separate them too."""
    pages, link = face.pages, face.link
    language, vary_page = request.language(pages.languages), vary(NO_FACTS, is_page=True)
    form = "" if raw else read_form_body(request.query).first(FORM_PARAMETER) or ""
    typed = [text for text in _SEPARATORS.split(form) if text]
    given = raw.count(b",") + 1 if raw else len(typed)
    facts: dict[str, Any] = {"count": MAX_NAMES, "rows": (), "typed": "", "given": None}
    if given > MAX_NAMES:
        body = pages.render("which_ra", link, language, "which_ra.title", **{**facts, "given": given})
        return page(400, body, vary=vary_page)
    names = [_read_part(part) for part in raw.split(b",")] if raw else [_read_typed(text) for text in typed]
    rows = await face.which_ra.rows(names, conditions) if names else []
    facts["typed"] = ", ".join(text for text, _ in names)
    facts["rows"] = [
        (text, None if name is None or status == INVALID else url_path(name), row.get("RA"), _AGENCY_TEXTS.get(status))
        for (text, name), row in zip(names, rows, strict=True)
        for status in (row.get("status", ""),)
    ]
    body = pages.render("which_ra", link, language, "which_ra.title", **facts)
    freshness = OWN_PAGE if not names else AGENCIES if _is_verified(rows) else NO_STORE
    return page(200, body, freshness=(freshness,), vary=vary_page)


def _is_verified(rows: Sequence[dict[str, str]]) -> bool:
    return all("RA" in row or row["status"] == INVALID for row in rows)


def _read_typed(text: str) -> tuple[str, HandleName | None]:
    try:
        return text, read_typed(text)
    except InvalidName:
        return text, None


def _read_part(raw: bytes) -> tuple[str, HandleName | None]:
    try:
        text = decode(raw)
    except InvalidName:
        return raw.decode("latin-1"), None
    return _read_text(text)


def _read_text(text: str) -> tuple[str, HandleName | None]:
    try:
        return text, read(text)
    except InvalidName:
        return text, None
