"""Local records win over the cache and the upstream in every face, and are marked as what they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fake_upstream import FakeUpstream
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

HERE = "https://repository.example.org/17"
ELSEWHERE = "http://publisher.example.net/17"
LOCAL = "doi-proxy; hit; detail=local"
LOCATIONS = '<locations><location href="https://mirror.example.org/a" weight="1"/></locations>'
RECORDS = f"""
[[record]]
doi = "10.5072/Target"
target = "{HERE}"

[[record]]
doi = "10.5072/gone"
tombstone = {{ reason = "Withdrawn by the author.", date = 2026-03-01 }}

[[record]]
doi = "10.5072/alias"
alias = "10.5072/target"

[[record]]
doi = "10.5072/outward"
alias = "10.5072/registered"

[[record]]
doi = "10.5072/values"
values = [
    {{ index = 7, type = "URL", data = {{ format = "string", value = "{HERE}" }}, ttl = 60 }},
    {{ index = 8, type = "EMAIL", data = "library@example.org" }},
]

[[record]]
doi = "10.5072/locations"
values = '''[{{"index": 1, "type": "10320/loc", "data": {{"format": "string", "value":
    "<locations><location href='https://mirror.example.org/a' weight='1'/></locations>"}}}}]'''

[[record]]
doi = "10.5072/ended"
target = "{HERE}"
until = 2020-12-31

[[record]]
prefix = "10.5072"
deny = "This prefix is for tests."

[[record]]
prefix = "10.5072.1"
target = "{HERE}/{{suffix}}?id={{doi}}"

