"""The bounds of what one name may take, as numbers: a changed bound is a changed promise."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.name import HandleName
from doi_proxy.errors import InvalidParameter
from doi_proxy.resolver.prefix_chain import PrefixChain, WhichRa
from doi_proxy.resolver.resolution import ORDINARY, Client
from doi_proxy.resolver.target import (
    NameLocations,
    choose_location,
    links,
    own_xml_bytes,
    read_links,
    read_own_locations,
    web_target,
)
from doi_proxy.upstream.source import UpstreamQuery
from handle_protocol.location import Location
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.parts import usual_cache, usual_resolver
from tests.table import table
from tests.values import record

NAME = HandleName("10.5555/a")


def location(**attributes: str) -> Location:
    return Location(tuple(attributes.items()))


# --- Addresses -------------------------------------------------------------------------------------------------------


def test_a_target_has_at_most_16384_bytes() -> None:
    start = "http://a/"
    assert web_target(start.ljust(16_384, "x")) == start.ljust(16_384, "x")
    assert web_target(start.ljust(16_385, "x")) is None
    assert web_target("http://a/" + "ä" * 2_729) == "http://a/" + "%C3%A4" * 2_729
    assert web_target("http://a/" + "ä" * 2_730) is None


@pytest.mark.parametrize(("characters", "is_encoded"), [(253, True), (254, False)])
def test_a_host_of_more_than_253_characters_is_not_put_into_punycode(characters: int, is_encoded: bool) -> None:
    label = "ä" + "a" * 40
    host = ".".join([label] * 6)[:characters].ljust(characters, "b")
    found = web_target(f"http://{host}/")
    assert found is not None
    assert found.startswith("http://xn--") is is_encoded


# --- Links -----------------------------------------------------------------------------------------------------------


def test_an_answer_has_at_most_40_links() -> None:
    entries = "".join(f"<location href='http://l/{n}' rel='item'/>" for n in range(41))
    found = links(record(("10320/links", f"<l>{entries}</l>")), NameLocations(), NAME)
    assert [url for _, url in found] == [f"http://l/{n}" for n in range(40)]


def test_the_addresses_of_links_have_at_most_4096_bytes() -> None:
    def shown(*lengths: int) -> list[int]:
        entries = "".join(f"<location href='{'http://l/'.ljust(length, 'x')}' rel='item'/>" for length in lengths)
        return [len(url) for _, url in links(record(("10320/links", f"<l>{entries}</l>")), NameLocations(), NAME)]

    assert shown(4_096) == [4_096]
    assert shown(4_097, 10) == [10]
    assert shown(4_000, 97, 96) == [4_000, 96]


def test_links_take_at_most_32768_characters_of_xml() -> None:
    value = "<l><location href='http://l/'/></l>"
    assert len(read_links(record(("10320/links", value.ljust(32_768 - len(value))), ("10320/links", value)))) == 2
    assert len(read_links(record(("10320/links", value.ljust(32_769 - len(value))), ("10320/links", value)))) == 1


# --- Locations -------------------------------------------------------------------------------------------------------


def test_the_first_100_values_of_locations_are_read() -> None:
    locations = read_own_locations(record(*[("10320/loc", "<l><location/></l>")] * 102))
    assert (len(locations.of_name.items), locations.malformed) == (100, ("2 values after the first 100",))
    assert read_own_locations(record(*[("10320/loc", "<l/>")] * 100)).malformed == ()


def test_the_locations_of_one_record_take_at_most_98304_characters_of_xml() -> None:
    full, last = "<l><location/></l>".ljust(32_768), "<l><location/></l>"
    three = [("10320/loc", full)] * 3
    assert len(read_own_locations(record(*three)).of_name.items) == 3
    locations = read_own_locations(record(*three, ("10320/loc", last)))
    assert (len(locations.of_name.items), locations.malformed) == (3, ("value 4: more XML than is read for one name",))


def test_xml_of_one_name_is_counted_up_to_131072_characters() -> None:
    given = record(("10320/loc", "a" * 100_000), ("10320/links", "a" * 31_072))
    assert own_xml_bytes(given) == 131_072
    assert own_xml_bytes(record(("10320/loc", "a" * 100_000), ("10320/links", "a" * 31_071))) == 131_071
    assert own_xml_bytes(record(("10320/loc", "a" * 200_000))) == 131_072


def test_the_first_20_methods_count() -> None:
    found = [location(id="low", score="1"), location(id="high", score="2")]
    for other, chosen in ((19, "high"), (20, "low")):
        choice = choose_location(found, "x," * other + "score", Client(chance=0.0), ())
        assert choice.location is not None and choice.location.get("id") == chosen


# --- Questions -------------------------------------------------------------------------------------------------------


class CountingSource:
    """An upstream that knows no name and takes some turns of the event loop for each question."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0

    async def fetch(self, query: UpstreamQuery) -> Answer:
        self.names.append(query.name.text)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        for _ in range(100):
            await asyncio.sleep(0)
        self.in_flight -= 1
        if "/" in query.name.text:
            return Answer(ResponseCode.HANDLE_NOT_FOUND)
        return Answer(ResponseCode.SUCCESS, b'[{"index":1,"type":"EMAIL","data":"a@example.org"}]')

    async def aclose(self) -> None:
        pass


