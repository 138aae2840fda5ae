"""`/<DOI>`: where it leads, for how long, and what is shown where it leads nowhere."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.constants import BYPASSES
from tests.table import table
from tests.values import value
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

HANDBOOK = "http://www.doi.org/hb.html"


RECORDS: dict[str, list[dict[str, Any]]] = {
    "10.1000/182": [
        value(1, "URL", HANDBOOK),
        {
            "index": 100,
            "type": "HS_ADMIN",
            "data": {
                "format": "admin",
                "value": {"handle": "0.na/10.1000", "index": 200, "permissions": "111111111110"},
            },
        },
    ],
    # The order of the record decides, not the index.
    "10.5555/order": [
        value(2, "URL", "http://example.org/two"),
        value(1, "URL", "http://example.org/one"),
        value(3, "EMAIL", "someone@example.org"),
    ],
    "10.5555/no-url": [value(1, "EMAIL", "someone@example.org")],
    "10.5555/empty": [],
    "10.5555/no-path": [value(1, "URL", "http://example.org")],
    "10.5555/query": [value(1, "URL", "http://example.org/q?a=1")],
    "10.5555/ÄÖ": [value(1, "URL", "http://exämple.org/ümlaut?q=ä#f")],
    "10.5555/pct%2F": [value(1, "URL", "http://example.org/pct")],
    "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O": [value(1, "URL", "http://example.org/sici")],
    "10.5555/slash/": [value(1, "URL", "http://example.org/slash")],
    "10.5555/a;b=c": [value(1, "URL", "http://example.org/semicolon")],
    "10.5555/crlf": [value(1, "URL", "http://example.org/\r\nX-Injected: 1")],
    "10.5555/markup": [value(1, "URL", 'http://example.org/"><script>alert(1)</script>')],
    "10.5555/mailto": [value(1, "URL", "mailto:someone@example.org")],
    "10.5555/script": [value(1, "URL", "javascript:alert(1)")],
    "0.NA/10.5555": [value(1, "HS_SERV", "10.SERV/EXAMPLE")],
    "10.5555": [value(1, "HS_SERV", "10.SERV/EXAMPLE")],
    "20.500.12345/1": [value(1, "URL", "http://example.org/handle")],
}


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        for name, values in RECORDS.items():
            proxy.upstream.put(name, values)
        yield proxy


@table(
    "target",
    [
        "/10.1000/182",
        "/10.1000%2F182",
        "//10.1000/182",
        "/doi:10.1000/182",
        "/info:doi/10.1000/182",
        "/urn:doi:10.1000:182",
        "/https://doi.org/10.1000/182",
        "/doi-org.ezproxy.example.edu/10.1000/182",
        "/10.1000/182%20",
        "/10.1000/182?",
        "/10.1000/182?&&;;=",
    ],
)
async def test_every_spelling_of_a_name_leads_to_its_target(proxy: Proxy, target: str) -> None:
    reply = await proxy.get(target)
    assert (reply.status, reply["location"]) == (302, HANDBOOK)


@table(
    ("target", "location"),
    [
        ("/10.5555/%C3%84%C3%96", "http://xn--exmple-cua.org/%C3%BCmlaut?q=%C3%A4#f"),
        ("/10.5555/pct%252F", "http://example.org/pct"),
        ("/10.5555/slash/", "http://example.org/slash"),
        ("/10.5555/a;b=c", "http://example.org/semicolon"),
        ("/10.1002/(SICI)1097-4571(199806)49:8%3C693::AID-ASI4%3E3.0.CO;2-O", "http://example.org/sici"),
    ],
)
async def test_a_name_is_decoded_exactly_once(proxy: Proxy, target: str, location: str) -> None:
    reply = await proxy.get(target)
    assert (reply.status, reply["location"]) == (302, location)


@table(
    ("target", "status"),
    [
        ("/10.5555/unknown", 404),
        ("/10.1000/182+", 404),
        ("/10.1000/182/", 404),
        ("/99.99999/x", 400),
        ("/foo", 400),
        ("/10.1000:182", 400),
        ("/10./x", 400),
        ("/20.500.12345/1", 400),
        ("/0.NA/10.5555", 400),
    ],
)
async def test_another_name_is_not_found_and_no_name_is_no_doi(proxy: Proxy, target: str, status: int) -> None:
    reply = await proxy.get(target)
    assert (reply.status, reply["location"], reply["content-type"]) == (status, None, "text/html;charset=utf-8")


@table(
    ("target", "location"),
    [
        ("/10.5555/order", "http://example.org/two"),
        ("/10.5555/order?index=1", "http://example.org/one"),
        ("/10.5555/order?index=1&type=EMAIL", "http://example.org/one"),
        ("/10.5555/order?type=URL.", "http://example.org/two"),
        ("/10.5555/order?index=3", None),
        ("/10.5555/no-url", None),
        ("/10.5555/empty", None),
        ("/10.5555", None),
    ],
)
async def test_the_first_url_of_the_values_asked_for_is_the_target(
    proxy: Proxy, target: str, location: str | None
) -> None:
    reply = await proxy.get(target)
    assert (reply.status, reply["location"]) == (302 if location else 200, location)


@pytest.mark.parametrize("target", ["/10.5555/empty", "/10.5555/no-url?type=URL"])
async def test_a_page_without_the_values_asked_for_says_so(proxy: Proxy, target: str) -> None:
    assert "no public values of the kind you asked for" in (await proxy.get(target)).text


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("10.5555/crlf", "http://example.org/%0D%0AX-Injected:%201"),
        ("10.5555/mailto", "mailto:someone@example.org"),
        ("10.5555/script", None),
    ],
)
async def test_no_redirect_leads_where_a_browser_should_not_go(proxy: Proxy, name: str, location: str | None) -> None:
    reply = await proxy.get("/" + name)
    assert (reply.status, reply["location"]) == (302 if location else 200, location)


@pytest.mark.parametrize(
    "query",
    [
        "noredirect",
        "type=URL&noredirect",
        "action=showvalues",
    ],
)
async def test_noredirect_shows_the_values(proxy: Proxy, query: str) -> None:
    reply = await proxy.get(f"/10.1000/182?{query}")
    assert (reply.status, reply["location"], HANDBOOK in reply.text) == (200, None, True)
    assert ("HS_ADMIN" in reply.text) is ("type=URL" not in query)


@table(
    ("target", "location"),
    [
        ("/10.1000/182?urlappend=%3Fa%3Db", HANDBOOK + "?a=b"),
        ("/10.1000/182?urlappend=%252F", HANDBOOK + "%2F"),
        ("/10.5555/query?urlappend=%26b%3D2", "http://example.org/q?a=1&b=2"),
    ],
)
async def test_urlappend_goes_behind_the_target(proxy: Proxy, target: str, location: str) -> None:
    reply = await proxy.get(target)
    assert (reply.status, reply["location"]) == (302, location)


@pytest.mark.parametrize(
    "append", [".evil.example/", "@evil.example/", ":8080/", "%5C@evil.example", "%09.evil.example"]
)
async def test_urlappend_may_not_change_the_host(proxy: Proxy, append: str) -> None:
    reply = await proxy.get(f"/10.5555/no-path?urlappend={append}")
    assert (reply.status, reply["location"]) == (400, None)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("10.1000/182", HANDBOOK),
        ("10.5555/markup", "http://example.org/&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"),
    ],
)
async def test_the_body_of_a_redirect_links_to_the_target_as_the_record_has_it(
    proxy: Proxy, name: str, shown: str
) -> None:
    reply = await proxy.get("/" + name)
    assert re.findall(r"<title>(.*)</title>", reply.text) == ["Handle Redirect"]
    assert re.findall(r'<a href="([^"]*)">([^<]*)</a>', reply.text) == [(shown, shown)]
    assert reply["content-type"] == "text/html;charset=utf-8"


async def test_a_redirect_varies_by_accept_and_a_page_by_language(proxy: Proxy) -> None:
    assert "Accept" in ((await proxy.get("/10.1000/182"))["vary"] or "").split(", ")
    assert "Accept-Language" in ((await proxy.get("/10.1000/182?noredirect"))["vary"] or "").split(", ")


async def test_expires_counts_down_while_a_record_is_cached() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url=HANDBOOK, ttl=1000)
        first = await proxy.get("/10.1000/182")
        proxy.clock.advance(850)
        second = await proxy.get("/10.1000/182")
        assert first.expires == second.expires == proxy.clock.now + 150
        assert second.max_age == 150
        assert proxy.upstream.queries("10.1000/182") == 1


@pytest.mark.parametrize(
    "target", ["/10.1000/182?noredirect", "/10.5555/unknown", "/10.5555/empty", "/10.1000/182?type=NOPE", "/foo", "/"]
)
async def test_a_page_has_no_expires(proxy: Proxy, target: str) -> None:
    assert (await proxy.get(target))["expires"] is None


@table(("path", "lifetime"), [("/10.1000/182", 600), ("/api/handles/10.1000/182", 600), ("/10.5555/unknown", 60)])
@table("step", [-3_600, -30])
async def test_after_the_clock_was_set_back_nothing_that_is_sent_exceeds_the_lifetime_of_the_record(
    path: str, lifetime: int, step: int
) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url=HANDBOOK, ttl=600)
        for _ in range(3):
            await proxy.get(path)
        proxy.clock.advance(step)
        for _ in range(2):
            got = await proxy.get(path)
            (ttl,) = re.findall(r"ttl=(-?[0-9]+)", got["cache-status"] or "")
            assert int(ttl) <= lifetime and (got.max_age or 0) <= lifetime
            assert got.expires is None or got.expires <= proxy.clock() + lifetime


async def test_a_not_found_page_may_be_kept_for_the_negative_ttl() -> None:
    async with Proxy(cache_negative_ttl=60) as proxy:
        await proxy.get("/10.5555/unknown")
        proxy.clock.advance(20)
        reply = await proxy.get("/10.5555/unknown")
        assert (reply.status, reply.max_age, proxy.upstream.queries("10.5555/unknown")) == (404, 40, 1)


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("auth", "auth=true"),
        ("auth&cert", "auth=true&cert=true"),
        ("type=URL;auth", "auth=true"),
    ],
)
async def test_auth_and_cert_count_by_presence_and_ask_each_time(proxy: Proxy, query: str, sent: str) -> None:
    name = proxy.name()
    proxy.upstream.put(name, url="http://example.org/old")
    await proxy.get("/" + name)
    proxy.upstream.put(name, url="http://example.org/new")
    reply = await proxy.get(f"/{name}?{query}")
    assert (reply["location"], reply["cache-control"]) == ("http://example.org/new", "no-store")
    assert proxy.upstream.targets[-1].partition("?")[2] == sent
    # The answer replaces the entry.
    assert (await proxy.get("/" + name))["location"] == "http://example.org/new"
    assert proxy.upstream.queries(name) == 2
    assert (await proxy.get(f"/{name}?noredirect&{query}"))["cache-control"] == "no-store"


@pytest.mark.parametrize("start", ["/", "/api/handles/"])
async def test_only_the_client_that_bypasses_the_cache_too_often_waits(start: str) -> None:
    async with Proxy(**{BYPASSES: 2}) as proxy:
        proxy.upstream.put("10.1000/182", url=HANDBOOK)
        targets = [f"{start}10.1000/182?{flag}" for flag in ("auth", "cert", "auth")]
        replies = [await proxy.get(target) for target in targets]
        assert [reply.status for reply in replies[:2]] == [(await proxy.get(start + "10.1000/182")).status] * 2
        assert (replies[2].status, replies[2]["retry-after"], replies[2]["location"]) == (429, "30", None)
        assert replies[2]["cache-control"] == "no-store"
        assert proxy.upstream.queries("10.1000/182") == 2
        assert (await proxy.ask("GET", targets[0], client="2001:db8::1")).status == replies[0].status
        proxy.clock.advance(30)
        assert (await proxy.get(targets[0])).status == replies[0].status


@table(
    "target",
    [
        "/10.1000/182",
        "/10.1000/182?noredirect",
        "/10.5555/no-url",
        "/10.5555/unknown",
        "/foo",
        "/",
        "/10.5555/%zz",
        "/api/handles/10.1000/182",
        "/api/handles/10.1000/182?type=EMAIL",
        "/api/handles/10.5555/unknown",
        "/api/handles/10.1000/182?index=x",
        "/doiRA/10.1000/182",
        "/api/nothing",
    ],
)
async def test_head_is_get_without_a_body(proxy: Proxy, target: str) -> None:
    await proxy.get(target)  # now both are answered from the cache
    get, head = await proxy.get(target), await proxy.head(target)
    assert (head.status, head.fields, head.body) == (get.status, get.fields, b"")


@table(
    ("body", "status"),
    [
        ("hdl=10.1000%2F182", 302),
        ("hdl=+doi:10.1000/182+", 302),
        ("hdl=https://doi.org/10.1000/182?noredirect%23x", 302),
        ("hdl=10.1000%252F182", 302),
        ("hdl=10.1000/182&noredirect=", 200),
        ("hdl=10.5555/unknown", 404),
        ("hdl=not+a+doi", 400),
        ("hdl=10.5555/%25zz", 400),
        ("hdl=", 200),
        ("hdl=+++", 200),
        ("", 200),
    ],
)
async def test_the_form_resolves_what_was_typed(proxy: Proxy, body: str, status: int) -> None:
    reply = await proxy.post("/", body)
    assert (reply.status, reply["location"]) == (status, HANDBOOK if status == 302 else None)


async def test_the_form_can_be_sent_in_parts(proxy: Proxy) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="hdl"\r\n\r\n10.1000/182\r\n--x--\r\n'
    assert (await proxy.post("/", body, content_type="multipart/form-data; boundary=x"))["location"] == HANDBOOK
    assert (await proxy.post("/", body, content_type="multipart/form-data")).status == 400


@table("path", ["/api/handles/10.1000/182", "/ra/10.1000", "/openurl?id=doi:10.1000/182", "/mcp", "/purge"])
async def test_the_name_of_the_form_counts_on_no_other_path(proxy: Proxy, path: str) -> None:
    reply = await proxy.post(path, "hdl=10.5555/unknown")
    assert reply.text == (await proxy.post(path, "")).text
    assert "10.5555/unknown" not in reply.text


@table("path", ["/", "/10.1000/182"])
async def test_the_name_of_the_form_does_not_count_in_a_query(proxy: Proxy, path: str) -> None:
    assert (await proxy.post(f"{path}?hdl=10.5555/unknown", "")).status in (200, 302)


async def test_the_page_about_a_text_without_a_doi_says_its_reason_once(proxy: Proxy) -> None:
    typed = (await proxy.post("/", "hdl=about+us")).text
    assert (typed.count("A DOI begins with 10."), "Reason:" in typed) == (1, False)
    escape = (await proxy.post("/", "hdl=10.5555/%25zz")).text
    assert ("A DOI begins with 10." in escape, "two hexadecimal digits" in escape) == (False, True)


async def test_a_get_with_hdl_shows_the_form(proxy: Proxy) -> None:
    reply = await proxy.get("/?hdl=10.1000/182")
    assert reply.status == 200
    assert 'name="hdl"' in reply.text


async def test_a_post_to_a_name_without_a_form_is_answered_like_a_get(proxy: Proxy) -> None:
    assert (await proxy.post("/10.1000/182", ""))["location"] == HANDBOOK


async def test_names_of_either_kind_resolve_where_any_may() -> None:
    async with Proxy(resolve="any") as proxy:
        proxy.upstream.put("20.500.12345/1", url="http://example.org/handle")
        proxy.upstream.put("0.NA/10.5555", [value(1, "HS_SERV", "x")])
        assert (await proxy.get("/20.500.12345/1"))["location"] == "http://example.org/handle"
        assert (await proxy.get("/0.NA/10.5555")).status == 200
        assert (await proxy.get("/foo")).status == 404
        assert (await proxy.get("/10.1000/")).status == 404
        assert (await proxy.get("/")).status == 200


@pytest.mark.parametrize("public_url", ["https://library.example.edu/doi", "https://library.example.edu/doi/"])
@pytest.mark.parametrize("path", ["", "/doi"], ids=["stripped by the front proxy", "kept"])
async def test_under_a_sub_path_names_resolve_and_links_stay_below_it(public_url: str, path: str) -> None:
    async with Proxy(public_url=public_url) as proxy:
        proxy.upstream.put("10.1000/182", url=HANDBOOK)
        assert (await proxy.get(f"{path}/10.1000/182"))["location"] == HANDBOOK
        assert (await proxy.get(f"{path}/api/handles/10.1000/182")).json["responseCode"] == 1
        assert (await proxy.get(f"{path}/healthz")).json == {"status": "ok"}
        for page in (await proxy.get(f"{path}/"), await proxy.get(f"{path}/10.1000/182/")):
            own = [one for one in re.findall(r'(?:href|action)="([^"]*)"', page.text) if one.startswith("/")]
            assert own and all(one.startswith("/doi/") for one in own)


async def test_a_sub_path_without_its_slash_is_the_home_page() -> None:
    async with Proxy(public_url="https://library.example.edu/doi") as proxy:
        assert 'name="hdl"' in (await proxy.get("/doi")).text
        assert (await proxy.get("/doi:10.1000/182")).status == 404
        assert (await proxy.get("/doix/10.1000/182")).status == 400


async def test_the_public_url_goes_before_the_host() -> None:
    async with Proxy(public_url="https://library.example.edu/doi/") as proxy:
        proxy.upstream.put("10.1000/182", url=HANDBOOK)
        proxy.upstream.put("10.5555/alias", [value(1, "HS_ALIAS", "10.1000/182")])
        reply = await proxy.get("/10.5555/alias", host="evil.example")
        assert reply["location"] == "https://library.example.edu/doi/10.1000/182"


async def test_nothing_of_a_hostile_host_is_shown(proxy: Proxy) -> None:
    replies: list[Reply] = [
        await proxy.get(path, host='"><b>evil') for path in ("/", "/foo", "/10.5555/unknown", "/docs")
    ]
    assert not [reply for reply in replies if "evil" in reply.text]


async def test_a_record_that_leads_to_its_own_address_shows_its_values_and_the_reason() -> None:
    async with Proxy(public_url="https://doi.example.org") as proxy:
        proxy.upstream.put("10.1000/self", url="https://doi.example.org/10.1000/self")
        for _ in range(2):
            got = await proxy.get("/10.1000/self", accept="text/html")
            assert (got.status, got["location"]) == (200, None)
            assert "would never end" in got.text
