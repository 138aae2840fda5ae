"""The bounds of what is read of a record, as numbers: a changed bound is a changed promise."""

from __future__ import annotations

import json
from ipaddress import ip_network

import pytest

from handle_protocol.dump import ServerRefused, UnusableAnswer
from handle_protocol.referral import read_answer
from handle_protocol.value import (
    Location,
    Locations,
    MalformedLocations,
    Namespace,
    fill_template,
    read_locations,
    read_namespace,
    read_value,
    read_values,
    split_handles,
)
from tests.values import record


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


@pytest.mark.parametrize("digit", [b"0", b"1", b"9"])
def test_a_number_has_at_most_4300_digits_whatever_they_are(digit: bytes) -> None:
    assert read_value(b'{"index":1,"type":"X","data":[1.' + digit * 4_300 + b"]}").index == 1
    with pytest.raises(UnusableAnswer, match="number"):
        read_value(b'{"index":1,"type":"X","data":[1.' + digit * 4_301 + b"]}")


def test_an_element_has_at_most_500_attributes() -> None:
    def element(attributes: int) -> str:
        return "<l><location " + " ".join(f"a{n}=''" for n in range(attributes)) + "/><location b=''/></l>"

    assert len(read_locations(element(500)).items) == 2
    with pytest.raises(MalformedLocations, match="500 attributes"):
        read_locations(element(501))


def test_a_value_has_at_most_65536_bytes() -> None:
    assert read_locations("<l>" + "a" * (65_536 - 7) + "</l>") == Locations(settings={})
    with pytest.raises(MalformedLocations, match="longer than 65536 bytes"):
        read_locations("<l>" + "a" * (65_536 - 6) + "</l>")


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


def test_a_weight_is_at_most_a_trillion() -> None:
    assert Location((("weight", "1e300"),)).weight == 1_000_000_000_000.0


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
