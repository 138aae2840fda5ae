"""Handle values, HS_NAMESPACE and 10320/loc: every data format, types and subtypes, TTLs (RFC 3651, section 3.1)."""

from __future__ import annotations

import json
from ipaddress import ip_network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handle_protocol.errors import ServerRefused, UnusableAnswer
from handle_protocol.location import (
    NO_LOCATIONS,
    Location,
    Locations,
    MalformedLocations,
    Namespace,
    fill_template,
    is_true_setting,
    merge_locations,
    parse_number,
    read_locations,
    read_namespace,
    split_handles,
)
from handle_protocol.referral import read_answer
from handle_protocol.value import DEFAULT_TTL, Data, HandleValue, Ttl, read_ttl, read_value, read_values
from tests.table import table
from tests.values import record


def value(**members: object) -> HandleValue:
    return read_value(json.dumps({"index": 1, "type": "URL", "data": "x", **members}).encode())


@table(
    ("data", "expected"),
    [
        ({"format": "string", "value": "http://example.org/"}, Data("string", "http://example.org/")),
        ("2014-03-25 08:35:11.0", Data("string", "2014-03-25 08:35:11.0")),  # servers before version 8
        ({"format": "base64", "value": "AAEC"}, Data("base64", "AAEC")),
        ({"format": "hex", "value": "000102"}, Data("hex", "000102")),
        (
            {"format": "admin", "value": {"handle": "0.NA/10.1000", "index": 200}},
            Data("admin", {"handle": "0.NA/10.1000", "index": 200}),
        ),
        (
            {"format": "vlist", "value": [{"handle": "10.1000/a", "index": 300}]},
            Data("vlist", [{"handle": "10.1000/a", "index": 300}]),
        ),
        ({"format": "key", "value": {"kty": "RSA"}}, Data("key", {"kty": "RSA"})),
        ({"format": "string", "value": 7}, Data("unknown", 7)),
        (None, Data("unknown", None)),
        (["a"], Data("unknown", ["a"])),
    ],
)
def test_every_format_of_data_is_read(data: object, expected: Data) -> None:
    assert value(data=data).data == expected


def test_only_a_string_is_text() -> None:
    assert value(data="http://example.org/").text == "http://example.org/"
    assert value(data={"format": "base64", "value": "AAEC"}).text is None


def test_data_without_a_format_are_a_string() -> None:
    assert value(data={"value": "http://example.org/"}).text == "http://example.org/"
    assert value(data={"value": 7}).data == Data("unknown", 7)
    assert value(data={"format": "string"}).data == Data("unknown", None)


def test_members_that_are_left_out_have_their_usual_values() -> None:
    read = read_value(b'{"index":7,"type":"Url"}')
    assert (read.index, read.type, read.folded_type, read.text) == (7, "Url", "URL", None)
    assert (read.ttl, read.timestamp, read.permissions, read.references) == (DEFAULT_TTL, None, "1110", ())


@pytest.mark.parametrize(
    ("type_", "wanted", "expected"),
    [
        ("URL", "URL", True),
        ("url", "URL", True),
        ("URL.x", "URL", False),
        ("URL", "URL.", True),
        ("Url.x", "URL.", True),
        ("URLX", "URL.", False),
        ("10320/loc", "10320/LOC", True),
        ("STRASSE", "STRAßE", False),
    ],
)
def test_a_type_matches_letters_of_either_case_and_a_dot_matches_subtypes(
    type_: str, wanted: str, expected: bool
) -> None:
    assert value(type=type_).has_type(wanted) is expected


def test_a_big_integer_in_a_string_stays_a_string() -> None:
    assert value(type="700050", data={"format": "string", "value": "2020100503563800217"}).text == "2020100503563800217"


def test_references_permissions_and_timestamp_are_read() -> None:
    read = value(references=[{"handle": "10.1000/a", "index": 3}], permissions="1111", timestamp="2020-01-01T00:00:00Z")
    assert (read.references, read.permissions, read.timestamp) == ((("10.1000/a", 3),), "1111", "2020-01-01T00:00:00Z")


