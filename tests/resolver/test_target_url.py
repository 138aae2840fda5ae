"""What may stand in a `Location` header."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import InvalidParameter
from doi_proxy.resolver.target import web_target
from tests.table import table


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
