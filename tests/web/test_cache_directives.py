"""What a request's Cache-Control changes (RFC 9111, section 5.2.1; RFC 5861, section 4). See docs/caching.md."""

from __future__ import annotations

from math import inf

import pytest

from doi_proxy.web.stage import NO_DIRECTIVES, CacheDirectives, read_directives
from tests.constants import BYPASSES
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

OLD, NEW = "http://example.org/old", "http://example.org/new"
#: Seconds: a TTL, and an age at which a reload is a new query.
TTL, LATER = 3_600, 60


@table(
    ("header", "expected"),
    [
        (None, NO_DIRECTIVES),
        ("", NO_DIRECTIVES),
        ("no-transform, x=1", NO_DIRECTIVES),
        ("No-Cache", CacheDirectives(max_age=0.0)),
        ("max-age=0", CacheDirectives(max_age=0.0)),
        ('max-age="60" , only-if-cached', CacheDirectives(max_age=60.0, only_if_cached=True)),
        ("max-age=60, no-cache", CacheDirectives(max_age=0.0)),
        ("max-stale", CacheDirectives(max_stale=inf)),
        ("max-stale=5,stale-if-error=7", CacheDirectives(max_stale=5.0, stale_if_error=7.0)),
        ("max-age=99999999999999999999", CacheDirectives(max_age=2_147_483_648.0)),
        ("max-age=-1", NO_DIRECTIVES),
        ("max-age=1.5, max-stale=x", NO_DIRECTIVES),
        ("max-age=²", NO_DIRECTIVES),
        ("max-age=1," + "x" * 1_100, NO_DIRECTIVES),
    ],
)
def test_a_header_is_read_and_what_is_unknown_is_ignored(header: str | None, expected: CacheDirectives) -> None:
    assert read_directives(header) == expected


async def moved(proxy: Proxy, seconds: float) -> str:
    """A cached name whose target has changed since. Returns its path."""
    name = proxy.name()
    proxy.upstream.put(name, url=OLD, ttl=TTL)
    assert (await proxy.get(f"/{name}"))["location"] == OLD
    proxy.upstream.put(name, url=NEW, ttl=TTL)
    proxy.clock.advance(seconds)
    return f"/{name}"


@pytest.mark.parametrize("directive", ["no-cache", "max-age=0", f"max-age={LATER - 1}", "no-cache, stale-if-error=5"])
async def test_a_record_that_is_too_old_for_the_client_is_fetched_again(proxy: Proxy, directive: str) -> None:
    path = await moved(proxy, LATER)
    got = await proxy.get(path, cache_control=directive)
    assert (got["location"], got["cache-status"]) == (NEW, "doi-proxy; fwd=request; stored; ttl=3600")
    assert got["cache-control"] == "public, max-age=300"
    # The answer replaces the entry.
    assert (await proxy.get(path))["location"] == NEW


@pytest.mark.parametrize("directive", [f"max-age={LATER}", "max-age=86400", "max-stale", "no-store", "min-fresh=9999"])
async def test_a_record_that_is_new_enough_is_answered_from_the_cache(proxy: Proxy, directive: str) -> None:
    path = await moved(proxy, LATER)
    assert (await proxy.get(path, cache_control=directive))["location"] == OLD


async def test_the_json_of_a_record_obeys_too(proxy: Proxy) -> None:
    path = await moved(proxy, LATER)
    got = await proxy.get(f"/api/handles{path}?type=URL", cache_control="no-cache")
    assert got.json["values"][0]["data"]["value"] == NEW
    assert got["age"] == "0"


async def test_reloads_within_the_reload_age_share_one_query(proxy: Proxy) -> None:
    path = await moved(proxy, 0)
    before = proxy.upstream.queries()
    for _ in range(20):
        assert (await proxy.get(path, cache_control="no-cache"))["location"] == OLD
    assert proxy.upstream.queries() == before
    proxy.clock.advance(11)
    for _ in range(20):
        assert (await proxy.get(path, cache_control="max-age=0"))["location"] == NEW
    assert proxy.upstream.queries() == before + 1


