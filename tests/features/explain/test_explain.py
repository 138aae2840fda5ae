"""`/admin/explain`: ten requests, and what decides each. Nothing is sent, counted or changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from tests.values import value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

TOKEN: Final = "correct-horse-battery-staple"
NAME: Final = "10.5555/hot"
LOCAL: Final = """
[[record]]
doi = "10.5555/local"
target = "https://local.example/"

[[record]]
doi = "10.5555/gone"
tombstone = { reason = "Withdrawn by its author", date = 2024-05-01 }

[[record]]
prefix = "10.6666"
deny = "Not for this house"
"""
RULES: Final = """
[[service]]
name = "ezproxy"
label = "EZproxy"
kind = "ezproxy"
url = "https://ezproxy.example.edu/login"

[[rule]]
service = "ezproxy"
prefixes = ["10.5555"]
networks = ["192.0.2.0/24"]
"""


@asynccontextmanager
async def proxy_with(**settings: Any) -> AsyncIterator[Proxy]:
    async with Proxy(admin_token=TOKEN, **settings) as proxy:
        proxy.upstream.put(NAME, url="https://target.example/hot")
        yield proxy


async def explain(proxy: Proxy, doi: str, **asked: str) -> dict[str, Any]:
    target = "/admin/explain?" + urlencode({"doi": doi, **asked})
    got = await proxy.get(target, authorization=f"Bearer {TOKEN}")
    assert got.status == 200, got.text
    report: dict[str, Any] = got.json
    names = [step["decision"] for step in report["decisions"]]
    first = ["admitted", "local record", "cache", "back-off", "budget", "upstream"]
    assert names == [*first, "alias", "location", "target", "rule", "headers"]
    return report


def step(report: dict[str, Any], decision: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in report["decisions"] if one["decision"] == decision)
    return found


async def test_a_hot_name() -> None:
    async with proxy_with() as proxy:
        answered = await proxy.get(f"/{NAME}")
        report = await explain(proxy, NAME)
        assert (report["status"], report["location"]) == (answered.status, answered["location"])
        assert step(report, "cache")["result"] == "answer"
        assert "In memory: a record, fresh" in step(report, "cache")["reason"]
        assert step(report, "upstream")["result"] == "not queried"
        assert step(report, "back-off")["result"] == "none"
        assert step(report, "budget")["settings"]["upstream_rate"] == "1000000"
        assert proxy.upstream.queries(NAME) == 1


async def test_a_name_that_is_not_in_the_cache_sends_no_query() -> None:
    async with proxy_with() as proxy:
        report = await explain(proxy, NAME)
        assert step(report, "cache")["result"] == "absent"
        assert step(report, "upstream")["result"] == "queried"
        assert step(report, "target")["result"] == "open"
        assert (report["status"], proxy.upstream.queries(NAME)) == (None, 0)
        fetched = await explain(proxy, NAME, fetch="true")
        assert step(fetched, "upstream")["result"] == "asked"
        assert (fetched["status"], fetched["location"]) == (302, "https://target.example/hot")
        assert proxy.upstream.queries(NAME) == 1


async def test_an_absent_name() -> None:
    async with proxy_with() as proxy:
        answered = await proxy.get("/10.5555/absent")
        report = await explain(proxy, "10.5555/absent")
        assert (report["status"], answered.status) == (404, 404)
        assert "“not found”, fresh" in step(report, "cache")["reason"]
        assert step(report, "target")["reason"] == "The name is not registered."


async def test_an_alias() -> None:
    async with proxy_with(public_url="https://doi.example.org") as proxy:
        proxy.upstream.put("10.5555/alias", [value(1, "HS_ALIAS", NAME)])
        answered = await proxy.get("/10.5555/alias")
        report = await explain(proxy, "10.5555/alias")
        assert (report["status"], report["location"]) == (answered.status, answered["location"])
        assert step(report, "alias")["result"] == "followed"
        assert step(report, "alias")["reason"].startswith("10.5555/alias (The record is fresh.) → 10.5555/hot")


async def test_a_record_with_locations() -> None:
    locations = (
        '<locations chooseby="country,weighted"><location href="https://de.example/" country="de" weight="0"/>'
        '<location href="https://all.example/" weight="1"/></locations>'
    )
    async with proxy_with() as proxy:
        proxy.upstream.put("10.5555/loc", [value(1, "10320/loc", locations)])
        answered = await proxy.get("/10.5555/loc")
        report = await explain(proxy, "10.5555/loc")
        assert (report["status"], report["location"]) == (answered.status, answered["location"])
        assert step(report, "location")["result"] == "chosen"
        assert "2 locations of the name and 0 of its prefix" in step(report, "location")["reason"]
        assert "chooseby is country,weighted" in step(report, "location")["reason"]


async def test_local_records(tmp_path: Path) -> None:
    records = tmp_path / "records.toml"
    records.write_text(LOCAL)
    async with proxy_with(local_records=records) as proxy:
        local = await explain(proxy, "10.5555/local")
        assert (local["status"], local["location"]) == (302, "https://local.example/")
        assert step(local, "local record")["reason"].startswith(f"{records}:2 answers")
        gone = await explain(proxy, "10.5555/gone")
        assert gone["status"] == (await proxy.get("/10.5555/gone")).status == 410
        assert step(gone, "local record")["result"] == step(gone, "target")["result"] == "tombstone"
        assert "2024-05-01: Withdrawn by its author" in step(gone, "local record")["reason"]
        assert step(gone, "target")["reason"] == "A local record says that the name is gone."
        denied = await explain(proxy, "10.6666/name")
        assert denied["status"] == (await proxy.get("/10.6666/name")).status
        assert step(denied, "local record")["result"] == "denies"


async def test_a_library_rule_counts_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    async with proxy_with(library_rules=rules) as proxy:
        await proxy.get(f"/{NAME}", accept="text/html")
        await proxy.get(f"/{NAME}", accept="application/json")
        before = await counted(proxy)
        inside = await explain(proxy, NAME, client="192.0.2.7")
        assert inside["location"] == "https://ezproxy.example.edu/login?url=https://target.example/hot"
        assert step(inside, "rule")["result"] == "through ezproxy"
        assert "The rule is in line 8." in step(inside, "rule")["reason"]
        outside = await explain(proxy, NAME, client="198.51.100.7")
        assert outside["location"] == "https://target.example/hot"
        assert step(outside, "rule")["result"] == "left alone"
        data = await explain(proxy, NAME, client="192.0.2.7", accept="application/json")
        assert step(data, "rule")["result"] == "left alone"
        assert await counted(proxy) == before


async def counted(proxy: Proxy) -> list[str]:
    text = (await proxy.get("/metrics")).text
    return [line for line in text.splitlines() if line.startswith(("doi_proxy_cache_answers", "doi_proxy_library"))]


async def test_a_denied_client(tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("198.51.100.0/24\n")
    async with proxy_with(client_deny_file=denied) as proxy:
        await proxy.get(f"/{NAME}")
        report = await explain(proxy, NAME, client="198.51.100.9")
        assert (report["status"], step(report, "admitted")["result"]) == (403, "no: 403")
        assert step(report, "admitted")["settings"]["client_deny_file"] == str(denied)
        assert (report["location"], step(report, "headers")["result"]) == (None, "403")
        assert "If it were admitted, the answer would be 302." in step(report, "headers")["reason"]
        assert "location:" not in step(report, "headers")["reason"]
        assert step(await explain(proxy, "10.1000/absent", client="198.51.100.9"), "headers")["result"] == "403"
        assert (await explain(proxy, NAME, client="192.0.2.9"))["status"] == 302


async def test_a_client_over_its_rate_is_not_charged_by_an_explanation() -> None:
    async with proxy_with(client_rate=1.0, client_burst=2.0) as proxy:
        await proxy.get(f"/{NAME}")
        for _ in range(3):
            left = step(await explain(proxy, NAME, client="192.0.2.7"), "admitted")
            assert (left["result"], left["reason"]) == ("yes", "192.0.2.0/24 can send 1.0 requests at once now.")
        await proxy.get(f"/{NAME}")
        report = await explain(proxy, NAME, client="192.0.2.7")
        assert (report["status"], step(report, "admitted")["result"]) == (429, "no: 429")
        assert step(report, "admitted")["settings"]["client_rate"] == "1"


async def test_an_upstream_that_is_down_with_a_stale_record() -> None:
    async with proxy_with(upstream_breaker_failures=1, cache_ttl_ceiling=60.0) as proxy:
        await proxy.get(f"/{NAME}")
        proxy.clock.advance(61)
        expired = await explain(proxy, NAME)
        assert step(expired, "upstream")["result"] == "queried"
        assert "Without an answer in time, the record" in step(expired, "upstream")["reason"]
        proxy.upstream.fault(NAME, "status", status=500)
        proxy.upstream.fault("10.5555/other", "status", status=500)
        await proxy.get("/10.5555/other")
        report = await explain(proxy, NAME)
        assert (report["status"], report["location"]) == (302, "https://target.example/hot")
        assert step(report, "cache")["result"] == "fallback"
        assert step(report, "back-off")["result"] == "yes"
        assert "breaker (breaker-open)" in step(report, "back-off")["reason"]
        assert step(report, "upstream")["result"] == "refused"
        assert "127.0.0.1): failing" in step(report, "upstream")["reason"]
        assert "detail=breaker-open" in step(report, "headers")["reason"]
        # The explanation did not remember a failure, so the next request still decides by itself.
        assert proxy.upstream.queries(NAME) == 1


async def test_a_name_that_a_sealed_proxy_lacks() -> None:
    async with proxy_with(mode="sealed") as proxy:
        report = await explain(proxy, NAME)
        assert report["status"] == 504
        assert step(report, "back-off")["reason"] == "In sealed mode no query is sent."
        assert step(report, "back-off")["settings"]["mode"] == "sealed"


async def test_a_budget_that_is_used_up() -> None:
    async with proxy_with(upstream_rate=0.001, upstream_burst=1.0) as proxy:
        await proxy.get(f"/{NAME}")
        report = await explain(proxy, "10.5555/new")
        assert step(report, "budget")["result"] == "used up"
        assert step(report, "budget")["settings"]["upstream_rate"] == "0.001"
        assert step(report, "upstream")["result"] == "refused"
        assert "The next one can be sent in " in step(report, "upstream")["reason"]
        assert report["status"] == (await proxy.get("/10.5555/new")).status == 503


async def test_without_the_token_and_with_a_wrong_address() -> None:
    async with proxy_with() as proxy:
        assert (await proxy.get(f"/admin/explain?doi={NAME}")).status == 401
        target = f"/admin/explain?doi={NAME}&client=nobody"
        refused = await proxy.get(target, authorization=f"Bearer {TOKEN}")
        assert (refused.status, refused.json["detail"]) == (400, "'nobody' is not an IP address.")