def test_a_number_with_too_many_digits_is_refused_and_the_same_digits_in_a_string_are_not() -> None:
    for number in (b"9" * 4301, *(b"1." + digit * 4301 for digit in (b"0", b"1", b"9"))):
        with pytest.raises(UnusableAnswer, match="number"):
            read_value(b'{"index":1,"type":"X","data":[' + number + b"]}")
    for data in (
        b"[" + b"9" * 4300 + b"]",
        b"[1." + b"0" * 4300 + b"]",
        b'["' + b"9" * 5000 + b'"]',
        b'"' + b"9" * 5000 + b'"',
    ):
        assert read_value(b'{"index":1,"type":"X","data":' + data + b"}").raw.endswith(data + b"}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (86400, Ttl(86400)),
        (0, Ttl(0)),
        (-1, Ttl(-1)),
        (12.5, Ttl(12.5)),
        ("2030-01-01T00:00:00Z", Ttl(1893456000, absolute=True)),
        ("2030-01-01T02:00:00+02:00", Ttl(1893456000, absolute=True)),
        ("2030-01-01T00:00:00", Ttl(1893456000, absolute=True)),
        ("2016-12-31T23:59:60Z", Ttl(1483228799, absolute=True)),
        ("60", Ttl(60)),
    ],
)
def test_a_ttl_is_seconds_or_an_iso_time_in_utc(given: int | float | str, expected: Ttl) -> None:
    assert read_ttl(given) == expected


@pytest.mark.usefixtures("western_machine")
def test_a_time_without_a_zone_is_utc_wherever_the_machine_is() -> None:
    assert read_ttl("2030-01-01T00:00:00") == Ttl(1893456000, absolute=True)


@pytest.mark.parametrize("given", ["", "soon", "86400s", "2030-13-01T00:00:00Z", float("nan")])
def test_any_other_ttl_cannot_be_read(given: float | str) -> None:
    with pytest.raises(ValueError):
        read_ttl(given)


@table(
    ("member", "odd"),
    [
        ("ttl", '""'), ("ttl", '"soon"'), ("ttl", "true"), ("ttl", "[]"), ("ttl", '{"a":1}'), ("ttl", "1e400"),
        ("timestamp", "[1]"), ("timestamp", "1.5"), ("permissions", "1110"), ("references", '[{"handle":1}]'),
        ("references", '"x"'),
    ],
)  # fmt: skip
def test_a_member_that_cannot_be_read_is_named_and_the_value_stays(member: str, odd: str) -> None:
    members = {"index": "1", "type": '"URL"', "data": '"http://example.org/"'} | {member: odd}
    raw = ("{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}").encode()
    read = read_value(raw)
    assert (read.unread, read.text, read.raw) == ((member,), "http://example.org/", raw)
    assert (read.ttl, read.timestamp, read.permissions, read.references) == (DEFAULT_TTL, None, "1110", ())


@pytest.mark.parametrize("digits", [40, 309, 400, 4_000])
def test_a_ttl_of_many_digits_is_a_century(digits: int) -> None:
    century = 100 * 365 * 86400.0
    assert (read_ttl(10**digits), read_ttl(-(10**digits))) == (Ttl(century), Ttl(-century))


# --- The bounds of what is read of a record, as numbers: a changed bound is a changed promise ------------------------


def networks(*entries: str) -> int:
    return len(Location((("addresses", ",".join(entries)),)).networks)


def test_a_record_has_at_most_1000_values() -> None:
    value = b'{"index":1,"type":"X"}'
    assert len(read_values(b"[" + b",".join([value] * 1_000) + b"]").values) == 1_000
    with pytest.raises(UnusableAnswer, match="1001 values"):
        read_values(b"[" + b",".join([value] * 1_001) + b"]")


def test_the_values_of_a_record_have_at_most_262144_bytes() -> None:
    value = b'[{"index":1,"type":"X","data":"%b"}]'
    room = 262_144 - len(value % b"")
    assert len(read_values(value % (b"x" * room)).values) == 1
    for read in (read_values, lambda values: read_answer(b'{"responseCode":1,"handle":"a","values":%b}' % values, "a")):
        with pytest.raises(UnusableAnswer, match="262145 bytes; the limit is 262144"):
            read(value % (b"x" * (room + 1)))


def test_an_element_has_at_most_500_attributes() -> None:
    def element(attributes: int) -> str:
        return "<l><location " + " ".join(f"a{n}=''" for n in range(attributes)) + "/><location b=''/></l>"

    assert len(read_locations(element(500)).items) == 2
    with pytest.raises(MalformedLocations, match="500 attributes"):
        read_locations(element(501))


def test_a_value_has_at_most_65536_bytes() -> None:
    assert read_locations("<l>" + "a" * (65_536 - 7) + "</l>") == Locations(settings={})
    for text in ("a" * (65_536 - 6), "ä" * (32_768 - 3), "<a/>" * 1_000_000):
        with pytest.raises(MalformedLocations, match="longer than 65536 bytes"):
            read_locations(f"<l>{text}</l>")


