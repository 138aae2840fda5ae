"""Aliases over HTTP: a 301 to this resolver's own URL of the final name, and when there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.table import table
from tests.values import value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

HERE = "http://doi.example.org"
TARGET = "http://example.org/target"


def alias(target: str, ttl: int = 86400) -> list[dict[str, Any]]:
    return [value(1, "HS_ALIAS", target, ttl)]


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        put = proxy.upstream.put
        put("10.1000/target", [value(1, "URL", TARGET), value(2, "DESC", "the target")])
        put("10.5555/alias", alias("10.1000/target", 300))
        put("10.5555/to-alias", alias("10.5555/alias", 4000))
        put("10.5555/self", alias("10.5555/SELF"))
        put("10.5555/loop-a", alias("10.5555/loop-b"))
        put("10.5555/loop-b", alias("10.5555/loop-a"))
        put("10.5555/odd", alias("10.5555/a b#c?d%25/../ä"))
        put("10.5555/a b#c?d%25/../ä", url=TARGET)
        put("10/abcde", alias("10.1000/target"))
        # 21 ends: step-0 is a chain of 21 aliases, step-1 one of 20.
        for number in range(21):
            put(f"10.5555/step-{number}", alias(f"10.5555/step-{number + 1}"))
        put("10.5555/step-21", url=TARGET)
        yield proxy


@table(
    ("path", "location"),
    [
        ("/10.5555/alias", "/10.1000/target"),
        ("/10.5555/step-1", "/10.5555/step-21"),
        ("/10.5555/odd", "/10.5555/a%20b%23c%3Fd%2525/..%2F%C3%A4"),
        # The query is kept as it came.
        ("/10.5555/alias?urlappend=%3Fz", "/10.1000/target?urlappend=%3Fz"),
        ("/10.5555/alias?locatt=id:1;b=%0d&&c", "/10.1000/target?locatt=id:1;b=%0d&&c"),
        ("/10.5555/alias?auth", "/10.1000/target?auth"),
        # shortDOI, with and without its "10/".
        ("/10/abcde", "/10.1000/target"),
        ("/AbcDe?urlappend=x", "/10.1000/target?urlappend=x"),
    ],
)
@table("method", ["GET", "HEAD"])
async def test_an_alias_is_moved_to_the_name_it_stands_for(proxy: Proxy, method: str, path: str, location: str) -> None:
    got = await proxy.ask(method, path)
    assert (got.status, got["location"], got.body) == (301, HERE + location, b"")
    assert got["content-type"] is None


async def test_a_script_sees_where_an_alias_leads(proxy: Proxy) -> None:
    for _ in range(2):
        got = await proxy.get("/10.5555/alias?redirectionHeaders&urlappend=%22%3Cb%3E")
        assert (got.status, got["location"]) == (
            200,
            f"{HERE}/10.1000/target?redirectionHeaders&urlappend=%22%3Cb%3E",
        )
        assert "script" not in (got["content-security-policy"] or "")
        assert got["content-type"] == "text/html;charset=utf-8"
        assert "<b>" not in got.text


async def test_the_host_of_the_request_is_the_host_of_the_location(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/alias", host="dx.example.edu:8080", x_forwarded_host="evil.example")
    assert got["location"] == "http://dx.example.edu:8080/10.1000/target"


async def test_a_host_that_is_not_one_is_not_in_the_location(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/alias", host="user@evil.example")
    assert "evil" not in (got["location"] or "")


async def test_a_handle_that_begins_with_a_slash_names_no_host() -> None:
    async with Proxy(resolve="any") as proxy:
        proxy.upstream.put("10.5555/to-slash", alias("/evil.example/x"))
        proxy.upstream.put("/evil.example/x", url=TARGET)
        got = await proxy.get("/10.5555/to-slash")
        assert (got.status, got["location"]) == (301, f"{HERE}/%2Fevil.example/x")


async def test_an_alias_of_a_handle_that_is_not_resolved_here_leads_to_its_target(proxy: Proxy) -> None:
    name = proxy.name()
    proxy.upstream.put(name, alias("20.500.12345/x"))
    proxy.upstream.put("20.500.12345/x", url=TARGET)
    got = await proxy.get(f"/{name}")
    assert (got.status, got["location"]) == (302, TARGET)


async def test_a_short_lived_target_ends_the_alias_too(proxy: Proxy) -> None:
    name, target = proxy.name(), proxy.name()
    proxy.upstream.put(name, alias(target, 4000))
    proxy.upstream.put(target, url=TARGET, ttl=60)
    got = await proxy.get(f"/{name}")
    assert (got.expires, got.max_age) == (proxy.clock() + 60, 60)


async def test_a_posted_alias_ends_with_the_first_of_the_chain(proxy: Proxy) -> None:
    name = proxy.name()
    proxy.upstream.put(name, alias("10.1000/target", 120))
    assert (await proxy.post("/", f"hdl={name}")).expires == proxy.clock() + 120


@pytest.mark.parametrize("query", ["noredirect", "action=showvalues"])
async def test_the_values_shown_are_the_target_s(proxy: Proxy, query: str) -> None:
    got = await proxy.get(f"/10.5555/alias?{query}")
    assert got.status == 200 and "the target" in got.text and "HS_ALIAS" not in got.text


async def test_the_alias_itself_is_shown_on_demand(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/alias?noredirect&ignore_aliases")
    assert got.status == 200 and "HS_ALIAS" in got.text and "the target" not in got.text


async def test_the_locations_shown_are_the_target_s(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/alias?action=showurls")
    assert got.status == 200 and f'href="{TARGET}"' in got.text


async def test_the_api_asks_for_nothing_but_the_alias(proxy: Proxy) -> None:
    name, target = proxy.name(), proxy.name()
    proxy.upstream.put(name, alias(target))
    await proxy.get(f"/api/handles/{name}")
    await proxy.get(f"/{name}?action=api")
    assert (proxy.upstream.queries(name), proxy.upstream.queries(target)) == (1, 0)


@table("path", ["/10.5555/self", "/10.5555/loop-a", "/10.5555/loop-b", "/10.5555/step-0"])
@table("query", ["", "?noredirect", "?action=showurls"])
async def test_a_loop_or_too_long_a_chain_is_404_and_says_so(proxy: Proxy, path: str, query: str) -> None:
    got = await proxy.get(path + query)
    assert got.status == 404 and got["location"] is None
    assert "alias" in got.text.lower()


async def test_the_page_of_too_long_a_chain_shows_the_name_reached(proxy: Proxy) -> None:
    assert "10.5555/step-20" in (await proxy.get("/10.5555/step-0")).text


async def test_a_silent_target_is_not_said_to_be_missing(proxy: Proxy) -> None:
    name, target = proxy.name(), proxy.name()
    proxy.upstream.put(name, alias(target))
    proxy.upstream.fault(target, "status", status=503)
    assert (await proxy.get(f"/{name}")).status in (502, 503, 504)


async def test_a_short_doi_without_an_alias_shows_its_values(proxy: Proxy) -> None:
    proxy.upstream.put("10/plain1", [value(1, "DESC", "no alias")])
    assert (await proxy.get("/10/plain1")).status == 200
    assert (await proxy.get("/10/none1")).status == 404
