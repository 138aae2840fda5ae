"""The URL of a query, and what an answer says besides a record: Retry-After, and registration agencies."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.presentation import decode
from doi_proxy.errors import InvalidAnswer
from doi_proxy.upstream.client import agency_url, encode_name, handle_query_url
from doi_proxy.upstream.source import read_agencies, read_retry_after
from tests.table import table

#: Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110, section 5.6.7.
THEN = 784_111_777.0


@table(
    ("value", "seconds", "source"),
    [
        ("120", 120.0, "RFC 9110, section 10.2.3: delay-seconds"),
        (" 5 ", 5.0, "RFC 9110, section 5.5: optional white space"),
        ("0", 0.0, "RFC 9110, section 10.2.3"),
        ("3601", 3600.0, "bounded by an hour"),
        ("9" * 5000, 3600.0, "bounded by an hour"),
        ("000000120", 120.0, "nine digits are read"),
        ("0000000120", 3600.0, "more are bounded by an hour"),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 60.0, "RFC 9110, section 5.6.7: IMF-fixdate"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 60.0, "RFC 9110, section 5.6.7: rfc850-date"),
        ("Sun Nov  6 08:49:37 1994", 60.0, "RFC 9110, section 5.6.7: asctime-date"),
        ("Sun, 06 Nov 2094 08:49:37 GMT", 3600.0, "bounded by an hour"),
        ("Sun, 06 Nov 1984 08:49:37 GMT", 0.0, "in the past"),
        ("", None, "absent"),
        ("soon", None, "neither"),
        ("-5", None, "neither"),
        ("1.5", None, "neither"),
        ("٣", None, "digits of ASCII alone"),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None, "no day"),
        ("Sun, 06 Nov 99999999 08:49:37 GMT", None, "no year"),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None, source: str) -> None:
    assert read_retry_after(value, THEN - 60) == seconds, source


@pytest.mark.usefixtures("western_machine")
@pytest.mark.parametrize("zone", ["", " GMT", " -0000"])
def test_a_date_is_utc_wherever_the_machine_is(zone: str) -> None:
    assert read_retry_after(f"Sun, 06 Nov 1994 08:49:37{zone}", THEN - 60) == 60.0


# --- Answers of the Which RA service ---------------------------------------------------------------------------------


def test_rows_are_read_in_order_without_unknown_members() -> None:
    body = b'[{"DOI": "10.5240", "RA": "EIDR", "more": 1}, {"DOI": "notadoi", "status": "Invalid DOI"}]'
    assert read_agencies(body, ["10.5240", "notADoi"]) == [
        {"DOI": "10.5240", "RA": "EIDR"},
        {"DOI": "notadoi", "status": "Invalid DOI"},
    ]


@table(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b"[]",
        b"[1]",
        b'[{"DOI":"10.5240"}]',
        b'[{"DOI":"10.5240","RA":""}]',
        b'[{"DOI":"10.5240","RA":1}]',
        b'[{"DOI":"10.9999","RA":"EIDR"}]',
        b'[{"DOI":"10.5240","RA":"EIDR"},{"DOI":"10.5240","RA":"EIDR"}]',
        b"[" * 20_000,
        b'[{"DOI":"\xff","RA":"EIDR"}]',
    ],
)
def test_anything_else_is_no_valid_answer(body: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        read_agencies(body, ["10.5240"])


# --- The URL of a question -------------------------------------------------------------------------------------------


BASE = "https://doi.example"

ENCODED = [
    # name, path, source
    ("10.1000/182", "10.1000/182", '"doi" URI scheme, Syntax'),
    (
        "10.6338/JDA.202212/SP_17(4).0000",
        "10.6338/JDA.202212%2FSP_17(4).0000",
        '"doi" URI scheme, the example of a slash in the suffix',
    ),
    (
        "10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03",
        "10.26321/%C3%81.GUTI%C3%89RREZ.ZARZA.02.2018.03",
        '"doi" URI scheme, the example of letters that are not ASCII',
    ),
    ("10.123/a-b._~", "10.123/a-b._~", "RFC 3986, section 2.3: unreserved"),
    ("10.123/!$&'()*+,;=", "10.123/!$&'()*+,;=", "RFC 3986, section 2.2: sub-delims"),
    ("10.123/a:b@c", "10.123/a:b@c", "RFC 3986, section 3.3: pchar"),
    ('10.123/%"# ?', "10.123/%25%22%23%20%3F", "DOI Handbook, mandatory encoding"),
    (r"10.123/<>{}^[]`|\+", "10.123/%3C%3E%7B%7D%5E%5B%5D%60%7C%5C+", "DOI Handbook, recommended encoding"),
    ("10.123/a%2Fb", "10.123/a%252Fb", "RFC 3986, section 2.4: never encoded twice, never decoded twice"),
    ("10.1000//182", "10.1000/%2F182", "an empty segment would be merged by front proxies"),
    ("10.1000/182/", "10.1000/182%2F", "the slash at the end is part of the name"),
    ("10.1000/", "10.1000/", "the empty suffix"),
    ("10.5517", "10.5517", "a prefix alone"),
    ("0.NA/10.1000", "0.NA/10.1000", "RFC 3651, section 3: a prefix handle"),
    ("20.500.12345/a/b", "20.500.12345/a%2Fb", "a handle that is no DOI name"),
    ("/10.1000/182", "%2F10.1000%2F182", "a name with a leading slash is another name"),
    ("10.1000/.", "10.1000%2F.", "RFC 3986, section 5.2.4: dot segments are removed"),
    ("10.1000/..", "10.1000%2F..", "RFC 3986, section 5.2.4"),
    ("../x", "..%2Fx", "RFC 3986, section 5.2.4"),
    ("..", "%2E%2E", "RFC 3986, section 5.2.4"),
    ("10.1000/...", "10.1000/...", "three dots are no dot segment"),
]


@table(("name", "path", "source"), ENCODED, ids=lambda value: repr(value)[:40])
def test_a_name_is_sent_in_the_form_of_the_doi_uri_scheme(name: str, path: str, source: str) -> None:
    assert handle_query_url(BASE, name) == f"{BASE}/api/handles/{path}", source


@given(st.text(st.sampled_from("./%?#a1ä +;\\"), min_size=1, max_size=12))
def test_what_goes_over_the_wire_decodes_to_the_name(name: str) -> None:
    url = httpx.URL(handle_query_url(BASE, name))
    assert decode(url.raw_path.removeprefix(b"/api/handles/")) == name


@given(st.text(st.sampled_from("./a%"), min_size=1, max_size=12))
def test_no_path_holds_a_dot_segment(name: str) -> None:
    assert not {".", ".."} & set(encode_name(name).split("/"))


@pytest.mark.parametrize("base", ["https://library.example/doi", "https://library.example/doi/"])
def test_the_base_may_have_a_path(base: str) -> None:
    assert handle_query_url(base, "10.1000/182") == "https://library.example/doi/api/handles/10.1000/182"


def test_names_asked_for_their_agency_are_separated_by_commas_and_hold_none() -> None:
    url = agency_url(BASE, ["10.5240", "10.1000/a,b/c"])
    assert url == f"{BASE}/ra/10.5240,10.1000/a%2Cb%2Fc"
