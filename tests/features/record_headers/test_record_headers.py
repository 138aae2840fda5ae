"""Headers from records: only those that the operator allows, never one that we or the connection depend on."""

from __future__ import annotations

import json

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.record_headers.headers import NEVER, read_allowed, record_headers
from handle_protocol.value import read_values
from tests.table import table
from tests.web.proxy import Proxy

NAME = HandleName("10.5555/a/b")


def record(text: str) -> bytes:
    return json.dumps([{"index": 2, "type": "10320/headers", "data": {"format": "string", "value": text}}]).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("X-Test: hello {hdl}", [(b"x-test", b"hello 10.5555%2Fa%2Fb")]),
        ("X-TEST: {hdl:path}", [(b"x-test", b"10.5555/a/b")]),
        ("X-Other: 1", []),
        ('<meta name="x">\nnocolon\nX-Test:  1 ', [(b"x-test", b"1")]),
        ("X-Test: a\rSet-Cookie: b=c", [(b"x-test", b"a")]),
        ("X-Test: ä", []),
        ("X-Test:", []),
        ("X-Test: " + "a" * 5_000, [(b"x-test", b"a" * 1_000)]),
        ("Location: http://evil.example/", []),
    ],
)
def test_a_line_becomes_a_header_if_its_name_is_allowed(text: str, expected: list[tuple[bytes, bytes]]) -> None:
    allowed = frozenset({b"x-test", b"location", b"set-cookie"})
    assert record_headers(allowed, read_values(record(text)), NAME) == expected


def test_what_we_depend_on_is_never_allowed() -> None:
    text = "\n".join(f"{name.decode()}: x" for name in NEVER)
    assert record_headers(NEVER, read_values(record(text)), NAME) == []


@table(
    "name",
    ["Refresh", "X-Accel-Redirect", "x-accel-buffering", "X-Sendfile", "Clear-Site-Data", "Set-Cookie", "Location",
     "Transfer-Encoding", "Content-Length", "TE", "Connection", "Access-Control-Allow-Credentials", "Cache-Control",
     "Content-Security-Policy-Report-Only", "Proxy-Authenticate"],
)  # fmt: skip
def test_a_header_that_steers_browsers_or_proxies_cannot_be_allowed(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"record_headers: .*{name.lower()}"):
        read_allowed(("X-Test", name))
    assert record_headers(frozenset({name.lower().encode()}), read_values(record(f"{name}: x")), NAME) == []


def test_the_setting_is_a_list_of_names() -> None:
    assert read_allowed(("X-Test", "x-other")) == {b"x-test", b"x-other"}
    with pytest.raises(ValueError, match="'X Test' is not the name of a header"):
        Settings(record_headers=["Link", "X Test"])


@pytest.mark.anyio
@pytest.mark.parametrize(("allowed", "expected"), [("", None), ("X-Test", "hello")])
async def test_the_redirect_carries_them_only_where_the_setting_says_so(allowed: str, expected: str | None) -> None:
    async with Proxy(record_headers=allowed) as proxy:
        url = {"index": 1, "type": "URL", "data": "http://example.org/"}
        headers = {"index": 2, "type": "10320/headers", "data": "X-Test: hello"}
        proxy.upstream.put("10.5555/headers", values=[url, headers])
        answer = await proxy.get("/10.5555/headers")
        assert answer.all("x-test") == ([] if expected is None else [expected])
