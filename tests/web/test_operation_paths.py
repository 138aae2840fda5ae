"""The paths beside the names: home, health, readiness, documentation, files, robots; and the seed at the start."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

SEED = Path(__file__).parents[2] / "config" / "seed.ndjson"
NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html;charset=utf-8"),
        ("/healthz", "application/json"),
        ("/readyz", "application/json"),
        ("/openapi.json", "application/json"),
        ("/docs", "text/html; charset=utf-8"),
        ("/robots.txt", "text/plain; charset=utf-8"),
        ("/static/style.css", "text/css;charset=utf-8"),
        ("/static/favicon.svg", "image/svg+xml"),
        ("/favicon.ico", "image/svg+xml"),
    ],
)
async def test_it_answers_without_a_query(proxy: Proxy, path: str, media_type: str) -> None:
    for query in ("", "?x=1"):
        reply = await proxy.get(path + query)
        assert (reply.status, str(reply["content-type"]).replace(" ", "")) == (200, media_type.replace(" ", ""))
        assert reply.body
    assert (await proxy.head(path)).status == 200
    assert proxy.upstream.queries() == 0


@pytest.mark.parametrize("path", ["/healthz/", "/static", "/docs/oauth2-redirect", "/redoc", "/metrics/x"])
async def test_what_is_no_path_of_these_is_a_name_and_no_doi(proxy: Proxy, path: str) -> None:
    assert (await proxy.get(path)).status == 400


async def test_health_and_readiness_do_not_depend_on_the_upstream() -> None:
    async with Proxy(upstream_url=NOWHERE, upstream_breaker_failures=1) as proxy:
        assert (await proxy.get("/10.1000/182")).status == 502
        assert (await proxy.get("/healthz")).json == {"status": "ok"}
        ready = await proxy.get("/readyz")
        assert (ready.status, ready.json["ready"]) == (200, True)
        assert ready.json["detail"]["upstream"] == "failing"
        assert ready.json["upstreams"] == [{"number": 1, "state": "failing", "breaker": "open", "retry_after": None}]
        assert "127.0.0.1" not in ready.text


async def test_readiness_is_in_words_of_closed_lists() -> None:
    async with Proxy() as fresh:
        ready = (await fresh.get("/readyz")).json
        assert ready["detail"] == {"mode": "online", "upstream": "unknown", "store": "memory-only"}
        assert (await fresh.get("/10.1000/182")).status == 404
        assert (await fresh.get("/readyz")).json["detail"]["upstream"] == "ok"
    async with Proxy(mode="sealed") as sealed:
        ready = (await sealed.get("/readyz")).json
        assert (ready["detail"]["upstream"], ready["upstreams"]) == ("sealed", [])


async def test_a_store_that_fails_is_told_in_the_detail_of_readiness_and_is_no_error() -> None:
    async with Proxy(store_url="valkey://127.0.0.1:9/0") as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        first = asyncio.ensure_future(proxy.get("/10.1000/182"))
        # A process that starts while its store fails has no tokens at first.
        while not first.done():
            await asyncio.sleep(0.001)
            proxy.clock.advance(0.001)
        assert [(await first).status, (await proxy.get("/10.1000/182")).status] == [302, 302]
        ready = (await proxy.get("/readyz")).json
        assert ready["ready"] is True
        assert ready["detail"]["store"] == "failing"


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_takes_nothing_from_elsewhere(proxy: Proxy, path: str) -> None:
    page = (await proxy.get(path)).text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css|png|svg|ico|woff2?)"', page)
    assert "<script" not in page


async def test_every_file_that_a_page_refers_to_is_there(proxy: Proxy) -> None:
    page = (await proxy.get("/")).text
    own = set(re.findall(r'<link[^>]*href="(/[^"]*)"', page))
    assert own
    assert {path: (await proxy.get(path)).status for path in own} == dict.fromkeys(own, 200)


async def test_crawlers_are_asked_to_leave_the_names_alone(proxy: Proxy) -> None:
    lines = (await proxy.get("/robots.txt")).text.splitlines()
    assert "User-agent: *" in lines and "Disallow: /" in lines


async def test_openapi_names_the_public_url_as_its_server() -> None:
    async with Proxy(public_url="https://library.example.edu/doi") as proxy:
        assert (await proxy.get("/doi/openapi.json")).json["servers"] == [{"url": "https://library.example.edu/doi"}]


class TestSeed:
    """Records that are there from the start, already expired."""

    async def test_without_an_upstream_they_are_answered_stale(self) -> None:
        async with Proxy(upstream_url=NOWHERE, seed=SEED) as proxy:
            reply = await proxy.get("/10.1000/182")
            assert (reply.status, reply["location"]) == (302, "http://www.doi.org/hb.html")
            said = re.fullmatch(
                r"doi-proxy; hit; ttl=-[0-9]+; detail=upstream-unreachable", reply["cache-status"] or ""
            )
            assert said
            record = (await proxy.get("/api/handles/10.1000/182")).json
            assert (record["responseCode"], record["handle"]) == (1, "10.1000/182")
            assert {value["type"] for value in record["values"]} == {"URL", "HS_ADMIN"}
            assert "may be out of date" in (await proxy.get("/10.1000/182?noredirect")).text

    async def test_with_an_upstream_they_are_renewed_at_first_use(self) -> None:
        async with Proxy(seed=SEED) as proxy:
            proxy.upstream.put("10.1000/182", url="http://example.org/moved")
            assert (await proxy.get("/10.1000/182"))["location"] == "http://example.org/moved"
            assert proxy.upstream.queries() == 1

    async def test_every_record_of_the_shipped_seed_is_answered(self) -> None:
        names = [json.loads(line)["handle"] for line in SEED.read_text("utf-8").splitlines() if '"handle"' in line]
        assert names
        async with Proxy(upstream_url=NOWHERE, seed=SEED) as proxy:
            found = {name: (await proxy.get(f"/api/handles/{name}")).json["responseCode"] for name in names}
            assert found == dict.fromkeys(names, 1)

    async def test_a_damaged_line_is_left_out_and_the_rest_is_loaded(self, tmp_path: Path) -> None:
        seed = tmp_path / "seed.ndjson"
        seed.write_text("no JSON\n" + SEED.read_text("utf-8") + "{}\n", "utf-8")
        async with Proxy(upstream_url=NOWHERE, seed=seed) as proxy:
            assert (await proxy.get("/10.1000/182")).status == 302

    async def test_a_seed_does_not_replace_what_the_store_knows(self, tmp_path: Path) -> None:
        store: dict[str, Any] = {"store_url": f"sqlite:///{tmp_path}/store.sqlite3"}
        async with Proxy(**store) as proxy:
            proxy.upstream.put("10.1000/182", url="http://example.org/known")
            await proxy.get("/10.1000/182")
        async with Proxy(upstream_url=NOWHERE, seed=SEED, **store) as proxy:
            assert (await proxy.get("/10.1000/182"))["location"] == "http://example.org/known"

    async def test_without_a_seed_nothing_is_known(self) -> None:
        async with Proxy(upstream_url=NOWHERE) as proxy:
            assert (await proxy.get("/10.1000/182")).status == 502


async def test_what_was_learnt_survives_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    async with Proxy(store_url=store) as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html", ttl=600)
        await proxy.get("/10.1000/182")
    async with Proxy(store_url=store, upstream_url=NOWHERE) as proxy:
        proxy.clock.advance(10)
        reply = await proxy.get("/10.1000/182")
        assert (reply.status, reply["cache-status"]) == (302, "doi-proxy; hit; ttl=590")


@pytest.mark.parametrize(
    "path",
    ["/static/", "/static/../app.py", "/static/..%2F..%2Fsettings.py", "/static//style.css", "/static/logo-0.svg"],
)
async def test_a_file_that_is_not_there_has_a_page_of_its_own(proxy: Proxy, path: str) -> None:
    got = await proxy.get(path, accept_language="de")
    assert (got.status, got["cache-control"], got["vary"]) == (404, "no-store", "Accept-Language")
    assert "Datei nicht gefunden" in got.text
    assert (await proxy.head(path)).status == 404
    assert (await proxy.post(path, "")).status == 405
