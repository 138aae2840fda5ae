"""`/api/handles/<handle>`: exact bytes, as programs that parse the reference's answers expect them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

URL_VALUE = b'{"index":1,"type":"URL","data":{"format":"string","value":"http://www.doi.org/hb.html"},"ttl":86400}'
ADMIN_VALUE = (
    b'{"index":100,"type":"HS_ADMIN","data":{"format":"admin","value":{"handle":"0.na/10.1000","index":200,'
    b'"permissions":"111111111110","legacyByteLength":true}},"ttl":86400,"timestamp":"2003-04-15T22:21:17Z"}'
)
HANDBOOK = [
    {"index": 1, "type": "URL", "data": {"format": "string", "value": "http://www.doi.org/hb.html"}, "ttl": 86400},
    {
        "index": 100,
        "type": "HS_ADMIN",
        "data": {
            "format": "admin",
            "value": {"handle": "0.na/10.1000", "index": 200, "permissions": "111111111110", "legacyByteLength": True},
        },
        "ttl": 86400,
        "timestamp": "2003-04-15T22:21:17Z",
    },
]


def one(**members: Any) -> list[dict[str, Any]]:
    """A record of one value."""
    return [{"index": 1, "type": "URL", "data": {"format": "string", "value": "x"}, "ttl": 86400, **members}]


#: One record for each shape that a value can have; each must come through byte by byte.
SHAPES: dict[str, list[dict[str, Any]]] = {
    "alias": one(type="HS_ALIAS", data={"format": "string", "value": "10.1000/182"}),
    "unknown-member": one(zz={"a": [1, None, True]}, aa="x"),
    "big-number": one(data={"format": "string", "value": "123456789012345678901234567890"}),
    "html": one(data={"format": "string", "value": "<b>&'\"</b>"}),
    "not-ascii": one(data={"format": "string", "value": "Grüße, 世界 \U0001f600"}),
    "escapes": one(data={"format": "string", "value": "a\tb\nc\\d/e"}),
    "members-in-another-order": [{"ttl": 60, "data": {"value": "x", "format": "string"}, "type": "URL", "index": 1}],
}


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", HANDBOOK)
        proxy.upstream.put("10.5555/empty", [])
        proxy.upstream.put("10.5555/Types", [*one(), *one(index=2, type="URL.x"), *one(index=3, type="Email")])
        proxy.upstream.put("10.5555", one(type="HS_SERV"))
        proxy.upstream.put("0.NA/10.5555", one(type="HS_SERV"))
        proxy.upstream.put("20.500.12345/1", url="x")
        for name, values in SHAPES.items():
            proxy.upstream.put(f"10.5555/{name}", values)
        yield proxy


BOTH = b"[" + URL_VALUE + b"," + ADMIN_VALUE + b"]"


@table(
    ("target", "status", "body"),
    [
        ("10.1000/182", 200, b'{"responseCode":1,"handle":"10.1000/182","values":' + BOTH + b"}"),
        ("10.1000/182?type=URL", 200, b'{"responseCode":1,"handle":"10.1000/182","values":[' + URL_VALUE + b"]}"),
        ("10.1000/182?index=1&index=100", 200, b'{"responseCode":1,"handle":"10.1000/182","values":' + BOTH + b"}"),
        ("10.1000/182?type=EMAIL", 200, b'{"responseCode":200,"values":[],"handle":"10.1000/182"}'),
        ("10.5555/empty", 200, b'{"responseCode":200,"values":[],"handle":"10.5555/empty"}'),
        ("10.5555/Nope", 404, b'{"responseCode":100,"handle":"10.5555/Nope"}'),
        ("10.5555/%3Cb%3E%22%5C", 404, b'{"responseCode":100,"handle":"10.5555/<b>\\"\\\\"}'),
        ("10.1000/182/", 404, b'{"responseCode":100,"handle":"10.1000/182/"}'),
        (
            "10.5555/a%E2%80%A8b%E2%80%A9%E2%80%93",
            404,
            '{"responseCode":100,"handle":"10.5555/a\\u2028b\\u2029–"}'.encode(),
        ),
    ],
)
async def test_the_answer_is_exactly_this(proxy: Proxy, target: str, status: int, body: bytes) -> None:
    reply = await proxy.get("/api/handles/" + target)
    assert (reply.status, reply.body) == (status, body)
    assert reply["content-type"] == "application/json;charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/api/handles/10.5555/%E2%80%A8?callback=f",
        "/api/handles/10.5555/separators?callback=f",
        "/doiRA/10.5555%2F%E2%80%A8",
        "/10.5555/a%E2%80%A8b",
    ],
)
async def test_no_answer_has_a_character_that_ends_a_line_of_javascript(proxy: Proxy, path: str) -> None:
    proxy.upstream.put("10.5555/separators", one(data={"format": "string", "value": "a\u2028b"}))
    body = (await proxy.get(path, accept="application/json")).body
    assert b"\\u2028" in body
    assert "\u2028".encode() not in body


@table(
    ("path", "handle"),
    [
        ("10.5555/TYPES", "10.5555/TYPES"),
        ("10.5555", "10.5555"),
        ("0.NA/10.5555", "0.NA/10.5555"),
        ("20.500.12345/1", "20.500.12345/1"),
    ],
)
async def test_the_caller_s_spelling_is_echoed(proxy: Proxy, path: str, handle: str) -> None:
    found = (await proxy.get("/api/handles/" + path)).json
    assert (found["responseCode"], found["handle"]) == (1, handle)


@table("shape", SHAPES)
async def test_a_value_comes_through_untouched_in_its_order(proxy: Proxy, shape: str) -> None:
    reply = await proxy.get(f"/api/handles/10.5555/{shape}")
    expected = b'{"responseCode":1,"handle":"10.5555/%b","values":%b}' % (
        shape.encode(),
        msgspec.json.encode(SHAPES[shape]),
    )
    assert reply.body == expected


@table(
    ("query", "indexes"),
    [
        ("type=URL", [1]),
        ("type=URL.", [1, 2]),
        ("type=EMAIL&index=2", [2, 3]),
        ("type=EMAIL;index=2", []),
        ("index=%201", None),
        ("index=+1", None),
        ("type=%ff", None),
        ("type=", []),
        ("Type=EMAIL", [1, 2, 3]),
    ],
)
async def test_type_and_index_are_a_union_in_record_order(proxy: Proxy, query: str, indexes: list[int] | None) -> None:
    reply = await proxy.get(f"/api/handles/10.5555/Types?{query}")
    if indexes is None:
        assert (reply.status, reply.json["responseCode"]) == (400, 4)
    else:
        assert [value["index"] for value in reply.json["values"]] == indexes


@table(
    ("target", "status", "code"),
    [
        ("/api/handles", 400, 102),
        ("/api/handles/%zz", 400, 102),
        ("/api/handles/10.5555/a%00b", 400, 102),
        ("/api/handles/" + "a" * 9000, 414, 102),
        ("/api/handles/10.1000/182?index=abc", 400, 4),
        ("/api/foo", 404, 4),
        ("/api", 404, 4),
        ("/api/handlesx/10.1000/182", 404, 4),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_bad_request_has_its_status_and_response_code(
    proxy: Proxy, target: str, status: int, code: int
) -> None:
    before = proxy.upstream.queries()
    reply = await proxy.get(target)
    assert (reply.status, reply["content-type"]) == (status, "application/json;charset=utf-8")
    assert reply.json["responseCode"] == code and reply.json["message"]
    assert proxy.upstream.queries() == before


@pytest.mark.parametrize("target", ["10.1000/182?x=" + "a" * 33_000, "a" * 33_000], ids=["query", "path"])
async def test_an_address_that_is_too_long_is_refused_by_the_api(proxy: Proxy, target: str) -> None:
    reply = await proxy.get("/api/handles/" + target)
    assert (reply.status, reply["content-type"]) == (414, "application/json;charset=utf-8")
    assert reply.json["responseCode"] in (4, 102)


@table("name", ["", "/", "//", "%2F", "?lenient=true", "/?lenient=true"])
async def test_a_name_of_slashes_alone_is_empty_and_not_sent_upstream(proxy: Proxy, name: str) -> None:
    queries = proxy.upstream.queries()
    got = await proxy.get(f"/api/handles/{name}")
    assert (got.status, got.body) == (400, b'{"responseCode":102,"message":"Empty handle invalid"}')
    assert proxy.upstream.queries() == queries


async def test_an_unknown_endpoint_says_what_the_reference_says(proxy: Proxy) -> None:
    unknown = b'{"responseCode":4,"message":"Unknown HTTP API endpoint GET /api/foo"}'
    assert (await proxy.get("/api/foo")).body == unknown


@pytest.mark.parametrize("path", ["/API/handles/10.1000/182", "/api/Handles/10.1000/182", "/Api/HANDLES/10.1000/182"])
async def test_the_path_of_the_api_may_be_in_either_case(proxy: Proxy, path: str) -> None:
    assert (await proxy.get(path)).json["responseCode"] == 1


@table(
    ("callback", "name"),
    [
        ("processResponse", "processResponse"),
        ("", ""),
        ("a.b", "a_b"),
        ("a.b%20c(1)", "a_b_c_1_"),
        ("$_x9", "$_x9"),
        ("9x", "_x"),
        ("alert(1)//", "alert_1___"),
        ("%3Cscript%3E", "_script_"),
        ("%0D%0A", "__"),
        ("%E2%80%A8x", "_x"),
        ("f%C3%BCr", "für"),
        ("%C2%9F%C2%A0", "_\u00a0"),
        ("a=b", "a_b"),
    ],
)
async def test_jsonp_wraps_the_answer_in_a_scrubbed_name(proxy: Proxy, callback: str, name: str) -> None:
    plain = await proxy.get("/api/handles/10.1000/182?type=URL")
    reply = await proxy.get(f"/api/handles/10.1000/182?type=URL&callback={callback}")
    assert reply.body == name.encode() + b"(" + plain.body + b");"
    assert (reply.status, reply["content-type"]) == (200, "application/javascript;charset=utf-8")


@pytest.mark.parametrize(
    ("target", "status"),
    [("10.5555/nope", 404), ("", 400), ("10.1000/182?index=x", 400), ("10.5555/%ff", 400), ("10.5555/empty", 200)],
)
async def test_jsonp_keeps_the_status_of_any_answer(proxy: Proxy, target: str, status: int) -> None:
    plain = await proxy.get("/api/handles/" + target)
    reply = await proxy.get(f"/api/handles/{target}{'&' if '?' in target else '?'}callback=f")
    assert (plain.status, reply.status, reply.body) == (status, status, b"f(" + plain.body + b");")


@pytest.mark.parametrize(
    ("query", "is_pretty"),
    [
        ("pretty", True),
        ("pretty=false", False),
    ],
)
async def test_pretty_is_a_boolean(proxy: Proxy, query: str, is_pretty: bool) -> None:
    reply = await proxy.get(f"/api/handles/10.1000/182?{query}")
    assert (
        reply.body.startswith(b'{\n  "responseCode": 1,\n  "handle": "10.1000/182",\n  "values": [\n    {') is is_pretty
    )
    assert not reply.body.endswith(b"\n")
    assert reply.json == (await proxy.get("/api/handles/10.1000/182")).json


async def test_pretty_and_callback_go_together(proxy: Proxy) -> None:
    reply = await proxy.get("/api/handles/10.5555/nope?pretty&callback=f")
    assert reply.body == b'f({\n  "responseCode": 100,\n  "handle": "10.5555/nope"\n});'


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("auth", "auth=true"),
        ("auth&cert", "auth=true&cert=true"),
        ("auth=false", None),
    ],
)
async def test_flags_of_the_api_are_read_as_booleans(proxy: Proxy, query: str, sent: str | None) -> None:
    name = proxy.name()
    proxy.upstream.put(name, url="x")
    await proxy.get(f"/api/handles/{name}")
    reply = await proxy.get(f"/api/handles/{name}?{query}")
    assert proxy.upstream.queries(name) == (2 if sent else 1)
    assert proxy.upstream.targets[-1].partition("?")[2] == (sent or "")
    assert (reply["cache-control"] == "no-store") is (sent is not None)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", "type=URL"),
        ("application/x-www-form-urlencoded;charset=UTF-8", "type=%55RL&pretty=false"),
        ("application/json", '{"type":"URL"}'),
        ("application/json; charset=utf-8", '{"type":["URL"],"pretty":false,"auth":false}'),
        ("application/json", '{"index":1}'),
    ],
)
async def test_a_post_asks_like_a_get(proxy: Proxy, kind: str, body: str) -> None:
    get = await proxy.get("/api/handles/10.1000/182?type=URL")
    reply = await proxy.post("/api/handles/10.1000/182", body, content_type=kind)
    assert (reply.status, reply.body) == (200, get.body)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b'"x"', b"[" * 5000, b"\xff", b'{"a":'], ids=lambda body: body[:6].hex()
)
async def test_a_post_of_bad_json_is_a_bad_request_of_the_api(proxy: Proxy, body: bytes) -> None:
    reply = await proxy.post("/api/handles/10.1000/182", body, content_type="application/json")
    assert (reply.status, reply["content-type"]) == (400, "application/json;charset=utf-8")
    assert reply.json["responseCode"] == 4


async def test_a_post_that_is_too_large_is_refused_by_the_api(proxy: Proxy) -> None:
    reply = await proxy.post("/api/handles/10.1000/182", "type=" + "a" * 100_000)
    assert (reply.status, reply["content-type"]) == (413, "application/json;charset=utf-8")


async def test_a_form_reaches_the_api_by_its_path(proxy: Proxy) -> None:
    assert (await proxy.post("/", "hdl=api/handles/10.1000/182")).json["handle"] == "10.1000/182"


async def test_action_api_is_the_same_answer(proxy: Proxy) -> None:
    plain = await proxy.get("/api/handles/10.1000/182")
    assert (await proxy.get("/10.1000/182?action=api")).body == plain.body


@pytest.mark.parametrize("weak", ["", "W/"])
async def test_who_holds_the_answer_gets_304(proxy: Proxy, weak: str) -> None:
    first = await proxy.get("/api/handles/10.1000/182")
    tag = first["etag"]
    assert tag is not None
    for known in (weak + tag, f'"other", {weak}{tag}', "*"):
        reply = await proxy.get("/api/handles/10.1000/182", if_none_match=known)
        # A client with a compressed body knows the weak tag, and gets it again.
        assert (reply.status, reply["etag"], reply.body) == (304, tag if known == "*" else weak + tag, b"")
        assert reply["cache-control"] == first["cache-control"]
    assert (await proxy.head("/api/handles/10.1000/182", if_none_match=tag)).status == 304


@pytest.mark.parametrize("known", ['"other"', "", "garbage", '"'])
async def test_who_holds_another_answer_gets_this_one(proxy: Proxy, known: str) -> None:
    assert (await proxy.get("/api/handles/10.1000/182", if_none_match=known)).status == 200


async def test_the_etag_tells_every_form_of_the_answer_apart(proxy: Proxy) -> None:
    targets = ["10.1000/182", "10.1000/182?type=URL", "10.1000/182?pretty", "10.1000/182?callback=f", "10.5555/html"]
    tags = {(await proxy.get("/api/handles/" + target))["etag"] for target in targets}
    assert len(tags) == len(targets)


async def test_a_changed_record_has_another_etag(proxy: Proxy) -> None:
    name = proxy.name()
    proxy.upstream.put(name, url="http://example.org/a")
    first = await proxy.get(f"/api/handles/{name}")
    proxy.upstream.put(name, url="http://example.org/b")
    reply = await proxy.get(f"/api/handles/{name}?auth", if_none_match=str(first["etag"]))
    assert (reply.status, reply["etag"] != first["etag"]) == (200, True)


async def test_not_found_is_never_304(proxy: Proxy) -> None:
    assert (await proxy.get("/api/handles/10.5555/nope", if_none_match="*")).status == 404


async def test_a_post_is_never_304(proxy: Proxy) -> None:
    # RFC 9110, section 13.1.2: 304 answers GET and HEAD alone.
    reply = await proxy.post("/api/handles/10.1000/182", "", if_none_match="*")
    assert reply.status != 304


async def test_page_and_api_share_one_question(proxy: Proxy) -> None:
    name = proxy.name()
    proxy.upstream.put(name, url="http://example.org/")
    for target in (f"/api/handles/{name}", f"/{name}", f"/{name}?noredirect", f"/api/handles/{name.upper()}?type=URL"):
        assert (await proxy.get(target)).status in (200, 302)
    assert proxy.upstream.queries(name) == 1
