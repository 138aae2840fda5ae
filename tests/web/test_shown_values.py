"""How a page shows names and values: what it makes visible, and where it lets a person go."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from doi_names.name import HandleName
from doi_proxy.resolver.target import NameLocations
from doi_proxy.web.locations import write_locations
from doi_proxy.web.shown_values import (
    MAX_CHARACTERS_SHOWN,
    MAX_DEPTH_SHOWN,
    MAX_MEMBERS_SHOWN,
    MAX_VALUE_BYTES_SHOWN,
    PERMISSIONS,
    Members,
    Outline,
    address_href,
    data_href,
    hexadecimal,
    is_administrative,
    list_permissions,
    name_href,
    public_handle_url,
    rows,
    shape,
    visible,
    web_address,
)
from handle_protocol.location import Location, Locations
from handle_protocol.value import Data, HandleValue, Record, read_value
from tests.table import table
from tests.values import record

BASE = "https://doi.example"
#: Begins of addresses, some of which a browser must not open.
ADDRESSES = st.sampled_from(["http://", "javascript:", "data:text/html,", "a@b.", "10.1/", "11304/", "hdl:1/", ""])


def value(type_: str, text: str) -> HandleValue:
    return read_value(json.dumps({"index": 1, "type": type_, "data": text}).encode())


@given(st.text())
def test_controls_are_visible_as_pictures_and_all_else_is_itself(text: str) -> None:
    shown = visible(text)
    assert not set(shown) & ({chr(code) for code in range(32)} - {"\t", "\n"} | {"\x7f"})
    kept = "".join(character for character in text if character >= " " and character != "\x7f")
    assert "".join(character for character in shown if character >= " " and character not in "␀␡") or not kept
    assert len(shown) <= len(text)


def test_a_text_is_cut_and_a_line_break_of_two_characters_is_one() -> None:
    assert visible("x" * (MAX_CHARACTERS_SHOWN + 1)) == "x" * MAX_CHARACTERS_SHOWN
    assert visible("a\r\nb\rc\td") == "a\nb\u240dc\td"


@given(st.sampled_from(["URL", "EMAIL", "HS_ALIAS", "DESC"]), ADDRESSES, st.text(max_size=12))
def test_a_link_leads_only_to_the_web_to_a_mailbox_or_to_a_record(type_: str, begin: str, rest: str) -> None:
    found = data_href(BASE, value(type_, begin + rest))
    allowed = ("http://", "https://", "ftp://", "mailto:")
    assert found is None or found.lower().startswith(allowed)
    assert found is None or not set(found) & set(' "<>\\\n\r\t')


@pytest.mark.parametrize(
    ("type_", "text", "href"),
    [
        ("URL", " https://a.example/x ", "https://a.example/x"),
        ("URL", "javascript:alert(1)", None),
        ("EMAIL", "a+b@example.org", "mailto:a+b@example.org"),
        ("DESC", "a@example.org", None),
        ("DESC", "10.1000/182", f"{BASE}/10.1000/182?noredirect"),
        ("HS_ALIAS", "11304/x", "https://hdl.handle.net/11304/x?noredirect"),
        ("HS_ALIAS", "http://a.example/", None),
    ],
)
def test_a_type_decides_what_a_text_is(type_: str, text: str, href: str | None) -> None:
    assert data_href(BASE, value(type_, text)) == href


@pytest.mark.parametrize(
    ("text", "href"),
    [
        ("a@b.example", "mailto:a@b.example"),
        ("a" * 308 + "@b.example.x", "mailto:" + "a" * 308 + "@b.example.x"),
        ("a" * 309 + "@b.example.x", None),  # RFC 5321, section 4.5.3.1, and some more
        ("a@b", None),
        ("a@b..example", None),
        ("a?subject=x@b.example", "mailto:a%3Fsubject%3Dx@b.example"),
        ("HTTP://a.example", "HTTP://a.example"),
        ("http://a example", None),
        ("//a.example", None),
    ],
)
def test_an_address_is_of_the_web_or_a_mailbox(text: str, href: str | None) -> None:
    assert address_href(text) == href
    assert web_address(text) == (href if href and not href.startswith("mailto:") else None)


@pytest.mark.parametrize(
    ("text", "handle", "record"),
    [
        ("10.1000/182", None, f"{BASE}/10.1000/182?noredirect"),
        ("11304/x", "https://hdl.handle.net/11304/x", "https://hdl.handle.net/11304/x?noredirect"),
        ("hdl:11304/x", "https://hdl.handle.net/11304/x", "https://hdl.handle.net/11304/x?noredirect"),
        ("11304/", None, None),
        ("abc/x", None, None),
        ("11304/a\u202eb", None, None),
        ("10.1000/a\u202eb", None, None),
    ],
)
def test_the_record_of_a_doi_is_here_and_of_another_handle_at_the_public_resolver(
    text: str, handle: str | None, record: str | None
) -> None:
    assert public_handle_url(text) == handle
    assert name_href(BASE, text) == record


@table(
    ("data", "expected"),
    [
        (Data("string", "x"), "text"),
        (Data("hex", "00ff"), "hex"),
        (Data("hex", "no"), "text"),
        (Data("base64", "AP8="), "hex"),
        (Data("base64", "A"), "text"),
        (Data("admin", {"handle": "0.NA/10.1", "index": 200, "permissions": "1" * 12}), "admin"),
        (Data("admin", {"handle": "0.NA/10.1", "index": 200, "permissions": "1" * 11}), "members"),
        (Data("vlist", [{"handle": "a", "index": 1}]), "vlist"),
        (Data("vlist", [{"handle": "a"}]), "members"),
        (Data("unknown", None), "members"),
    ],
)
def test_data_have_the_shape_of_their_format_if_they_fit_it(data: Data, expected: str) -> None:
    assert shape(data) == expected


@given(st.binary(max_size=40))
def test_bytes_are_shown_in_groups_of_four_digits(content: bytes) -> None:
    shown = hexadecimal(Data("hex", content.hex()))
    assert bytes.fromhex(shown) == content
    assert all(len(group) == 4 for group in shown.split(" ")[:-1])


def test_permissions_are_those_whose_bit_is_set_from_the_left() -> None:
    assert list_permissions("1" + "0" * 10 + "1") == [PERMISSIONS[0], PERMISSIONS[-1]] == ["list_handles", "add_handle"]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [("HS_ADMIN", True), ("hs_serv", True), ("HS_ALIAS", False), ("hs_alias.x", False), ("URL", False)],
)
def test_values_of_the_handle_system_itself_are_administrative_and_an_alias_is_not(type_: str, expected: bool) -> None:
    assert is_administrative(value(type_, "x")) is expected


# --- `action=showurls`: any locations become well-formed XML, and what XML cannot hold is left out -------------------


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


def test_a_comment_is_cut_at_300_characters() -> None:
    (comment,) = write(record(), malformed=["x" * 400])
    assert comment.text == f" not read: {'x' * 300} "


def test_a_comment_has_no_signs_of_markup() -> None:
    (comment,) = write(record(), malformed=["<a> --- b"])
    assert comment.text == " not read: (a) - - - b "


# --- What a values page shows of a record: the bounds of its rows and of their members -------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=40,
)


def value_outline(data: Any, index: int = 1) -> HandleValue:
    return read_value(json.dumps({"index": index, "type": "X", "data": data}).encode())


def read_back(shown: Any) -> Any:
    """The JSON that members came from, if none was left out."""
    if not isinstance(shown, Members):
        return shown
    assert shown.omitted == 0
    if shown.is_list:
        return [read_back(inner) for _, inner in shown.shown]
    return {key: read_back(inner) for key, inner in shown.shown}


def write_leaves(content: Any) -> Any:
    """The JSON with each number, boolean, null and empty container as its text."""
    if isinstance(content, dict) and content:
        return {key: write_leaves(inner) for key, inner in content.items()}
    if isinstance(content, list) and content:
        return [write_leaves(inner) for inner in content]
    return content if isinstance(content, str) else json.dumps(content)


def count(shown: Any) -> int:
    return sum(1 + count(inner) for _, inner in shown.shown) if isinstance(shown, Members) else 0


@given(st.lists(JSON, max_size=4).filter(lambda items: len(str(items)) < 400))
def test_small_and_flat_json_is_shown_whole(items: list[Any]) -> None:
    outline = Outline()
    for item in items:
        if str(item).count("[") + str(item).count("{") <= MAX_DEPTH_SHOWN:
            assert read_back(outline.members(item)) == write_leaves(item)


@given(st.integers(0, 30), st.integers(0, 60))
def test_the_values_of_a_page_share_their_members(lists: int, length: int) -> None:
    outline = Outline()
    shown = [outline.members(["x"] * length) for _ in range(lists)]
    assert sum(map(count, shown)) == min(lists * length, MAX_MEMBERS_SHOWN)
    omitted = sum(one.omitted for one in shown if isinstance(one, Members))
    assert sum(map(count, shown)) + omitted == lists * length


def test_a_value_that_is_too_long_to_parse_is_shown_by_its_length_and_a_text_is_not() -> None:
    long = value_outline({"format": "key", "value_outline": "x" * MAX_VALUE_BYTES_SHOWN})
    text = value_outline("x" * MAX_VALUE_BYTES_SHOWN)
    first, second = rows([long, text])
    assert (first.data.value, first.omitted_bytes) == (None, len(long.raw))
    assert (second.data.value, second.omitted_bytes) == (text.text, 0)
