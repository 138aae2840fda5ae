"""Pages about a name that leads nowhere or is not followed: not found, gone, its values, its locations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from doi_names.name import HandleName
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.destination import Destination
from doi_proxy.resolver.prefix_chain import ReportContact
from doi_proxy.resolver.resolution import NO_FACTS, Action, Chain, Resolution, ResolveOptions
from doi_proxy.resolver.target import list_candidates
from doi_proxy.web.freshness import VARY_ACCEPT, VARY_ACCEPT_AND_LANGUAGE, Freshness, failure_token, vary
from doi_proxy.web.locations import write_locations
from doi_proxy.web.negotiation import Varies, wants_page, wants_problem
from doi_proxy.web.pages import Link, Pages, RecordSource, StaleNote
from doi_proxy.web.problem import not_found_problem
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import format_query
from doi_proxy.web.responses import XML, Basis, Reply, cite_as, page
from doi_proxy.web.stage import Section, list_overriding, read_sections

#: Seconds for which a page with sections is prepared. Then they are read anew: they also show what was cached since.
_SECTION_SECONDS: Final = 1


class NamePages:
    """Shows a name to people. Programs get a problem for "not found", and XML for locations."""

    def __init__(
        self,
        *,
        pages: Pages,
        link: Link,
        sections: Sequence[Section],
        clock: Callable[[], float],
    ) -> None:
        self._pages = pages
        self._link = link
        #: What features add to the pages.
        self.sections = sections
        #: Those that prepare something for the page about a name that is not registered, and for that of a record.
        self.preparing = list_overriding(sections, "prepare")
        self.preparing_records = list_overriding(sections, "prepare_record")
        self._clock = clock
        self._freshness = Freshness()
        #: For a page that may say more in a moment.
        self._briefly = Freshness(_SECTION_SECONDS)

    def not_found(self, request: Request, options: ResolveOptions, found: Destination, contact: ReportContact) -> Reply:
        """A name that is not registered, or is gone."""
        resolution = found.chain.last
        name, language = resolution.name, request.language(self._pages.languages)
        freshness = self._freshness.of_page(Chain(resolution), self._now())
        varies = Varies.PAGE | Varies.PROBLEM | Varies.LANGUAGE
        basis = self._find_basis(options, found, varies, watches=resolution.tombstone is None)
        if wants_problem(request.header(b"accept")):
            members = read_sections(self.sections, "problem", name)
            return structs.replace(not_found_problem(resolution, self._link.base, freshness, members), basis=basis)
        if resolution.tombstone is not None:
            stone = resolution.tombstone
            body = self._pages.gone(self._link, language, name=name, reason=stone.reason, date=stone.date)
            return page(410, body, freshness=freshness, vary=VARY_ACCEPT_AND_LANGUAGE, basis=basis)
        body = self._pages.not_found(
            replace(self._link, query=format_query(request.query)),
            language,
            name=name,
            sections=read_sections(self.sections, "not_found", name),
            contact=contact,
        )
        # The next page may have the contact that is missing here.
        basis = basis if contact.is_complete else None
        return page(404, body, freshness=freshness, vary=VARY_ACCEPT_AND_LANGUAGE, basis=basis)

    def locations(self, request: Request, found: Destination) -> Reply:
        """The locations of a name: XML for programs, a page for a browser."""
        name, freshness = found.chain.last.name, self._freshness.of_page(found.chain, self._now())
        if not wants_page(request.header(b"accept")):
            return Reply(
                200,
                (XML, VARY_ACCEPT, *cite_as(found.chain.last)),
                write_locations(name, found.record, found.locations),
                freshness,
            )
        candidates = list_candidates(found.record, found.locations)
        language, malformed = request.language(self._pages.languages), found.locations.malformed
        body = self._pages.locations(self._link, language, name=name, candidates=candidates, malformed=malformed)
        return page(200, body, cite_as(found.chain.last), freshness=freshness, vary=vary(NO_FACTS, is_page=True))

    def values_not_found(self, request: Request, options: ResolveOptions, found: Destination) -> Reply:
        """A registered name without the values that were requested."""
        resolution, language = found.chain.last, request.language(self._pages.languages)
        note = note_stale(self._pages, language, resolution, self._clock())
        body = self._pages.values_not_found(self._link, language, name=resolution.name, stale=note)
        freshness = self._freshness.of_page(Chain(resolution), self._now())
        return page(
            200, body, cite_as(resolution), freshness=freshness, basis=self._find_basis(options, found, Varies.LANGUAGE)
        )

    def values(self, request: Request, options: ResolveOptions, found: Destination, contact: ReportContact) -> Reply:
        """The values of a name. `contact` is what memory knows of its agency."""
        resolution = found.chain.last
        refusal = "own_address" if found.leads_here else "not_a_web_target"
        note = refusal if options.action is Action.REDIRECT and resolution.name.suffix is not None else None
        language = request.language(self._pages.languages)
        sections = read_sections(self.sections, "values", resolution.name)
        body = self._pages.values(
            self._link,
            language,
            name=resolution.name,
            values=found.record.values,
            stale=note_stale(self._pages, language, resolution, self._clock()),
            note=note,
            sections=sections,
            about=RecordSource(
                resolution.agency or contact.agency,
                claims.confirmed_at(resolution.entry),
                claims.find_standing(resolution) is claims.Standing.SET_HERE,
            ),
        )
        is_pending = bool(sections.get("is_pending"))
        kept_by = self._briefly if is_pending else self._freshness
        freshness = kept_by.of_page(Chain(resolution), self._now(), found.facts)
        basis = None
        if not is_pending:
            # Seconds for which the page of a record is prepared. It says when the record was checked.
            basis = self._find_basis(options, found, Varies.DATA | Varies.LANGUAGE, seconds=60)
        return page(
            200, body, cite_as(resolution), freshness=freshness, vary=vary(found.facts, is_page=True), basis=basis
        )

    def _find_basis(
        self,
        options: ResolveOptions,
        found: Destination,
        varies: Varies,
        *,
        watches: bool = False,
        seconds: int | None = None,
    ) -> Basis | None:
        """What a page depends on, if that is one fresh record and, if it `watches`, what its sections look up."""
        if not found.is_repeatable or found.chain.is_alias or options.bypasses_cache:
            return None
        name = found.chain.last.name

        def find_watched() -> list[HandleName]:
            return [other for section in self.sections if watches for other in section.list_watched(name)]

        seconds = _SECTION_SECONDS if watches else seconds
        return Basis(found.chain, self._freshness.page_terms, varies, find_watched, seconds)

    def _now(self) -> int:
        return int(self._clock())


def note_stale(pages: Pages, language: str, resolution: Resolution, now: float) -> StaleNote | None:
    """The note on a page about a record that could not be confirmed. `now` is in seconds since the epoch."""
    if claims.is_up_to_date(resolution):
        return None
    entry = resolution.entry
    reason = pages.failure_reason(language, failure_token(resolution.failure))
    if resolution.agency is not None:
        return StaleNote(claims.dated_at(entry), reason, from_registry=True)
    # A request can refuse a record within its TTL, by "no-cache".
    return StaleNote(claims.confirmed_at(entry), reason, claims.out_of_date_since(entry, now))
