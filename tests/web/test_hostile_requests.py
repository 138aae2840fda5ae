"""Broken and hostile requests: a clear 4xx, never a 5xx, and nothing of theirs comes back unescaped.

That no header holds a line break and no body the word <script> is checked for every answer by `tests.web.proxy`.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

#: What a request may get from a resolver whose upstream is well.
STATUSES: Final = {200, 301, 302, 400, 404, 414}
MARKUP: Final = "<script>alert(1)</script>"
ENCODED: Final = "%3Cscript%3Ealert(1)%3C/script%3E"


@table(
    ("path", "status"),
    [
        # Escapes that are none.
        (b"/10.5555/%", 400),
        (b"/10.5555/%zz", 400),
        # Bytes that are no UTF-8: truncated, overlong, a surrogate, beyond U+10FFFF, raw Latin-1.
        (b"/10.5555/%C3", 400),
        (b"/10.5555/\xe4", 400),
        (b"/%FF", 400),
        # Controls inside a name; at its ends they are blanks and are trimmed.
        (b"/10.5555/a%00b", 400),
        (b"/10.5555/a%09b", 400),
        (b"/10.5555/a%0D%0ASet-Cookie:%20a=b", 400),
        (b"/10.5555/a\r\nSet-Cookie: a=b", 400),
        (b"/10.5555/a\x00b", 400),
        # Odd but possible code points are sent upstream as typed.
        (b"/10.5555/a%E2%80%AEb", 404),
        (b"/10.5555/%F0%9F%98%80", 404),
        # Markup and its relatives.
        (f"/10.5555/{ENCODED}".encode(), 404),
        (f"/10.5555/{MARKUP}".encode(), 404),
        (f"/{ENCODED}".encode(), 400),
        (f"/{MARKUP}".encode(), 400),
        (b"/10.5555/%22%20onload=%22alert(1)", 404),
        (b"/javascript:alert(1)", 400),
        # Paths out of the tree are names like any other.
        (b"/../../etc/passwd", 400),
        (b"/10.5555/..", 404),
        # Other hosts.
        (b"/https://evil.example/10.1000/182", 400),
        (b"/https://doi.org.evil.example/10.1000/182", 302),
        # Long.
        (b"/10.5555/" + b"a" * 8184, 404),
        (b"/10.5555/" + b"a" * 8185, 414),
        (b"/" + b"a" * 40_000, 414),
        (b"/" + b"/" * 20_000, 200),
        (b"/10" + b".1" * 4000 + b"/x", 404),
        (b"/urn:doi:" + b":" * 8000, 400),
    ],
    ids=lambda value: repr(value)[2:40] if isinstance(value, bytes) else str(value),
)
async def test_a_path(proxy: Proxy, path: bytes, status: int) -> None:
    for method in ("GET", "HEAD", "POST"):
        assert (await proxy.ask(method, path)).status == status


@table("path", [b"/10.5555/%zz", b"/10.5555/%FF", b"/10.5555/a%00b", b"/" + b"a" * 40_000, b"/10.5555/" + b"a" * 9000])
@table("start", [b"", b"/api/handles"])
async def test_a_name_that_can_be_none_is_no_question(proxy: Proxy, path: bytes, start: bytes) -> None:
    before = proxy.upstream.queries()
    assert (await proxy.get(start + path)).status in (400, 414)
    assert proxy.upstream.queries() == before


@table(
    "query",
    [
        b"%",
        b"%zz=%zz",
        b"noredirect=%FF%FE",
        b"type=" + ENCODED.encode(),
        b"type=" + b"a" * 30_000,
        b"type=a%00b&type=%0D%0A",
        b"&".join(b"type=x" for _ in range(4000)),
        b"&".join(b"index=1" for _ in range(4000)),
        b"index=" + b"9" * 10_000,
        b"index=1e9&index=0x1&index=%D9%A1",
        b"index=-9999999999",
        b"&" * 30_000,
        b";" * 30_000,
        b"=" * 30_000,
        b"a;b&c=d=e;;=&=",
        b"action=" + ENCODED.encode(),
        b"auth=" + b"x" * 10_000,
        b"\xff\xfe\x00\x01",
        b"\r\nX-Evil: 1",
        b"urlappend=" + ENCODED.encode(),
        b"urlappend=%00",
        b"urlappend=%FF",
        b"urlappend=" + b"a" * 20_000,
        b"urlappend=%ED%A0%80",
        b"locatt=" + ENCODED.encode(),
        b"country=" + ENCODED.encode(),
        b"pretty=%FF",
        b"callback=" + ENCODED.encode() * 100,
        b"callback=" + b"a" * 30_000,
        b"callback=%0D%0AX:1",
        b"callback=%00%FF%E2%80%A8",
        b"a" * 32_000,
    ],
    ids=lambda query: repr(query)[2:40],
)
@table("path", ["/10.1000/182", "/api/handles/10.1000/182", "/10.5555/unknown", "/", "/openurl"])
async def test_a_query(proxy: Proxy, path: str, query: bytes) -> None:
    for method in ("GET", "POST"):
        assert (await proxy.ask(method, path.encode() + b"?" + query)).status in STATUSES


async def test_a_query_that_is_too_long_is_414(proxy: Proxy) -> None:
    assert (await proxy.get(b"/10.1000/182?" + b"a" * 33_000)).status == 414


@table(
    ("kind", "body", "status"),
    [
        ("application/x-www-form-urlencoded", b"hdl=" + b"a" * 70_000, 413),
        ("application/x-www-form-urlencoded", b"hdl=10.1000/" + b"a" * 4_089, 413),
        ("application/x-www-form-urlencoded", b"a" * 300_000, 413),
        ("application/x-www-form-urlencoded", b"hdl=%", 400),
        ("application/x-www-form-urlencoded", b"hdl=%25zz", 400),
        ("application/x-www-form-urlencoded", b"hdl=10.5555/\xff", 404),
        ("application/x-www-form-urlencoded", b"hdl=10.5555/a%00b", 400),
        ("application/x-www-form-urlencoded", b"hdl=10.5555/a%0D%0Ab", 400),
        ("application/x-www-form-urlencoded", b"hdl=10.5555/" + ENCODED.encode(), 404),
        ("application/x-www-form-urlencoded", b"hdl=" + MARKUP.encode(), 400),
        ("application/x-www-form-urlencoded", b"hdl=https://evil.example/", 400),
        ("application/x-www-form-urlencoded", b"&" * 60_000, 200),
        ("application/x-www-form-urlencoded", b"\x00\x01\x02", 200),
        ("application/json", b"{", 400),
        ("application/json", b"[" * 60_000, 400),
        ("application/json", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400),
        ("application/json", b"\xff", 400),
        ("application/json", b'{"hdl":"10.5555/\\ud800"}', 400),
        ("application/json", b'{"hdl":"10.5555/\\u0000"}', 400),
        ("application/json", b'{"hdl":{"a":[1]}}', 400),
        ("application/json", b'{"hdl":' + b"9" * 5000 + b"}", 400),
        ("application/json", b'{"hdl":1e999}', 400),
        ("application/json", b'{"hdl":["10.1000/182","x"]}', 302),
        ("multipart/form-data; boundary=x", b"--x\r\n", 200),
        ("text/plain", b"hdl=10.1000/182", 200),
        ("application/x-hdl-message", b"\x02\x0b\x02\x0b", 200),
        ("\xff;;==", b"hdl=x", 200),
    ],
    ids=lambda value: repr(value)[2:44] if isinstance(value, bytes) else str(value)[:16],
)
async def test_a_body(proxy: Proxy, kind: str, body: bytes, status: int) -> None:
    assert (await proxy.post("/", body, content_type=kind)).status == status


HEADERS: Final = {
    "host": ["evil.example:99999", "..", "%00"],
    "accept": ["*/*," * 5000, "\xff", ";;;,,,", "q=;q=q", "a/b;q=" + "9" * 400, "text/html;q=1e999", MARKUP],
    "accept-language": ["de;q=nan," * 2000, "-" * 5000, "\xff", "*;q=0", "en;q=2", "a-" * 3000, MARKUP],
    "if-none-match": ['"' * 5000, "W/" * 5000, "\xff", ",,,", MARKUP],
    "user-agent": ["", "\xff" * 5000, MARKUP, "Mozilla/" * 1000],
    "origin": ["\xff", MARKUP, "null" * 1000],
    "content-type": ["\xff", "application/json", ";" * 5000],
    "cookie": ["a=" + "b" * 60_000],
    "x-forwarded-for": ["1.2.3.4, " * 1000, "\xff", "::ffff:1.2.3.4%eth0"],
    "x-forwarded-proto": ["javascript", "\xff"],
    "access-control-request-method": ["GET" * 1000, "\xff"],
    "range": ["bytes=0-1", "bytes=" + "0-1," * 1000],
    "referer": [MARKUP, "\xff"],
}


@table(
    ("header", "value"),
    [(header, value) for header, values in HEADERS.items() for value in values],
    ids=lambda value: value[:24].encode("ascii", "replace").decode(),
)
async def test_a_header(proxy: Proxy, header: str, value: str) -> None:
    expected = {"/": 200, "/10.1000/182": 302, "/10.5555/unknown": 404, "/foo": 400}
    for path, status in expected.items():
        assert (await proxy.get(path, **{header: value})).status == status
    assert (await proxy.get("/api/handles/10.1000/182", **{header: value})).status == 200


@pytest.mark.parametrize("names", ["x-a, x-b", "x" * 8000, "*", "<b>", "a\tb"])
async def test_what_a_preflight_asks_for_comes_back_as_a_header_at_most(proxy: Proxy, names: str) -> None:
    reply = await proxy.ask(
        "OPTIONS", "/10.1000/182", access_control_request_method="GET", access_control_request_headers=names
    )
    assert (reply.status, reply.body) == (204, b"")


@pytest.mark.parametrize("names", ["\xff", "é"])
async def test_header_names_that_are_not_ascii_are_not_echoed(proxy: Proxy, names: str) -> None:
    reply = await proxy.ask(
        "OPTIONS", "/10.1000/182", access_control_request_method="GET", access_control_request_headers=names
    )
    assert reply.status in (204, 400)


@table("record", ["10.5555/<b>x</b>", '10.5555/" onclick="x', "10.5555/'&amp;", "10.5555/\u202ex"])
@table("face", ["/{}", "/{}?noredirect", "/{}?type=NOPE", "/{}/"])
async def test_a_name_is_shown_escaped(proxy: Proxy, record: str, face: str) -> None:
    values = [{"index": 1, "type": f"<i>{record}", "data": {"format": "string", "value": record}, "ttl": 1}]
    proxy.upstream.put(record, values)
    path = "".join(f"%{byte:02X}" for byte in record.encode())
    reply = await proxy.get(face.format(path))
    assert reply.status in (200, 404)
    assert not re.search(r"<b>|<i>|\" onclick", reply.text)


@pytest.mark.parametrize(
    "place", ['http://x"><b>evil/', "http://<b>evil/", "javascript:<b>1", "//[<b>", "http://\xff/"]
)
async def test_where_the_upstream_redirects_to_is_shown_escaped(proxy: Proxy, place: str) -> None:
    name = proxy.name()
    proxy.upstream.fault(name, "redirect", location=place)
    reply = await proxy.get("/" + name)
    assert reply.status == 502
    assert "<b>" not in reply.text


PATHS: Final = st.builds(
    bytes.__add__,
    st.sampled_from(
        [
            b"/",
            b"/10.5555/",
            b"/10.5555/",
            b"/api/handles/",
            b"/api/handles/10.5555/",
            b"/api/",
            b"/doi:10.5555/",
            b"/urn:doi:10.5555:",
            b"/https://doi.org/10.5555/",
        ]
    ),
    st.one_of(
        st.binary(max_size=40).map(lambda given: given.replace(b"?", b"")),
        st.text(max_size=20).map(lambda given: given.encode("utf-8", "surrogatepass").replace(b"?", b"")),
        st.binary(max_size=20).map(lambda given: "".join(f"%{byte:02x}" for byte in given).encode()),
        st.text(max_size=15).map(
            lambda given: "".join(f"%{byte:02X}" for byte in given.encode("utf-8", "surrogatepass")).encode()
        ),
        st.text(alphabet="%/.:;+,&=#20aA\\", max_size=20).map(str.encode),
    ),
)
QUERIES: Final = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["type", "index", "noredirect", "urlappend", "callback", "pretty", "action", "hdl", "locatt"]
            ),
            st.text(max_size=8),
        ),
        max_size=4,
    ).map(lambda pairs: "&".join(f"{key}={value}" for key, value in pairs).encode("utf-8", "surrogatepass")),
)


@settings(max_examples=examples(6))
@given(method=st.sampled_from(["GET", "HEAD", "POST"]), path=PATHS, query=QUERIES)
@example(method="GET", path=b"/10.5555/..", query=b"")
@example(method="GET", path=b"/10.5555/%2E%2E/%2e", query=b"")
@example(method="GET", path=b"/api/handles/..", query=b"")
@example(method="GET", path=b"/api/handles/.%2F..%2F", query=b"")
@example(method="GET", path=b"/api/handles/%2F", query=b"")
@example(method="GET", path=b"/10.5555/\xc2\xa0", query=b"")
@example(method="GET", path=b"/10.5555/%ef%bf%bf", query=b"callback=\xff")
async def test_any_path_and_query_get_an_answer(proxy: Proxy, method: str, path: bytes, query: bytes) -> None:
    reply = await proxy.ask(method, path + b"?" + query)
    assert reply.status in STATUSES


@settings(max_examples=examples(2))
@given(kind=st.sampled_from(["application/x-www-form-urlencoded", "application/json", ""]), body=st.binary(max_size=80))
async def test_any_body_gets_an_answer(proxy: Proxy, kind: str, body: bytes) -> None:
    replies: list[Reply] = [
        await proxy.post(path, body, content_type=kind) for path in ("/", "/10.1000/182", "/api/handles/10.1000/182")
    ]
    assert {reply.status for reply in replies} <= STATUSES