async def test_a_client_over_its_limit_of_bypasses_gets_the_cached_record() -> None:
    async with Proxy(**{BYPASSES: 2}) as proxy:
        paths = [await moved(proxy, 0) for _ in range(6)]
        proxy.clock.advance(LATER)
        before = proxy.upstream.queries()
        locations = [(await proxy.get(path, cache_control="no-cache"))["location"] for path in paths]
        assert locations == [NEW, NEW, OLD, OLD, OLD, OLD]
        assert proxy.upstream.queries() == before + 2


async def test_without_the_upstream_the_fresh_record_is_the_answer(proxy: Proxy) -> None:
    path = await moved(proxy, LATER)
    proxy.upstream.fault(path[1:], "reset")
    got = await proxy.get(path, cache_control="no-cache")
    assert (got.status, got["location"]) == (302, OLD)
    assert "detail=upstream-unreachable" in (got["cache-status"] or "")


async def test_the_page_of_an_unconfirmed_fresh_record_names_no_end_of_its_ttl(proxy: Proxy) -> None:
    path = await moved(proxy, LATER)
    proxy.upstream.fault(path[1:], "reset")
    fresh = (await proxy.get(f"{path}?noredirect", cache_control="no-cache")).text
    assert "It could not be confirmed again just now." in fresh
    assert "out of date since" not in fresh
    proxy.clock.advance(TTL)
    assert "out of date since" in (await proxy.get(f"{path}?noredirect", cache_control="no-cache")).text


async def test_only_if_cached_never_queries_the_upstream(proxy: Proxy) -> None:
    path = await moved(proxy, TTL + 60)
    before = proxy.upstream.queries()
    stale = await proxy.get(path, cache_control="only-if-cached")
    assert (stale.status, stale["location"]) == (302, OLD)
    unknown = await proxy.get("/10.5555/unknown", cache_control="only-if-cached", accept="application/json")
    assert (unknown.status, unknown.json["type"]) == (504, "/docs#not-cached")
    record = await proxy.get("/api/handles/10.5555/unknown", cache_control="only-if-cached")
    assert (record.status, record.json["responseCode"]) == (504, 2)
    strict = await proxy.get(path, cache_control="only-if-cached, no-cache")
    assert strict.status == 504
    for option in ("auth", "cert"):
        past = await proxy.get(f"{path}?{option}", cache_control="only-if-cached")
        assert past.status == 504
    assert proxy.upstream.queries() == before


@pytest.mark.parametrize(("directive", "location"), [("max-stale", OLD), ("max-stale=60", OLD), ("max-stale=59", NEW)])
async def test_max_stale_accepts_a_stale_record_without_a_query(proxy: Proxy, directive: str, location: str) -> None:
    path = await moved(proxy, TTL + 60)
    assert (await proxy.get(path, cache_control=directive))["location"] == location


@pytest.mark.parametrize("query", ["", "?auth", "?cert"])
@pytest.mark.parametrize(("seconds", "status"), [(0, 502), (59, 502), (60, 302)])
async def test_stale_if_error_bounds_how_stale_an_answer_may_be(
    proxy: Proxy, seconds: int, status: int, query: str
) -> None:
    path = await moved(proxy, TTL + 60)
    proxy.upstream.fault(path[1:], "reset")
    got = await proxy.get(path + query, cache_control=f"stale-if-error={seconds}")
    assert got.status == status
    assert (await proxy.get(path)).status == 302


async def test_a_client_that_refuses_a_stale_record_gets_the_answer_of_a_query_after_a_failure(proxy: Proxy) -> None:
    """The failure that other clients had a moment ago may have ended."""
    path = await moved(proxy, TTL + 60)
    proxy.upstream.fault(path[1:], "reset", count=None)
    assert (await proxy.get(path))["location"] == OLD
    proxy.upstream.heal(path[1:])
    assert (await proxy.get(path, cache_control="stale-if-error=59"))["location"] == NEW
