"""Percent-encoding over UTF-8."""

from __future__ import annotations

import pytest

from doi_names.name import MalformedEscape, NotUTF8
from doi_names.presentation import decode, encode
from tests.table import table

RFC_3986 = "RFC 3986, section 2"

DECODED = [
    # raw, text, source
    (b"10.1000/182", "10.1000/182", RFC_3986),
    (b"10.1000%2F182", "10.1000/182", RFC_3986),
    (b"10.1000%2f182", "10.1000/182", "RFC 3986, section 2.1: the digits have either case"),
    (b"%31%30.1000/182", "10.1000/182", RFC_3986),
    (b"a+b", "a+b", "RFC 3986: a plus sign is no space in a path"),
    (b"a%2Bb", "a+b", RFC_3986),
    (b"pct%252F", "pct%2F", "RFC 3986, section 2.4: decoded once"),
    (b"%C3%84%C3%96", "ÄÖ", "RFC 3986, section 2.5"),
    ("Ä%c3%96", "ÄÖ", "RFC 3986, section 2.5"),
    ("ÄÖ".encode(), "ÄÖ", "RFC 3629"),
    (b"", "", RFC_3986),
    (b"%00", "\x00", RFC_3986),
]


@table(("raw", "text", "source"), DECODED)
def test_escapes_are_decoded_once(raw: bytes | str, text: str, source: str) -> None:
    assert decode(raw) == text


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b"%", 1), (b"%4", 1), (b"10.5555/%zz", 9), (b"%41%4", 4), (b"%%41", 1), ("ä%g0", 2), (b"%+1", 1), (b"% 1", 1)],
)
def test_a_broken_escape_is_refused_with_its_place(raw: bytes | str, place: int) -> None:
    with pytest.raises(MalformedEscape, match=f"at character {place} "):
        decode(raw)


@pytest.mark.parametrize(
    ("raw", "byte", "place", "source"),
    [
        (b"10.5555/%C4%D6", "0xC4", 9, "RFC 3629: Latin-1 is no UTF-8"),
        (b"%C3%A4%FF", "0xFF", 2, "RFC 3629, section 3: FF never occurs"),
        (b"%C0%AF", "0xC0", 1, "RFC 3629, section 3: overlong form"),
        (b"%ED%A0%80", "0xED", 1, "RFC 3629, section 3: surrogates"),
        (b"a%E2%82", "0xE2", 2, "RFC 3629: cut short"),
        (b"a\xa0", "0xA0", 2, "RFC 3629"),
        ("a\ud800", "0xED", 2, "RFC 3629, section 3: surrogates"),
    ],
)
def test_bytes_that_are_no_utf_8_are_refused_with_their_place(
    raw: bytes | str, byte: str, place: int, source: str
) -> None:
    with pytest.raises(NotUTF8, match=f"{byte} at character {place} "):
        decode(raw)


def test_all_but_the_unreserved_is_encoded_with_upper_case_digits() -> None:
    assert encode("aZ09-._~/ä\u20ac %") == "aZ09-._~%2F%C3%A4%E2%82%AC%20%25"


@pytest.mark.parametrize("literal", [b"/:", frozenset(b"/:")])
def test_literal_characters_stay(literal: bytes | frozenset[int]) -> None:
    assert encode("a/b:c?d", literal) == "a/b:c%3Fd"


def test_a_surrogate_cannot_be_encoded() -> None:
    with pytest.raises(NotUTF8, match="at character 2 "):
        encode("a\ud800")