async def rows(source: CountingSource, *names: str) -> list[dict[str, str]]:
    clock = Clock()
    cache = usual_cache("memory:", clock=clock)
    resolver = usual_resolver(cache, source, clock)
    found = await WhichRa(resolver, PrefixChain(resolver), None).rows(
        [(name, HandleName(name)) for name in names], ORDINARY
    )
    await resolver.close()
    return found


@pytest.mark.anyio
async def test_one_request_for_agencies_asks_8_questions_at_a_time() -> None:
    source = CountingSource()
    found = await rows(source, *(f"10.5555/{n}" for n in range(20)))
    assert {row["status"] for row in found} == {"DOI does not exist"}
    assert (source.most_in_flight, len(source.names)) == (8, 20)


@pytest.mark.anyio
async def test_a_prefix_and_four_prefixes_above_it_are_asked() -> None:
    source = CountingSource()
    assert await rows(source, "10.1.2.3.4.5.6.7") == [{"DOI": "10.1.2.3.4.5.6.7", "status": "Unknown"}]
    assert source.names == ["10.1.2.3.4.5.6.7", "10.1.2.3.4.5.6", "10.1.2.3.4.5", "10.1.2.3.4", "10.1.2.3"]
    source = CountingSource()
    await rows(source, "10.1.2")
    assert source.names == ["10.1.2", "10.1"]


# --- What may stand in a `Location` header ---------------------------------------------------------------------------


@table(
    ("url", "expected"),
    [
        ("http://www.doi.org/hb.html", "http://www.doi.org/hb.html"),
        ("  http://example.org/ \n", "http://example.org/"),
        ("\ufeffhttp://example.org/\u200b", "http://example.org/"),
        ("mailto:someone@example.org", "mailto:someone@example.org"),
        ("ftp://ftp.example.org/a", "ftp://ftp.example.org/a"),
        ("HTTP://EXAMPLE.org/A", "HTTP://EXAMPLE.org/A"),
        ("http://exämple.org/ümlaut?q=ä#f", "http://xn--exmple-cua.org/%C3%BCmlaut?q=%C3%A4#f"),
        ("http://user@exämple.org:8080/", "http://user@xn--exmple-cua.org:8080/"),
        ("http://example.org/a%20b%2F", "http://example.org/a%20b%2F"),
        ("http://example.org/with space/<x>?a=\"b\"&c='d'", "http://example.org/with%20space/%3Cx%3E?a=%22b%22&c='d'"),
        ("http://example.org/\r\nX-Injected: 1", "http://example.org/%0D%0AX-Injected:%201"),
        ("http://[2001:db8::1]/x", "http://[2001:db8::1]/x"),
        ("http://example.org/{a}|^\\`", "http://example.org/%7Ba%7D%7C%5E%5C%60"),
    ],
)
def test_a_target_is_ascii_and_keeps_its_own_escapes(url: str, expected: str) -> None:
    assert web_target(url) == expected


@table(
    "url",
    [
        "",
        " ",
        "http:",
        "javascript:alert(1)",
        "http\u017f://example.com/",  # a letter that is an "s" to an expression that ignores case
        "JavaScript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "irods://host/x",
        "//example.org/",
        "/relative",
        "example.org",
        "blob:http://x/",
        "http://example.org/" + "a" * 20_000,
    ],
)
def test_any_other_address_is_refused(url: str) -> None:
    assert web_target(url) is None


@pytest.mark.parametrize(
    ("url", "append", "expected"),
    [
        ("http://www.doi.org/hb.html", "?a=b", "http://www.doi.org/hb.html?a=b"),
        ("http://example.org/q?a=1", "&b=2", "http://example.org/q?a=1&b=2"),
        ("http://example.org", "/path", "http://example.org/path"),
        ("http://example.org", "?x", "http://example.org?x"),
        ("http://example.org/", "\r\nX-Evil:1", "http://example.org/%0D%0AX-Evil:1"),
        ("http://example.org/", "ä b", "http://example.org/%C3%A4%20b"),
    ],
)
def test_what_is_appended_goes_behind_the_target(url: str, append: str, expected: str) -> None:
    assert web_target(url, append) == expected


@pytest.mark.parametrize(
    "append", [".evil.example/", "@evil.example/", ":8080/", "x", ":pw@evil.example/", "\\@evil.example/"]
)
def test_what_is_appended_may_not_change_the_host(append: str) -> None:
    with pytest.raises(InvalidParameter, match="urlappend"):
        web_target("http://example.org", append)


@given(
    st.sampled_from(["", "http://", "https://example.org/", "mailto:", "ftp://"]),
    st.text(max_size=60),
    st.text(max_size=20),
)
def test_a_location_never_holds_anything_but_printable_ascii(start: str, url: str, append: str) -> None:
    try:
        location = web_target(start + url, append)
    except InvalidParameter:
        return
    assert location is None or (location.isascii() and location.isprintable() and " " not in location)


def test_each_character_is_encoded_or_stays_as_quote_decides() -> None:
    for character in map(chr, range(0x180)):
        url = f"https://example.org/a{character}b"
        assert web_target(url) == quote(url, safe="-._~!$()*,:@/;=+&'?#[]%"), repr(character)
