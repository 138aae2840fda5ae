"""When a refusing upstream wants to be asked again."""

from __future__ import annotations

import pytest

from doi_proxy.errors import InvalidAnswer
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
