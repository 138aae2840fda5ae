"""10320/loc values: how they are parsed, and that hostile values do no harm."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handle_protocol.location import (
    MAX_WEIGHT,
    MAX_XML_BYTES,
    NO_LOCATIONS,
    Location,
    Locations,
    MalformedLocations,
    is_true_setting,
    merge_locations,
    parse_number,
    read_locations,
)
from tests.table import table

#: The example of the DOI Handbook, section "Resolution" (multiple resolution).
HANDBOOK = """<locations>
    <location id="0" href="http://uk.example.com/" country="gb" weight="0" />
    <location id="1" href="http://www1.example.com/" weight="1" />
    <location id="2" href="http://www2.example.com/" weight="1" />
</locations>"""


def one(**attributes: str) -> Location:
    return Location(tuple(attributes.items()))


def only(xml: str) -> Location:
    (location,) = read_locations(xml).items
    return location


class TestReading:
    def test_locations_keep_their_order_and_their_attributes(self) -> None:
        read = read_locations(HANDBOOK)
        assert [item.attributes for item in read.items] == [
            (("id", "0"), ("href", "http://uk.example.com/"), ("country", "gb"), ("weight", "0")),
            (("id", "1"), ("href", "http://www1.example.com/"), ("weight", "1")),
            (("id", "2"), ("href", "http://www2.example.com/"), ("weight", "1")),
        ]
        assert read.settings == {} and read.includes == () and read.namespaces == ()

    @table(
        ("xml", "hrefs"),
        [
            ('<locations><location href="a"/></locations>', ["a"]),
            ("<locations><location href='a'/></locations>", ["a"]),
            ("<locations><location href='a'></location><location href='b'>text</location></locations>", ["a", "b"]),
            # The old name of the element.
            ("<locations><loc_template href='a'/></locations>", ["a"]),
            # A location is removed by renaming its element.
            ("<locations><xlocation href='a'/><location href='b'/></locations>", ["b"]),
            ("<locations><x><location href='a'/></x><location href='b'/></locations>", ["b"]),
            # The name of the root is free.
            ("<links><location href='a'/></links>", ["a"]),
            ("<l:locations xmlns:l='urn:x'><l:location href='a'/></l:locations>", ["a"]),
            ("<locations xmlns='urn:x'><location href='a'/></locations>", ["a"]),
            ("<?xml version='1.0' encoding='UTF-8'?>\n<locations><location href='a'/></locations>", ["a"]),
            # The value is text already: the encoding in the declaration is ignored.
            ("<?xml version='1.0' encoding='UTF-16'?><locations><location href='ä'/></locations>", ["ä"]),
            ("\n \t<locations><location href='a'/></locations>\n", ["a"]),
            ("\ufeff<locations><location href='a'/></locations>", ["a"]),
            ("<!-- c --><locations><!-- <location/> --><?pi?><location href='a'/></locations>", ["a"]),
            ("<locations><location href='a&amp;b&#x20;&lt;&quot;'/></locations>", ['a&b <"']),
            ("<locations><location href='&#13;&#10;Set-Cookie: a=b'/></locations>", ["\r\nSet-Cookie: a=b"]),
            ("<locations/>", []),
            ("<locations></locations>", []),
            ("<location href='the root is no location'/>", []),
            ("<html><body>no locations at all</body></html>", []),
        ],
    )
    def test_children_named_location_are_read(self, xml: str, hrefs: list[str]) -> None:
        assert [item.get("href") for item in read_locations(xml).items] == hrefs

    def test_the_root_s_attributes_are_settings(self) -> None:
        read = read_locations('<locations http_sc="303" no_legacy="true" urlWeight="2" anything="goes"/>')
        assert read.settings == {"http_sc": "303", "no_legacy": "true", "urlWeight": "2", "anything": "goes"}

    @pytest.mark.parametrize(
        ("root", "expected"),
        [
            ('chooseby="locatt"', "locatt"),
            ('choose_by="score"', "score"),
            ('chooseby="locatt" choose_by="score"', "score"),
            ('choose_by="" chooseby="locatt"', "locatt"),
            ("", None),
        ],
    )
    def test_choose_by_wins_over_chooseby(self, root: str, expected: str | None) -> None:
        assert read_locations(f"<locations {root}/>").setting("chooseby") == expected

    @pytest.mark.parametrize(
        ("xml", "includes", "namespaces"),
        [
            ('<l include="10.5555/a"/>', ("10.5555/a",), ()),
            ('<l include=" 10.5555/a  10.5555/b,c "/>', ("10.5555/a", "10.5555/b,c"), ()),
            ("<l><include>10.5555/a</include><include> 10.5555/b </include></l>", ("10.5555/a", "10.5555/b"), ()),
            ('<l include="10.5555/a"><include>10.5555/b</include></l>', ("10.5555/a", "10.5555/b"), ()),
            ('<l includeNamespace="0.NA/10.123"/>', (), ("0.NA/10.123",)),
            ("<l><includeNamespace>10.123</includeNamespace></l>", (), ("10.123",)),
            ("<l><include/><includeNamespace/></l>", (), ()),
        ],
    )
    def test_includes_are_an_attribute_or_elements(
        self, xml: str, includes: tuple[str, ...], namespaces: tuple[str, ...]
    ) -> None:
        read = read_locations(xml)
        assert (read.includes, read.namespaces) == (includes, namespaces)


class TestMerging:
    def test_several_values_are_joined_in_their_order(self) -> None:
        total = merge_locations(
            read_locations(f"<l><location href='{n}'/><include>10.5555/{n}</include></l>") for n in "abc"
        )
        assert [item.get("href") for item in total.items] == ["a", "b", "c"]
        assert total.includes == ("10.5555/a", "10.5555/b", "10.5555/c")

    def test_the_first_setting_found_wins(self) -> None:
        total = merge_locations(
            [read_locations('<l http_sc="301"/>'), read_locations('<l http_sc="303" no_legacy="true"/>')]
        )
        assert total.setting("http_sc") == "301" and total.is_set("no_legacy")

    def test_choose_by_does_not_win_over_an_earlier_value_s_chooseby(self) -> None:
        total = merge_locations([read_locations('<l chooseby="country"/>'), read_locations('<l choose_by="score"/>')])
        assert total.setting("chooseby") == "country"

    def test_no_values_give_no_locations(self) -> None:
        assert merge_locations([]) == NO_LOCATIONS
        assert NO_LOCATIONS.setting("http_sc") is None and not NO_LOCATIONS.is_set("no_legacy")


class TestAttributes:
    @table(
        ("text", "expected"),
        [
            ("0", 0.0), ("1", 1.0), ("0.5", 0.5), (" 2 ", 2.0), ("1e3", 1000.0), ("-1", 0.0), ("-0.0", 0.0),
            # Not numbers, or numbers that cannot be added.
            ("", 1.0), ("heavy", 1.0), ("1,5", 1.0), ("nan", 1.0), ("NaN", 1.0), ("-nan", 1.0),
            ("inf", 1.0), ("-inf", 1.0), ("Infinity", 1.0), ("1e400", 1.0), ("-1e400", 1.0),
            # The sum of the greatest weights stays finite.
            ("1e308", MAX_WEIGHT), ("9" * 300, MAX_WEIGHT),
        ],
    )  # fmt: skip
    def test_a_weight_is_finite_and_not_negative(self, text: str, expected: float) -> None:
        assert one(weight=text).weight == expected

    def test_an_absent_weight_is_1_and_an_absent_score_is_0(self) -> None:
        assert one().weight == 1.0 and one().score == 0.0

    @pytest.mark.parametrize(("text", "expected"), [("5", 5.0), ("-2.5", -2.5), ("best", 0.0), ("inf", 0.0)])
    def test_a_score_may_be_negative(self, text: str, expected: float) -> None:
        assert one(score=text).score == expected

    @table(
        ("text", "expected"),
        [("true", True), ("TRUE", True), ("yes", True), ("1", True), (" true ", True), (None, False), ("", False)]
        + [(text, False) for text in ("false", "no", "0", "truely", "2")],
    )
    def test_a_setting_is_true_by_its_word(self, text: str | None, expected: bool) -> None:
        assert is_true_setting(text) is expected

    @pytest.mark.parametrize(
        ("location", "expected"),
        [
            (one(href="http://a/"), "http://a/"),
            (one(href="http://a/", href_template="http://b/{hdl}"), "http://a/"),
            (one(href="http://a/{hdl}"), "http://a/{hdl}"),
            (one(href_template="http://b/{hdl}"), "http://b/10.5%2Fa%2Fb"),
            (one(href_template="http://b/{hdl:path}"), "http://b/10.5/a/b"),
            (one(href_template="{hdl}|{hdl:path}|{hdl}"), "10.5%2Fa%2Fb|10.5/a/b|10.5%2Fa%2Fb"),
            (one(href_template="http://b/{HDL}{other}"), "http://b/{HDL}{other}"),
            (one(href=""), ""),
            (one(id="1"), None),
        ],
    )
    def test_a_template_is_filled_in(self, location: Location, expected: str | None) -> None:
        assert location.href("10.5%2Fa%2Fb", "10.5/a/b") == expected


LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    + "]><locations><location href='&a9;'/></locations>"
)


class TestHostileValues:
    @table(
        "xml",
        [
            "",
            " \n",
            "this is no XML",
            "http://example.org/",
            "<locations>",
            "<locations><location></locations>",
            "<locations/><locations/>",
            "<locations><location id='1' id='2'/></locations>",
            "<locations><location href=a/></locations>",
            "<locations><location href='a<b'/></locations>",
            "<locations><location href='a&b'/></locations>",
            "<locations><location href='&undefined;'/></locations>",
            "<locations>&undefined;</locations>",
            "<locations><location href='&#0;'/></locations>",
            "<locations><location href='&#xD800;'/></locations>",
            "<locations><location href='a\x00b'/></locations>",
            "<locations><location href='a\x01b'/></locations>",
            "<x:locations><location/></x:locations>",
            "<!-- only a comment -->",
            "<?xml version='1.0'?>",
            "<" * 1000,
            "\x00",
            # Nested deeper than libxml2 allows, in 64 KiB and in more.
            "<a>" * 9_000 + "</a>" * 9_000,
            "<a>" * 21_000,
        ],
    )
    def test_text_that_is_not_xml_is_malformed(self, xml: str) -> None:
        with pytest.raises(MalformedLocations):
            read_locations(xml)

    @pytest.mark.parametrize(
        "xml",
        [
            "<!DOCTYPE locations><locations/>",
            "<!DOCTYPE locations SYSTEM 'http://127.0.0.1:1/x.dtd'><locations/>",
            "<!DOCTYPE l [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><l><location href='&x;'/></l>",
            "<!DOCTYPE l [<!ENTITY % p SYSTEM 'http://127.0.0.1:1/p'>%p;]><l/>",
            "<!DOCTYPE l [<!ATTLIST location href CDATA 'http://evil.example/'>]><l><location/></l>",
            LAUGHS,
        ],
    )
    def test_a_doctype_is_never_read(self, xml: str) -> None:
        with pytest.raises(MalformedLocations, match="DOCTYPE"):
            read_locations(xml)

    def test_the_size_is_counted_in_bytes_of_utf_8(self) -> None:
        room = MAX_XML_BYTES - len("<l></l>")
        assert read_locations(f"<l>{'a' * room}</l>") == Locations(settings={})
        for text in ("a" * (room + 1), "ä" * (room // 2 + 1), "<a/>" * 1_000_000):
            with pytest.raises(MalformedLocations, match="longer than"):
                read_locations(f"<l>{text}</l>")

    def test_lone_surrogates_are_replaced(self) -> None:
        assert only("<l><location href='a\ud800b'/></l>").get("href") == "a?b"

    @given(st.text(max_size=200))
    @example("<l>" * 300)
    @example("<l><location href='\ud800'/></l>")
    def test_any_text_is_parsed_or_malformed(self, text: str) -> None:
        for xml in (text, f"<l>{text}</l>", f"<l><location href='{text}' weight='{text}'/></l>"):
            try:
                read = read_locations(xml)
            except MalformedLocations:
                continue
            assert all(item.weight >= 0 for item in read.items)

    @given(st.text(max_size=40))
    def test_any_text_is_a_finite_number(self, text: str) -> None:
        assert abs(parse_number(text, 1.0)) < float("inf")
