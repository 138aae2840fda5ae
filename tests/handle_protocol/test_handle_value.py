"""Handle values: every data format, old bare strings, types and their subtypes, and TTLs (RFC 3651, section 3.1)."""

from __future__ import annotations

import json

import pytest

from handle_protocol.dump import UnusableAnswer
from handle_protocol.value import DEFAULT_TTL, Data, HandleValue, Ttl, read_ttl, read_value
from tests.table import table


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
    with pytest.raises(UnusableAnswer, match="number"):
        read_value(b'{"index":1,"type":"X","data":[' + b"9" * 4301 + b"]}")
    for data in (b"[" + b"9" * 4300 + b"]", b'["' + b"9" * 5000 + b'"]', b'"' + b"9" * 5000 + b'"'):
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


def test_a_ttl_of_millions_of_years_is_bounded() -> None:
    assert read_ttl(10**40).seconds == 100 * 365 * 86400


@pytest.mark.parametrize("digits", [309, 400, 4_000])
def test_a_ttl_of_hundreds_of_digits_is_bounded(digits: int) -> None:
    century = 100 * 365 * 86400.0
    assert (read_ttl(10**digits), read_ttl(-(10**digits))) == (Ttl(century), Ttl(-century))
