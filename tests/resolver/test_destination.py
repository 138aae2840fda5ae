"""Where a name leads, decided from values: no store and no upstream take part."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from msgspec import structs

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import InvalidParameter
from doi_proxy.resolver.destination import (
    Destination,
    DestinationQuery,
    Kind,
    decide,
    decide_without_locations,
    select_values,
)
from doi_proxy.resolver.resolution import (
    CACHED,
    NO_FACTS,
    Action,
    Client,
    ClientFact,
    Negotiation,
    Origin,
    Resolution,
    ResolveOptions,
)
from doi_proxy.resolver.target import read_own_locations
from handle_protocol.referral import Answer, ResponseCode

NAME: Final = HandleName("10.1000/182")
OTHER: Final = HandleName("10.1000/other")
URL: Final = {"index": 1, "type": "URL", "data": "http://www.doi.org/hb.html", "ttl": 86400}
LOCATIONS: Final = {
    "index": 2,
    "type": "10320/loc",
    "data": "<l><location country='de' href='http://de/'/><location country='us' href='http://us/'/></l>",
}


def resolution(
    *values: dict[str, object],
    name: HandleName = NAME,
    origin: Origin = Origin.HIT,
    code: ResponseCode = ResponseCode.SUCCESS,
) -> Resolution:
    entry = Entry(name.key, Answer(code, msgspec.json.encode(values)), 0.0, 100.0, 1_000.0)
    return Resolution(name, entry, origin)


def lead(*resolutions: Resolution, query: DestinationQuery, everywhere: bool = True) -> Destination:
    """Where the first name leads, with its own locations alone."""
    chain = structs.replace(resolutions[-1], aliases=resolutions[:-1])
    record = select_values(chain, query.options)
    early = decide_without_locations(chain, record, query, lambda name: everywhere)
    return early or decide(chain, record, read_own_locations(record), query)


def test_a_url_is_the_target_and_depends_on_one_fresh_record() -> None:
    found = lead(resolution(URL), query=DestinationQuery(NAME))
    assert (found.kind, found.is_repeatable, found.facts) == (Kind.TARGET, True, NO_FACTS)
    assert found.target is not None and found.target.location == "http://www.doi.org/hb.html"


@pytest.mark.parametrize("origin", [one for one in Origin if one not in CACHED])
def test_what_took_a_query_is_not_repeatable(origin: Origin) -> None:
    assert not lead(resolution(URL, origin=origin), query=DestinationQuery(NAME)).is_repeatable


def test_a_negotiated_answer_is_not_a_hit() -> None:
    assert not lead(resolution(URL), query=DestinationQuery(NAME, negotiation=Negotiation(conneg=True))).is_repeatable


def test_one_of_several_locations_is_chosen_for_the_client() -> None:
    found = lead(resolution(URL, LOCATIONS), query=DestinationQuery(NAME, describe_client=lambda: Client(country="us")))
    assert found.target is not None and found.target.location == "http://us/"
    assert ClientFact.COUNTRY in found.facts and not found.is_repeatable


def test_the_client_is_not_described_where_there_is_nothing_to_choose() -> None:
    def describe() -> Client:
        raise AssertionError("nothing depends on the client")

    assert lead(resolution(URL), query=DestinationQuery(NAME, describe_client=describe)).kind is Kind.TARGET


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (ResolveOptions(action=Action.SHOW_VALUES), Kind.VALUES),
        (ResolveOptions(action=Action.SHOW_URLS), Kind.LOCATIONS),
        (ResolveOptions(types=("EMAIL",)), Kind.NO_VALUES),
        (ResolveOptions(indexes=(7,)), Kind.NO_VALUES),
        (ResolveOptions(types=("10320/loc",)), Kind.TARGET),
    ],
)
def test_what_is_asked_decides_the_kind(options: ResolveOptions, kind: Kind) -> None:
    assert lead(resolution(URL, LOCATIONS), query=DestinationQuery(NAME, options)).kind is kind


def test_a_record_without_a_target_leads_to_its_values() -> None:
    assert lead(resolution({"index": 1, "type": "DESC", "data": "x"}), query=DestinationQuery(NAME)).kind is Kind.VALUES


def test_a_name_that_is_not_registered_is_not_found() -> None:
    missing = resolution(code=ResponseCode.HANDLE_NOT_FOUND)
    assert lead(missing, query=DestinationQuery(NAME)).kind is Kind.NOT_FOUND


@pytest.mark.parametrize(
    ("query", "everywhere", "kind"),
    [
        (DestinationQuery(NAME, shows_alias=True), True, Kind.ALIAS),
        (DestinationQuery(NAME, shows_alias=True), False, Kind.TARGET),
        (DestinationQuery(NAME), True, Kind.TARGET),
        (DestinationQuery(NAME, ResolveOptions(action=Action.SHOW_VALUES), shows_alias=True), True, Kind.VALUES),
    ],
)
def test_an_alias_is_shown_or_followed(query: DestinationQuery, everywhere: bool, kind: Kind) -> None:
    alias = resolution({"index": 1, "type": "HS_ALIAS", "data": OTHER.text})
    found = lead(alias, resolution(URL, name=OTHER), query=query, everywhere=everywhere)
    # A redirect at the end of aliases has the freshness of all of them, and is written for each request.
    assert (found.kind, found.is_repeatable) == (kind, kind is not Kind.TARGET)


def test_an_appendix_may_not_lead_to_another_host() -> None:
    with pytest.raises(InvalidParameter):
        lead(
            resolution({**URL, "data": "http://www.doi.org"}),
            query=DestinationQuery(NAME, ResolveOptions(urlappend=".evil.example/")),
        )
