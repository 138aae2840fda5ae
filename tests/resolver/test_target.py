"""Where a record leads: candidates, the chosen one, its status, links, and when the prefix must be asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from doi_names.name import HandleName
from doi_proxy.resolver.resolution import DEFAULT_OPTIONS, UNKNOWN_CLIENT, Action, Client, Negotiation, ResolveOptions
from doi_proxy.resolver.target import (
    NO_NAME_LOCATIONS,
    NameLocations,
    Target,
    choose_target,
    is_sufficient,
    links,
    list_candidates,
    needs_prefix,
    read_own_locations,
    read_unconditional_target,
    unconditional_target,
)
from handle_protocol.errors import UnusableAnswer
from handle_protocol.location import MAX_LOCATIONS, Location, Locations, read_locations
from handle_protocol.value import Record, read_values
from tests.table import table
from tests.values import record

NAME = HandleName("10.5555/a/b#c")
CONNEG = Negotiation(True, (("ctype", "application/x-bibtex"), ("http_role", "conneg"), ("language", "de")))
READER = Negotiation(False, (("http_role", "browser"),))
METADATA = read_locations('<l http_sc="303"><location http_role="conneg" href="http://data/" weight="0"/></l>')


def loc(root: str = "", *locations: str) -> tuple[str, str]:
    return "10320/loc", f"<locations {root}>" + "".join(f"<location {one}/>" for one in locations) + "</locations>"


def target(
    given: Record,
    *,
    of_prefix: Locations | None = None,
    options: ResolveOptions = DEFAULT_OPTIONS,
    client: Client = UNKNOWN_CLIENT,
) -> Target | None:
    locations = read_own_locations(given)
    return choose_target(NAME, given, replace(locations, of_prefix=of_prefix or Locations()), options, client).target


def leads_to(given: Record, **more: object) -> str | None:
    found = target(given, **more)  # type: ignore[arg-type]
    return None if found is None else found.location


def shown(given: Record, locations: NameLocations | None = None) -> list[tuple[str | None, float]]:
    return [(one.get("href"), one.weight) for one in list_candidates(given, locations or read_own_locations(given))]


class TestWithoutLocations:
    @table(
        ("values", "expected"),
        [
            ([("URL", "http://a/"), ("URL", "http://b/")], "http://a/"),
            ([("URL.X", "http://x/"), ("URL", "http://a/")], "http://a/"),
            ([("URL.X", "http://x/"), ("URL.Y", "http://y/")], "http://x/"),
            ([("url", "http://a/")], "http://a/"),
            ([("0.TYPE/URL", "http://a/")], None),
            ([("URLX", "http://a/")], None),
            ([("URL", "")], None),
            ([("URL", 7)], None),
            ([("EMAIL", "a@example.org")], None),
            ([], None),
            # What cannot be read counts as not there.
            ([("URL", "http://a/"), ("10320/loc", "no XML")], "http://a/"),
            ([("10320/loc", "no XML")], None),
        ],
    )
    def test_the_first_url_value_is_the_target(self, values: list[tuple[str, object]], expected: str | None) -> None:
        assert leads_to(record(*values)) == expected

    def test_its_status_is_302(self) -> None:
        assert target(record(("URL", " http://a/ä "))) == Target("http://a/%C3%A4", "http://a/ä", 302)


class TestCandidates:
    def test_locations_come_before_urls_and_those_of_the_prefix_last(self) -> None:
        given = record(
            ("URL.X", "http://x/"), loc("", 'href="http://l/"'), ("URL", "http://a/"), loc("", 'href="http://m/"')
        )
        locations = replace(read_own_locations(given), of_prefix=METADATA)
        assert shown(given, locations) == [
            ("http://l/", 1.0), ("http://m/", 1.0), ("http://a/", 0.0), ("http://x/", 0.0), ("http://data/", 0.0),
        ]  # fmt: skip

    @table(
        ("values", "expected"),
        [
            # 1 while there is no 10320/loc value, 0 beside one.
            ([("URL", "http://a/")], [("http://a/", 1.0)]),
            ([("URL", "http://a/"), loc()], [("http://a/", 0.0)]),
            ([("URL", "http://a/"), ("10320/loc", "no XML")], [("http://a/", 1.0)]),
            ([("URL", "http://a/"), loc('urlWeight="2.5"')], [("http://a/", 2.5)]),
            ([("URL", "http://a/"), loc('urlWeight="heavy"')], [("http://a/", 0.0)]),
            ([("URL", "http://a/"), loc('urlWeight="inf"')], [("http://a/", 0.0)]),
            ([("URL", "http://a/"), loc('urlWeight="-3"')], [("http://a/", 0.0)]),
            # A subtype beside a plain URL has a weight of its own.
            ([("URL", "http://a/"), ("URL.X", "http://x/")], [("http://a/", 1.0), ("http://x/", 0.0)]),
            (
                [("URL", "http://a/"), ("URL.X", "http://x/"), loc('urlWeight="1" urlSubtypeWeight="4"')],
                [("http://a/", 1.0), ("http://x/", 4.0)],
            ),
            ([("URL.X", "http://x/"), loc('urlWeight="3" urlSubtypeWeight="4"')], [("http://x/", 3.0)]),
            ([("URL", "http://a/"), loc('no_legacy="true"', 'href="http://l/"')], [("http://l/", 1.0)]),
            ([("URL", "http://a/"), loc('no_legacy="false"')], [("http://a/", 0.0)]),
            ([("URL", ""), ("URL", 7), loc("", 'href="http://l/"')], [("http://l/", 1.0)]),
        ],
    )
    def test_url_values_are_candidates_of_their_own_weight(
        self, values: list[tuple[str, object]], expected: list[tuple[str, float]]
    ) -> None:
        assert shown(record(*values)) == expected

    def test_there_is_a_most(self) -> None:
        given = record(*[("URL", "http://a/")] * (MAX_LOCATIONS + 10))
        assert len(shown(given)) == MAX_LOCATIONS

    def test_a_subtype_of_10320_loc_is_one_as_well(self) -> None:
        given = record(("10320/LOC.x", '<l><location href="http://l/"/></l>'))
        assert shown(given) == [("http://l/", 1.0)]

    def test_settings_of_the_prefix_hold_where_the_record_has_none(self) -> None:
        prefix = read_locations('<l no_legacy="yes" http_sc="307" urlWeight="9" choose_by="score"/>')
        given = record(("URL", "http://a/"))
        assert shown(given, replace(NO_NAME_LOCATIONS, of_prefix=prefix)) == []
        own = read_own_locations(record(loc('no_legacy="no" chooseby="country"')))
        both = replace(own, of_prefix=prefix)
        assert [both.setting(key) for key in ("no_legacy", "http_sc", "chooseby")] == ["no", "307", "country"]

    def test_what_is_malformed_is_said_with_its_index(self) -> None:
        locations = read_own_locations(record(("URL", "http://a/"), ("10320/loc", "<x"), loc()))
        assert (
            locations.has_loc_value and len(locations.malformed) == 1 and locations.malformed[0].startswith("value 2: ")
        )


class TestStatus:
    @table(
        ("of_location", "of_root", "of_prefix", "expected"),
        [
            (None, None, None, 302),
            ("301", None, None, 301),
            ("302", None, None, 302),
            ("303", None, None, 303),
            ("307", None, None, 307),
            ("308", None, None, 308),
            (None, "303", None, 303),
            (None, None, "303", 303),
            ("307", "303", "301", 307),
            (None, "303", "301", 303),
            # Anything else is 302, and does not fall through to another setting.
            ("200", "303", None, 302),
            ("304", None, None, 302),
            ("404", None, None, 302),
            ("0303", None, None, 302),
            ("+303", None, None, 302),
            (" 303", None, None, 302),
            ("3 0 3", None, None, 302),
            ("٣٠٣", None, None, 302),
            ("303\r\nX: y", None, None, 302),
            ("9" * 5000, None, None, 302),
            ("-1", None, None, 302),
        ],
    )
    def test_http_sc_is_a_redirect_or_302(
        self, of_location: str | None, of_root: str | None, of_prefix: str | None, expected: int
    ) -> None:
        attributes = (("href", "http://l/"), *((("http_sc", of_location),) if of_location is not None else ()))
        locations = NameLocations(
            of_name=Locations((Location(attributes),), {} if of_root is None else {"http_sc": of_root}),
            of_prefix=Locations((), {} if of_prefix is None else {"http_sc": of_prefix}),
            has_loc_value=True,
        )
        found = choose_target(NAME, record(), locations, DEFAULT_OPTIONS, UNKNOWN_CLIENT).target
        assert found is not None and found.status == expected


class TestChoice:
    def test_a_template_is_filled_in_with_the_name(self) -> None:
        assert leads_to(record(loc("", 'href_template="http://l/{hdl}"'))) == "http://l/10.5555%2Fa%2Fb%23c"
        assert leads_to(record(loc("", 'href_template="http://l/{hdl:path}"'))) == "http://l/10.5555/a/b%23c"

    @pytest.mark.parametrize("attributes", ["", 'weight="1"', 'href=""', 'href=" "', 'href="relative/path"'])
    def test_a_location_without_an_address_leads_nowhere(self, attributes: str) -> None:
        assert leads_to(record(loc("", attributes))) is None

    def test_urlappend_leaves_a_mail_address_alone(self) -> None:
        given = record(("URL", " MAILTO:someone@example.org"))
        found = target(given, options=ResolveOptions(urlappend="?bcc=else@example.org"))
        assert found is not None
        assert (found.location, found.display) == ("MAILTO:someone@example.org",) * 2
        assert leads_to(record(("URL", "javascript:x")), options=ResolveOptions(urlappend="y")) is None

    def test_the_reader_s_own_locatt_goes_before_what_the_headers_ask(self) -> None:
        given = record(loc("", 'id="a" href="http://a/" language="de"', 'id="b" href="http://b/" language="en"'))
        client = Client(negotiation=Negotiation(False, (("language", "de"),)))
        assert leads_to(given, client=client) == "http://a/"
        assert leads_to(given, client=client, options=ResolveOptions(locatts=(("id", "b"),))) == "http://b/"


class TestNeed:
    @table(
        ("values", "options", "negotiation", "expected"),
        [
            ([("URL", "http://a/")], DEFAULT_OPTIONS, READER, False),
            ([("URL", "http://a/")], DEFAULT_OPTIONS, Negotiation(), False),
            ([loc("", 'href="http://a/"')], DEFAULT_OPTIONS, READER, False),
            ([("URL", "http://a/")], DEFAULT_OPTIONS, CONNEG, True),
            ([loc("", 'href="http://a/"')], DEFAULT_OPTIONS, CONNEG, True),
            ([("URL", "http://a/")], ResolveOptions(locatts=(("id", "1"),)), READER, True),
            ([("URL", "http://a/")], ResolveOptions(action=Action.SHOW_URLS), READER, True),
            ([("DESC", "a")], ResolveOptions(action=Action.SHOW_URLS), READER, True),
            ([loc('nshdl="10.SERV/X"')], DEFAULT_OPTIONS, READER, True),
            ([loc('no_nslocs="true" nshdl="10.SERV/X"')], DEFAULT_OPTIONS, CONNEG, False),
            ([loc('no_nslocs="true"')], ResolveOptions(action=Action.SHOW_URLS), CONNEG, False),
            # A record without its own target is answered by its values, for every client.
            ([("DESC", "a")], DEFAULT_OPTIONS, CONNEG, False),
            ([("DESC", "a")], ResolveOptions(locatts=(("id", "1"),)), READER, False),
        ],
    )
    def test_the_prefix_is_needed_only_where_the_answer_can_depend_on_it(
        self, values: list[tuple[str, object]], options: ResolveOptions, negotiation: Negotiation, expected: bool
    ) -> None:
        given = record(*values)
        assert needs_prefix(given, read_own_locations(given), options, negotiation) is expected

    @table(
        ("values", "options", "negotiation", "expected"),
        [
            ([("URL", "http://a/")], DEFAULT_OPTIONS, READER, True),
            ([("DESC", "a")], DEFAULT_OPTIONS, READER, False),
            ([("URL", "http://a/")], ResolveOptions(action=Action.SHOW_URLS), READER, False),
            # A page for people is no answer to who wants metadata.
            ([("URL", "http://a/")], DEFAULT_OPTIONS, CONNEG, False),
            ([loc("", 'href="http://l/"')], DEFAULT_OPTIONS, CONNEG, False),
            ([loc("", 'href="http://l/" language="de"')], DEFAULT_OPTIONS, CONNEG, False),
            ([loc("", 'href="http://l/" http_role="conneg"')], DEFAULT_OPTIONS, CONNEG, True),
            ([loc("", 'href="http://l/" ctype="application/x-bibtex"')], DEFAULT_OPTIONS, CONNEG, True),
            ([loc("", 'id="1" href="http://l/"')], ResolveOptions(locatts=(("id", "1"),)), READER, True),
            ([loc("", 'id="1" href="http://l/"')], ResolveOptions(locatts=(("id", "2"),)), READER, False),
            ([loc("", 'id="1" href="http://l/"')], ResolveOptions(locatts=(("id", "1"), ("x", None))), READER, False),
        ],
    )
    def test_own_locations_settle_only_what_they_answer(
        self, values: list[tuple[str, object]], options: ResolveOptions, negotiation: Negotiation, expected: bool
    ) -> None:
        given = record(*values)
        assert is_sufficient(given, read_own_locations(given), options, negotiation) is expected


class TestLinks:
    def test_entries_with_a_relation_become_links(self) -> None:
        given = record(
            ("10320/links", '<links><location href="http://c/" rel="cite-as"/><location href="http://n/"/></links>'),
            loc("", 'href_template="http://l/{hdl}" rel="item"', 'rel="item"', 'href="javascript:x" rel="item"'),
            ("10320/links", "no XML"),
        )
        locations = replace(
            read_own_locations(given),
            of_prefix=read_locations('<l><location href="http://p/" rel="describedby"/></l>'),
            links_of_prefix=read_locations('<l><location href="http://q/" rel="license"/></l>').items,
        )
        assert [(one.get("rel"), url) for one, url in links(given, locations, NAME)] == [
            ("cite-as", "http://c/"),
            ("item", "http://l/10.5555%2Fa%2Fb%23c"),
            ("license", "http://q/"),
            ("describedby", "http://p/"),
        ]


USUAL = b'{"index":1,"type":"URL","data":{"format":"string","value":"http://a.example/"},"ttl":86400}'


@pytest.mark.parametrize(
    "values",
    [
        b"[]",
        b"[" + USUAL + b"]",
        b'[{"index":2,"type":"url.x","data":"http://x.example/"},' + USUAL + b"]",
        b'[{"index":2,"type":"Url.x","data":"http://x.example/"}]',
        b'[{"index":2,"type":"URL","data":{"format":"base64","value":"aA=="}},' + USUAL + b"]",
        b'[{"index":2,"type":"URL","data":null}]',
        b'[{"index":2,"type":"URLS","data":"http://x.example/"}]',
        b'[{"index":2,"type":"URL","data":"http://x.example/\\u00e4"}]',
        b'[{"index":2,"type":"URL","data":"http://x.example/\xc3\xa4"}]',
        b'[{"index":2,"type":"URL","data":"javascript:alert(1)"}]',
        b"[" + USUAL + b',{"index":2,"type":"hs_alias","data":"10.5555/b"}]',
        b"[" + USUAL + b',{"index":2,"type":"10320/LOC","data":"<locations/>"}]',
        b"[" + USUAL + b',{"index":2,"type":"10320/links.x","data":"<links/>"}]',
        b"[" + USUAL + b',{"index":2,"type":"HS_ADMIN","data":{"format":"admin","value":{"index":200}}}]',
        b"[" + USUAL + b',{"index":2,"type":"DESC","data":{"format":"string","value":[1]}}]',
        b"[" + USUAL + b',{"index":2,"type":"DESC","data":' + b"1" * 4301 + b"}]",
        b"[" + USUAL + b',{"index":2,"type":"DESC","data":"x","ttl":"2026-01-01T00:00:00Z"}]',
        b"[" + USUAL + b',{"index":2,"type":"DESC","data":"x","ttl":"soon"}]',
        b"[" + USUAL + b',{"index":"2","type":"DESC","data":"x"}]',
        b"[" + USUAL + b',{"index":2,"type":"DESC","data":"\\ud800"}]',
        b"[" + USUAL + b',{"index":2,"type":"DESC","data":"\xff"}]',
        b"[" + USUAL + b",{}]",
        b"[" + USUAL,
    ],
)
def test_the_target_of_the_values_is_that_of_the_record(values: bytes) -> None:
    try:
        expected = unconditional_target(read_values(values))
    except UnusableAnswer:
        with pytest.raises(UnusableAnswer):
            read_unconditional_target(values)
    else:
        assert read_unconditional_target(values) == expected