def test_the_first_1000_elements_and_the_first_500_locations_count() -> None:
    assert len(read_locations("<l>" + "<a/>" * 999 + "<location/>" * 2 + "</l>").items) == 1
    assert len(read_locations("<l>" + "<location/>" * 501 + "</l>").items) == 500
    many = Locations(tuple(Location(()) for _ in range(300)))
    assert len((many + many).items) == 500


def test_the_first_100_handles_count() -> None:
    names = tuple(f"10.1/{n}" for n in range(101))
    assert split_handles(" ".join(names)) == names[:100]
    elements = "".join(f"<include>{name}</include><includeNamespace>{name}</includeNamespace>" for name in names)
    read = read_locations(f"<l>{elements}</l>")
    assert (read.includes, read.namespaces) == (names[:100], names[:100])
    both = Locations(includes=names[:60], namespaces=names[:60])
    assert (len((both + both).includes), len((both + both).namespaces)) == (100, 100)


def test_the_first_500_networks_count() -> None:
    assert networks(*["192.0.2.0/24"] * 501) == 500
    assert networks(*["192.0.2.0/24"] * 499, "192.0.2.7") == 500


def test_entries_are_counted_up_to_500() -> None:
    assert Location(()).network_entries == 0
    assert Location((("addresses", "192.0.2.7"),)).network_entries == 1
    assert Location((("addresses", "," * 2_000),)).network_entries == 500


def test_nothing_is_read_after_100_entries_that_are_not_networks() -> None:
    assert networks(*["x"] * 99, "192.0.2.7") == 1
    assert networks(*["x"] * 100, "192.0.2.7") == 0
    assert networks("192.0.2.6", *["x"] * 100, "192.0.2.7") == 1


def test_a_network_may_be_written_with_the_address_of_a_host() -> None:
    assert Location((("addresses", " 192.0.2.7/24 "),)).networks == (ip_network("192.0.2.0/24"),)


def test_a_filled_template_has_at_most_16384_characters() -> None:
    # The template's own places count with what they are filled in by.
    assert len(fill_template("a" * (16_384 - 5 - 9) + "{hdl}", "10.5%2Fabc"[:9], "10.5/abc")) == 16_384 - 5
    assert fill_template("a" * (16_384 - 5 - 8) + "{hdl}", "10.5%2Fabc"[:9], "10.5/abc") == ""
    assert fill_template("{hdl}{hdl:path}", "a" * 8_185, "b" * 8_185) == ""


def test_ten_namespace_values_are_looked_at() -> None:
    good = ("HS_NAMESPACE", "<n><locs>10.SERV/A</locs></n>")
    assert read_namespace(record(*[("HS_NAMESPACE", "x")] * 9, good)).locs == ("10.SERV/A",)
    assert read_namespace(record(*[("HS_NAMESPACE", "x")] * 10, good)).locs == ()


def test_namespace_values_share_65536_characters() -> None:
    good = "<n><locs>10.SERV/A</locs></n>"
    for room, locs in ((65_536 - len(good), ("10.SERV/A",)), (65_536 - len(good) + 1, ())):
        found = read_namespace(record(("HS_NAMESPACE", "x" * room), ("HS_NAMESPACE", good)))
        assert found == Namespace(locs=locs)


def test_the_first_100_service_handles_and_1000_elements_of_a_prefix_count() -> None:
    services = tuple(f"10.SERV/{n}" for n in range(101))
    assert read_namespace(record(*(("HS_SERV", name) for name in services))).services == services[:100]
    inner = "".join(f"<locs>{name}</locs>" for name in services)
    assert read_namespace(record(("HS_NAMESPACE", f"<n>{inner}</n>"))).locs == services[:100]
    late = "<n>" + "<a/>" * 999 + "<locs>10.SERV/A</locs><locs>10.SERV/B</locs></n>"
    assert read_namespace(record(("HS_NAMESPACE", late))).locs == ("10.SERV/A",)


def test_a_refusal_repeats_at_most_200_characters_of_the_upstream() -> None:
    with pytest.raises(ServerRefused) as caught:
        read_answer(json.dumps({"responseCode": 2, "message": "m" * 201}).encode(), "10.1000/182")
    assert caught.value.detail == "m" * 200


# --- HS_NAMESPACE: the settings of a prefix record -------------------------------------------------------------------


