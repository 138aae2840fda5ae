"""Pages about a name that leads nowhere or is not followed: not found, gone, its values, its locations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from doi_names.name import HandleName
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.destination import Destination
from doi_proxy.resolver.prefix_chain import ReportContact
from doi_proxy.resolver.resolution import NO_FACTS, Action, Resolution, ResolveOptions
from doi_proxy.resolver.target import list_candidates
from doi_proxy.web import shown_values
from doi_proxy.web.freshness import VARY_ACCEPT, VARY_ACCEPT_AND_LANGUAGE, Freshness, failure_token, vary
from doi_proxy.web.languages import Catalogue
from doi_proxy.web.locations import show_locations, write_locations
from doi_proxy.web.negotiation import Varies, wants_page, wants_problem, write_date, write_moment
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.problem import not_found_problem
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import format_query
from doi_proxy.web.responses import XML, Basis, Reply, cite_as, page
from doi_proxy.web.shown_values import MAX_ITEMS_SHOWN, Outline, ValueRow, show_name
from doi_proxy.web.stage import Section, list_overriding, read_sections
from handle_protocol.value import HandleValue

#: Why the page of a record was sent instead of a redirect.
NOTES: Final = ("not_a_web_target", "own_address", "no_target", "values_not_found")
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
        resolution = found.resolution
        name, language = resolution.name, request.language(self._pages.languages)
        freshness = self._freshness.of_page(resolution, self._now())
        varies = Varies.PAGE | Varies.PROBLEM | Varies.LANGUAGE
        basis = self._find_basis(options, found, varies, watches=resolution.tombstone is None)
        if wants_problem(request.header(b"accept")):
            members = read_sections(self.sections, "problem", name)
            return structs.replace(not_found_problem(resolution, self._link.base, freshness, members), basis=basis)
        facts: dict[str, Any]
        if resolution.tombstone is not None:
            facts = {"reason": resolution.tombstone.reason}
            facts["date"] = write_date(self._pages.texts(language), resolution.tombstone.date)
            facts["ways"] = self._pages.list_ways(language, name, "gone")
            body = self._pages.render("gone", self._link, language, "gone.title_", name, **facts)
            return page(410, body, freshness=freshness, vary=VARY_ACCEPT_AND_LANGUAGE, basis=basis)
        link = replace(self._link, query=format_query(request.query))
        facts = describe_not_found(self._pages, language, name, contact)
        facts |= read_sections(self.sections, "not_found", name)
        body = self._pages.render("not_found", link, language, "not_found.title_", name, **facts)
        # The next page may have the contact that is missing here.
        basis = basis if contact.is_complete else None
        return page(404, body, freshness=freshness, vary=VARY_ACCEPT_AND_LANGUAGE, basis=basis)

    def locations(self, request: Request, found: Destination) -> Reply:
        """The locations of a name: XML for programs, a page for a browser."""
        name, freshness = found.resolution.name, self._freshness.of_page(found.resolution, self._now())
        if not wants_page(request.header(b"accept")):
            return Reply(
                200,
                (XML, VARY_ACCEPT, *cite_as(found.resolution)),
                write_locations(name, found.record, found.locations),
                freshness,
            )
        candidates = list_candidates(found.record, found.locations)
        shown, language = show_locations(name, candidates), request.language(self._pages.languages)
        facts: dict[str, Any] = {"locations": shown, "hidden": len(candidates) - len(shown)}
        facts["malformed"] = found.locations.malformed[:MAX_ITEMS_SHOWN]
        body = self._pages.render("locations", self._link, language, "locations.title_", name, **facts)
        return page(200, body, cite_as(found.resolution), freshness=freshness, vary=vary(NO_FACTS, is_page=True))

    def values_not_found(self, request: Request, options: ResolveOptions, found: Destination) -> Reply:
        """A registered name without the values that were requested."""
        resolution, language = found.resolution, request.language(self._pages.languages)
        stale = note_stale(self._pages, language, resolution, self._clock())
        facts = describe_record((), "values_not_found", stale=stale)
        body = self._pages.render("values", self._link, language, "values.title_", resolution.name, **facts)
        freshness = self._freshness.of_page(resolution, self._now())
        return page(
            200, body, cite_as(resolution), freshness=freshness, basis=self._find_basis(options, found, Varies.LANGUAGE)
        )

    def values(self, request: Request, options: ResolveOptions, found: Destination, contact: ReportContact) -> Reply:
        """The values of a name. `contact` is what memory knows of its agency."""
        resolution = found.resolution
        refusal = "own_address" if found.leads_here else "not_a_web_target"
        note = refusal if options.action is Action.REDIRECT and resolution.name.suffix is not None else None
        language = request.language(self._pages.languages)
        sections = read_sections(self.sections, "values", resolution.name)
        facts = describe_record(
            found.record.values,
            note,
            stale=note_stale(self._pages, language, resolution, self._clock()),
            agency=resolution.agency or contact.agency,
            checked=write_moment(self._pages.texts(language), claims.confirmed_at(resolution.entry)),
            is_set_here=claims.find_standing(resolution) is claims.Standing.SET_HERE,
            **sections,
        )
        body = self._pages.render("values", self._link, language, "values.title_", resolution.name, **facts)
        is_pending = bool(sections.get("is_pending"))
        kept_by = self._briefly if is_pending else self._freshness
        freshness = kept_by.of_page(resolution, self._now(), found.facts)
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
        if not found.is_repeatable or found.resolution.aliases or options.bypasses_cache:
            return None
        name = found.resolution.name

        def find_watched() -> list[HandleName]:
            return [other for section in self.sections if watches for other in section.list_watched(name)]

        seconds = _SECTION_SECONDS if watches else seconds
        return Basis(found.resolution, self._freshness.page_terms, varies, find_watched, seconds)

    def _now(self) -> int:
        return int(self._clock())


def describe_not_found(pages: Pages, language: str, name: HandleName, contact: ReportContact) -> dict[str, Any]:
    """The facts of the page about a name that is not registered. `contact` can correct that."""
    shorter = name.text.rstrip("/")
    is_slashed = shorter != name.text and "/" in shorter
    return {
        "without_slash": show_name(HandleName(shorter)) if is_slashed else None,
        "questionable": name.questionable(MAX_ITEMS_SHOWN),
        "agency": contact.agency,
        "ways": pages.list_ways(language, name, "missing", pages.helpers(contact)),
    }


def describe_record(values: Sequence[HandleValue], note: str | None = None, **about: Any) -> dict[str, Any]:
    """The facts of the page of a record. `note` is one of NOTES and says why it is shown instead of a redirect.

    What is known `about` it is in `stale`, `agency`, `checked` and `is_set_here`, and what sections say.
    """
    leads_on = any(value.has_type("URL.") or value.has_type("10320/loc.") for value in values)
    if note == "not_a_web_target" and not leads_on:
        note = "no_target"
    shown = shown_values.rows(values)
    unknown = {"stale": None, "agency": "", "checked": "", "is_set_here": False, "first_blocks": (), "blocks": ()}
    return {
        **unknown,
        **about,
        "tables": _split(shown),
        "hidden": len(values) - len(shown),
        "outline": Outline(),
        "count": len(values),
        "note": note,
        "leads_on": leads_on and note is None,
        "leads_to": shown_values.find_target(values),
    }


def _split(shown: Sequence[ValueRow]) -> list[tuple[str, list[ValueRow]]]:
    """The values for readers and, folded, those for administrators; those alone are not folded."""
    groups: dict[str, list[ValueRow]] = {"ordinary": [], "administrative": []}
    for row in shown:
        groups["administrative" if shown_values.is_administrative(row.value) else "ordinary"].append(row)
    if not groups["ordinary"]:
        groups = {"ordinary": groups["administrative"]}
    return [(group, found) for group, found in groups.items() if found]


def note_stale(pages: Pages, language: str, resolution: Resolution, now: float) -> dict[str, Any] | None:
    """What a page says about a record that could not be confirmed. `now` is in seconds since the epoch."""
    if claims.is_up_to_date(resolution):
        return None
    entry, texts = resolution.entry, pages.texts(language)
    reason = pages.failure_reason(language, failure_token(resolution.failure))
    if resolution.agency is not None:
        return write_stale(texts, claims.dated_at(entry), None, reason, from_registry=True)
    # A request can refuse a record within its TTL, by "no-cache".
    return write_stale(texts, claims.confirmed_at(entry), claims.out_of_date_since(entry, now), reason)


def write_stale(
    texts: Catalogue, fetched: float | None, expired: float | None, reason: str, *, from_registry: bool = False
) -> dict[str, Any]:
    """What a page shows of a record that could not be confirmed. Times are in seconds since the epoch, None if unknown.

    `from_registry`: the record is from a file of its registration agency, and `fetched` is its date there.
    """
    since, until = write_moment(texts, fetched), write_moment(texts, expired)
    # The day is enough for a file of an agency.
    shown = {"fetched": since, "expired": "" if until == since else until, "reason": reason}
    return {**shown, "from_registry": from_registry}
