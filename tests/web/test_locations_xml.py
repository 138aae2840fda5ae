"""`action=showurls`: any locations become well-formed XML, and what XML cannot hold is left out."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from doi_names.name import HandleName
from doi_proxy.resolver.target import NameLocations, read_own_locations
from doi_proxy.web.shown_values import write_locations
from handle_protocol.value import Location, Locations, Record
from tests.values import record

NAME = HandleName("10.1000/a&b")
TEXTS = st.text(max_size=8) | st.sampled_from(['"', "'", "<&>", "--", "]]>", "\x00", "\ufffe", "\U0001f600", "\n"])
NAMES = st.sampled_from(["id", "weight", "country", "href", "href_template", "a b", "1a", "é", "x:y", 'x"y'])


def write(record: Record, locations: NameLocations | None = None, *, malformed: Iterable[str] = ()) -> etree._Element:
    found = locations or NameLocations(malformed=tuple(malformed))
    return etree.fromstring(write_locations(NAME, record, found))


@given(st.lists(st.lists(st.tuples(NAMES, TEXTS), max_size=5, unique_by=lambda pair: pair[0]), max_size=4))
def test_any_attributes_become_well_formed_xml(attributes: list[list[tuple[str, str]]]) -> None:
    items = tuple(Location(tuple(one)) for one in attributes)
    for element in write(record(), NameLocations(of_name=Locations(items), has_loc_value=True)):
        assert element.tag == "location"
        assert set(element.attrib) <= {"id", "weight", "country", "href", "href_template"}


@given(st.lists(TEXTS, max_size=4))
def test_any_reason_becomes_a_comment(reasons: list[str]) -> None:
    root = write(record(), malformed=reasons)
    assert [isinstance(node, etree._Comment) for node in root] == [True] * len(reasons)


def test_a_location_has_its_attributes_in_order_and_its_address_filled_in() -> None:
    xml = f'<l><location weight="2" id="a" href_template={quoteattr("http://a/{hdl}?x&y")}/></l>'
    found = record(("10320/loc", xml))
    (element,) = write(found, read_own_locations(found))
    assert [*element.attrib][:2] == ["weight", "id"]
    assert element.get("href") == "http://a/10.1000%2Fa%26b?x&y"


@pytest.mark.parametrize("url", ["http://a.example/?a=1&b='2'", "http://a.example/\u00e9"])
def test_a_url_value_is_a_location(url: str) -> None:
    (element,) = write(record(("URL", url)))
    assert element.get("href") == url


def test_a_comment_is_cut_at_300_characters() -> None:
    (comment,) = write(record(), malformed=["x" * 400])
    assert comment.text == f" not read: {'x' * 300} "


def test_a_comment_has_no_signs_of_markup() -> None:
    (comment,) = write(record(), malformed=["<a> --- b"])
    assert comment.text == " not read: (a) - - - b "