def read(*xml: str) -> Namespace:
    return read_namespace(record(*(("HS_NAMESPACE", one) for one in xml)))


@pytest.mark.parametrize(
    ("xml", "locs"),
    [
        ("<HS_NAMESPACE><locs>10.SERV/CROSSREF</locs></HS_NAMESPACE>", ("10.SERV/CROSSREF",)),
        # As Crossref documented it in 2011.
        (
            "<HS_NAMESPACE><DOI.RA>0.SERV/10.crossref</DOI.RA><locs>0.SERV/10.crossref</locs></HS_NAMESPACE>",
            ("0.SERV/10.crossref",),
        ),
        ("<n><locs>10.SERV/A</locs><locs> 10.SERV/B\n10.SERV/C </locs></n>", ("10.SERV/A", "10.SERV/B", "10.SERV/C")),
        ("<namespace><locs/></namespace>", ()),
        ("<namespace/>", ()),
        ("<n><other><locs>10.SERV/A</locs></other></n>", ()),
    ],
)
def test_locs_name_the_service_handles(xml: str, locs: tuple[str, ...]) -> None:
    assert read(xml).locs == locs


@pytest.mark.parametrize(
    ("attribute", "expected"), [("", False), ('no_nslocs="true"', True), ('no_nslocs="false"', False)]
)
def test_no_nslocs_stops_the_inheritance_of_locations(attribute: str, expected: bool) -> None:
    assert read(f"<n><locs {attribute}>10.SERV/A</locs></n>").no_nslocs is expected


def test_contact_status_and_status_message_are_texts() -> None:
    found = read(
        "<n><contact> a@example.org </contact><status>Inactive</status><statusmsg>Moved <b>away</b>.</statusmsg></n>"
    )
    assert (found.contact, found.status_message, found.is_inactive) == ("a@example.org", "Moved away.", True)


@pytest.mark.parametrize("status", ["active", "", "inactiv", "not inactive"])
def test_only_inactive_is_inactive(status: str) -> None:
    assert not read(f"<n><status>{status}</status></n>").is_inactive


def test_hs_serv_values_name_service_handles_too() -> None:
    found = read_namespace(record(("HS_SERV", " 10.SERV/DATACITE "), ("HS_SERV", " "), ("URL", "http://a/")))
    assert found.services == ("10.SERV/DATACITE",) and found.locs == ()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([("EMAIL", "b@example.org")], "b@example.org"),
        ([("EMAIL", ""), ("EMAIL", "c@example.org")], "c@example.org"),
        ([("EMAIL", "b@example.org"), ("HS_NAMESPACE", "<n><contact>a@example.org</contact></n>")], "a@example.org"),
        ([], None),
    ],
)
def test_the_contact_is_the_namespace_s_or_an_e_mail_value(values: list[tuple[str, str]], expected: str | None) -> None:
    assert read_namespace(record(*values)).contact == expected


def test_the_well_formed_value_of_the_lowest_index_counts() -> None:
    texts = "garbage", "<n>", "<n><locs>10.SERV/A</locs></n>", "<n><locs>10.SERV/B</locs></n>"
    assert read(*texts).locs == ("10.SERV/A",)
    values = [
        {"index": 9 - index, "type": "HS_NAMESPACE", "data": {"format": "string", "value": text}}
        for index, text in enumerate(texts)
    ]
    assert read_namespace(read_values(json.dumps(values).encode())).locs == ("10.SERV/B",)


@pytest.mark.parametrize(
    "garbage",
    ["", "inactive", "<", "<n><status>inactive</n>", "<!DOCTYPE n><n><status>inactive</status></n>", "<a>" * 20_000],
)
def test_a_malformed_value_is_ignored(garbage: str) -> None:
    assert read(garbage) == Namespace()


def test_data_that_is_not_a_string_is_ignored() -> None:
    values = [
        {"index": 1, "type": "HS_NAMESPACE", "data": data} for data in (None, 7, {"format": "base64", "value": "AA=="})
    ]
    assert read_namespace(read_values(json.dumps(values).encode())) == Namespace()


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for xml in (text, f"<n>{text}</n>", f"<n><locs>{text}</locs></n>"):
        assert all(
            handle == handle.strip()
            for handle in read_namespace(record(("HS_NAMESPACE", xml.encode("utf-8", "replace").decode()))).locs
        )


# --- 10320/loc values: how they are parsed, and that hostile values do no harm ---------------------------------------


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
            ("1e308", 1_000_000_000_000.0), ("9" * 300, 1_000_000_000_000.0),
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