[[record]]
doi = "10.5072/registered"
target = "{HERE}/registered"
"""
NAMES = ("Target", "gone", "alias", "values", "locations")


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    path = tmp_path / "records.toml"
    path.write_text(RECORDS)
    async with Proxy(local_records=path) as proxy:
        for name in NAMES:
            proxy.upstream.put(f"10.5072/{name}", url=ELSEWHERE)
        yield proxy


@pytest.mark.parametrize("name", ["10.5072/Target", "10.5072/TARGET", "10.5072/values"])
@pytest.mark.parametrize("query", ["", "?auth", "?nols=y"])
async def test_a_target_is_a_redirect_whatever_the_upstream_says(proxy: Proxy, name: str, query: str) -> None:
    for ask in (proxy.get, proxy.head, proxy.get):
        reply = await ask(f"/{name}{query}")
        assert (reply.status, reply["location"], reply["cache-status"]) == (302, HERE, LOCAL)
        assert (reply.max_age, reply.expires) == (300, proxy.clock() + 300)
    assert proxy.upstream.queries() == 0


async def test_a_target_is_a_handle_record_with_one_value(proxy: Proxy) -> None:
    reply = await proxy.get("/api/handles/10.5072/taRGet")
    assert (reply.status, reply["cache-status"], reply["age"]) == (200, LOCAL, None)
    value = {"index": 1, "type": "URL", "data": {"format": "string", "value": HERE}, "ttl": 86400}
    assert reply.json == {"responseCode": 1, "handle": "10.5072/taRGet", "values": [value]}
    assert (await proxy.get("/api/handles/10.5072/target?auth=true")).json["values"] == [value]


async def test_a_tombstone_is_410_for_readers_and_code_100_for_programs(proxy: Proxy) -> None:
    for query in ("", "?noredirect", "?action=showurls"):
        page = await proxy.get(f"/10.5072/gone{query}", accept_language="de")
        assert (page.status, page["cache-status"]) == (410, LOCAL)
        assert "Withdrawn by the author." in page.text
        assert "1. März 2026" in page.text
    rest = await proxy.get("/api/handles/10.5072/gone")
    assert (rest.status, rest["cache-status"]) == (404, LOCAL)
    message = "Withdrawn by the author. (2026-03-01)"
    assert rest.json == {"responseCode": 100, "handle": "10.5072/gone", "message": message}
    assert proxy.upstream.queries() == 0


async def test_an_alias_is_followed_and_shown(proxy: Proxy) -> None:
    reply = await proxy.get("/10.5072/alias")
    assert (reply.status, reply["cache-status"]) == (301, LOCAL)
    assert str(reply["location"]).endswith("/10.5072/target")
    rest = await proxy.get("/api/handles/10.5072/alias")
    assert [(one["type"], one["data"]["value"]) for one in rest.json["values"]] == [("HS_ALIAS", "10.5072/target")]


async def test_an_alias_of_the_upstream_leads_to_a_local_record(proxy: Proxy) -> None:
    proxy.upstream.put("10.1000/a", [{"index": 1, "type": "HS_ALIAS", "data": "10.5072/gone", "ttl": 60}])
    for _ in range(2):
        assert (await proxy.get("/10.1000/a")).status == 410


async def test_locations_are_those_of_the_record_and_not_of_the_prefix(proxy: Proxy) -> None:
    reply = await proxy.get("/10.5072/locations")
    assert (reply.status, reply["location"]) == (302, "https://mirror.example.org/a")
    listed = await proxy.get("/10.5072/locations?action=showurls")
    assert (listed.status, listed["cache-status"]) == (200, LOCAL)
    assert "https://mirror.example.org/a" in listed.text
    metadata = await proxy.get("/10.5072/target", accept="application/vnd.citationstyles.csl+json")
    assert (metadata.status, metadata["location"]) == (302, HERE)
    assert proxy.upstream.queries() == 0


async def test_a_denied_prefix_is_403_for_readers_and_programs(proxy: Proxy) -> None:
    for target in ("/10.5072/x", "/10.5072", "/10.5072.2/x", "/10.5072/ended"):
        page = await proxy.get(target)
        assert (page.status, page["cache-control"]) == (403, "no-store")
        assert page["proxy-status"] == 'doi-proxy; error=http_request_denied; details="prefix-denied"'
        assert "This prefix is for tests." in page.text
        rest = await proxy.get(f"/api/handles{target}")
        assert (rest.status, rest.json["responseCode"]) == (403, 2)
        assert rest.json["message"] == "This prefix is for tests."
    assert proxy.upstream.queries() == 0


async def test_the_longest_prefix_wins_and_its_target_is_filled_in(proxy: Proxy) -> None:
    for name in ("10.5072.1/a/b%3F&c", "10.5072.1.7/a/b%3F&c"):
        reply = await proxy.get(f"/{name}")
        encoded = name.replace("/", "%2F").replace("&", "%26")
        assert (reply.status, reply["location"]) == (302, f"{HERE}/a/b%3F&c?id={encoded}")
        assert reply["cache-status"] == LOCAL


async def test_which_ra_knows_the_name_and_asks_for_the_prefix_alone(proxy: Proxy) -> None:
    proxy.upstream.put("10.1000", [{"index": 1, "type": "HS_SERV", "data": "10.SERV/CROSSREF", "ttl": 60}])
    proxy.upstream.put("10.SERV/CROSSREF", [{"index": 1, "type": "DESC", "data": "x", "ttl": 60}])
    rows = (await proxy.get("/ra/10.5072/gone,10.5072/target")).json
    # The operator has set one name and withdrawn the other, which does not say that it was never registered. The prefix
    # that would tell their agency is denied.
    assert [row["status"] for row in rows] == ["Could not verify", "Could not verify"]


async def test_local_answers_are_counted(proxy: Proxy) -> None:
    await proxy.get("/10.5072/target")
    await proxy.get("/10.5072/gone")
    await proxy.get("/10.5072/x")
    metrics = (await proxy.get("/metrics")).text
    assert 'doi_proxy_cache_answers_total{kind="local"} 2.0' in metrics
    assert 'doi_proxy_could_not_verify_total{reason="prefix-denied"} 1.0' in metrics
    assert "doi_proxy_local_records 10.0" in metrics


async def test_the_agency_of_a_local_name_is_that_of_its_prefix(tmp_path: Path) -> None:
    path = tmp_path / "records.toml"
    path.write_text('[[record]]\ndoi = "10.1000/only-here"\ntarget = "https://example.org"\n')
    async with Proxy(local_records=path) as proxy:
        proxy.upstream.put("10.1000", [{"index": 1, "type": "HS_SERV", "data": "10.SERV/CROSSREF", "ttl": 60}])
        proxy.upstream.put("10.SERV/CROSSREF", [{"index": 1, "type": "DESC", "data": "x", "ttl": 60}])
        assert (await proxy.get("/ra/10.1000/only-here")).json == [{"DOI": "10.1000/only-here", "RA": "Crossref"}]
        assert proxy.upstream.queries("10.1000/only-here") == 0


async def test_a_prefix_is_asked_at_its_own_upstream(tmp_path: Path) -> None:
    path = tmp_path / "records.toml"
    async with FakeUpstream() as other:
        other.put("10.5072/a", url=HERE)
        url = other.url.replace("127.0.0.1", "localhost")
        path.write_text(f'[[record]]\nprefix = "10.5072"\nupstream = "{url}"\n')
        async with Proxy(local_records=path) as proxy:
            proxy.upstream.put("10.5072/a", url=ELSEWHERE)
            proxy.upstream.put("10.1000/a", url=ELSEWHERE)
            assert (await proxy.get("/10.5072/a"))["location"] == HERE
            assert (await proxy.get("/10.1000/a"))["location"] == ELSEWHERE
            assert (other.queries(), proxy.upstream.queries()) == (1, 1)
            numbers = [one["number"] for one in (await proxy.get("/readyz")).json["upstreams"]]
            assert numbers == [1, 2]
            assert "127.0.0.1, localhost" in (await proxy.get("/privacy")).text


async def use(proxy: Proxy, path: Path, text: str) -> None:
    """Let the service use other local records."""
    path.write_text(text)
    proxy.reload()
    await asyncio.sleep(1)


async def test_a_reload_drops_what_was_prepared(tmp_path: Path) -> None:
    path = tmp_path / "records.toml"
    path.write_text("")
    async with Proxy(local_records=path) as proxy:
        proxy.upstream.put("10.5072/a", url=ELSEWHERE)
        target = f'[[record]]\ndoi = "10.5072/a"\ntarget = "{HERE}"\n'
        refused = '[[record]]\nprefix = "10.5072"\ndeny = "No."\n' + target.replace("/a", "/b")
        for target_path in ("/10.5072/a", "/api/handles/10.5072/a"):
            for text, shown in (("", ELSEWHERE), (target, HERE), ("", ELSEWHERE), (target, HERE), (refused, None)):
                await use(proxy, path, text)
                for _ in range(4):
                    reply = await proxy.get(target_path)
                    assert (reply.status == 403) == (shown is None)
                    assert shown is None or shown in (reply.location or reply.text)
                    assert ("detail=local" in str(reply["cache-status"])) == (shown == HERE)


async def test_a_purge_has_no_effect_on_a_local_record_and_a_cached_one_does_not_win(tmp_path: Path) -> None:
    path = tmp_path / "records.toml"
    path.write_text("")
    async with Proxy(local_records=path) as proxy:
        proxy.upstream.put("10.5072/a", url=ELSEWHERE)
        assert (await proxy.get("/10.5072/a"))["location"] == ELSEWHERE
        await use(proxy, path, f'[[record]]\ndoi = "10.5072/a"\ntarget = "{HERE}"\n')
        assert (await proxy.get("/10.5072/A"))["location"] == HERE
        assert (await proxy.get("/10.5072/a?auth"))["location"] == HERE
        assert proxy.upstream.queries() == 1


async def test_readiness_has_the_place_of_a_mistake_and_stays_true(tmp_path: Path) -> None:
    path = tmp_path / "records.toml"
    path.write_text('[[record]]\ndoi = "10.5072/a"\ntarget = "https://example.org"\n')
    async with Proxy(local_records=path) as proxy:
        assert (await proxy.get("/readyz")).json["local_records"] == {"state": "ok", "records": 1, "problems": []}
        await use(proxy, path, '\n[[record]]\ndoi = "10.5072/a"\n  targt = "https://secret.example.org"\n')
        ready = await proxy.get("/readyz")
        assert (ready.status, ready.json["ready"]) == (200, True)
        place = {"file": "records.toml", "line": 4, "column": 3}
        assert ready.json["local_records"] == {"state": "broken", "records": 1, "problems": [place]}
        assert (await proxy.get("/10.5072/a"))["location"] == "https://example.org"
        assert "doi_proxy_local_record_problems 1.0" in (await proxy.get("/metrics")).text
    async with Proxy() as without:
        assert (await without.get("/readyz")).json["local_records"] is None
