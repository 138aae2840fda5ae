"""`/status`: who sees it, what it says, and its plots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

TOKEN = "correct-horse-battery-staple"
NAME = "10.1000/182"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(status_networks="0.0.0.0/0, ::/0") as proxy:
        proxy.upstream.put(NAME, url="http://here.example/")
        yield proxy


async def page(proxy: Proxy, language: str = "en") -> Reply:
    return await proxy.get("/status", accept="text/html", accept_language=language)


async def test_it_counts_answers_by_origin_and_requests_by_status(proxy: Proxy) -> None:
    for _ in range(3):
        await proxy.get(f"/{NAME}")
    status = (await proxy.get("/status")).json
    assert status["answers"] == {"asked": 1, "fresh": 2}
    assert status["requests"] == {"302": 3}
    assert status["hit_share"] == pytest.approx(2 / 3)
    assert (status["mode"], status["instance"], status["store"]["kind"]) == ("online", "", "memory")
    assert status["upstreams"][0]["state"] == "ok"


async def test_it_counts_clients_without_their_addresses() -> None:
    # Of prepared answers, one in sixteen is counted.
    async with Proxy(status_networks="0.0.0.0/0, ::/0", express_lane=False) as proxy:
        for client, requests in (("192.0.2.1", 6), ("192.0.2.2", 1), ("198.51.100.1", 3)):
            for _ in range(requests):
                await proxy.ask("GET", f"/{NAME}", client=client)
        clients = (await proxy.get("/status")).json["clients"]
    assert clients == {"networks": 2, "largest_share": pytest.approx(7 / 10)}


async def test_a_denied_prefix_is_not_among_the_names_that_could_not_be_verified(tmp_path: Path) -> None:
    records = tmp_path / "records.toml"
    records.write_text('[[record]]\nprefix = "10.5072"\ndeny = "For tests."\n')
    async with Proxy(status_networks="0.0.0.0/0, ::/0", local_records=records) as proxy:
        assert (await proxy.get("/10.5072/x")).status == 403
        status = (await proxy.get("/status")).json
        assert (status["unverified"], status["denied"]) == ({}, 1)


async def test_it_has_neither_names_nor_addresses(proxy: Proxy) -> None:
    await proxy.get(f"/{NAME}")
    for reply in (await proxy.get("/status"), await page(proxy)):
        assert NAME not in reply.text
        assert "192.0.2" not in reply.text


@table("language, title", [("en", "Status"), ("fr", "État")])
async def test_a_browser_gets_a_page_in_its_language(proxy: Proxy, language: str, title: str) -> None:
    reply = await page(proxy, language)
    assert reply["content-type"] == "text/html;charset=utf-8"
    assert reply["cache-control"] == "no-store"
    assert f"<h1>{title}" in reply.text
    assert "style=" not in reply.text


@table(
    "target, accept, media_type",
    [
        ("/status", "*/*", "application/json"),
        ("/status?format=html", "*/*", "text/html"),
        ("/status?format=json", "text/html", "application/json"),
    ],
)
async def test_the_parameter_format_has_precedence(proxy: Proxy, target: str, accept: str, media_type: str) -> None:
    reply = await proxy.get(target, accept=accept)
    assert (reply.status, str(reply["content-type"]).partition(";")[0]) == (200, media_type)


async def test_no_page_of_another_site_may_read_it(proxy: Proxy) -> None:
    assert (await proxy.get("/status", origin="https://x.example"))["access-control-allow-origin"] is None


@pytest.mark.parametrize(
    ("settings", "client", "status"),
    [
        ({}, "127.0.0.1", 200),
        ({}, "::1", 200),
        ({}, "::ffff:127.0.0.1", 200),
        ({}, "192.0.2.7", 403),
        ({}, None, 403),
        ({"status_networks": "192.0.2.0/24, 2001:db8::/32"}, "192.0.2.7", 200),
        ({"status_networks": ""}, "127.0.0.1", 403),
        ({"status_networks": "0.0.0.0/0, ::/0"}, "192.0.2.7", 200),
    ],
)
async def test_who_may_see_it(settings: dict[str, Any], client: str | None, status: int) -> None:
    async with Proxy(**settings) as proxy:
        for accept in ("text/html", "*/*"):
            reply = await proxy.ask("GET", "/status", client=client, accept=accept, host="localhost:8000")
            assert reply.status == status


@table(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("server", 200), ("doi.example.org", 200),
        ("DOI.example.org:443", 200), ("rebound.example", 403), ("127.0.0.1.rebound.example:8000", 403),
    ],
)  # fmt: skip
async def test_it_is_not_shown_under_the_name_of_another_site(host: str, status: int) -> None:
    """A name of another site that leads to this machine for a moment makes a page of that site our page."""
    async with Proxy(public_url="https://doi.example.org") as proxy:
        assert (await proxy.get("/status", client="127.0.0.1", host=host)).status == status


@pytest.mark.parametrize("networks", ["", "198.51.100.0/24", "0.0.0.0/0, ::/0"])
async def test_the_token_of_the_admin_api_opens_it_from_everywhere(networks: str) -> None:
    async with Proxy(status_networks=networks, admin_token=TOKEN) as proxy:
        for accept in ("text/html", "*/*"):
            shown = await proxy.get("/status", authorization=f"Bearer {TOKEN}", accept=accept)
            assert (shown.status, shown["access-control-allow-origin"]) == (200, None)
            assert (await proxy.get("/status", authorization="Bearer wrong", accept=accept)).status == 401
        # A front proxy passes on the credentials of its own login.
        assert (await proxy.get("/status", authorization="Basic YTpi")).status == (200 if "::/0" in networks else 403)


async def test_without_an_admin_api_a_token_changes_nothing() -> None:
    async with Proxy(status_networks="") as proxy:
        assert (await proxy.get("/status", authorization=f"Bearer {TOKEN}")).status == 403


async def test_it_says_that_the_store_reads_but_does_not_write(tmp_path: Path) -> None:
    settings = {"store_url": f"sqlite:///{tmp_path}/store.sqlite3", "status_networks": "0.0.0.0/0, ::/0"}
    async with Proxy(**settings):
        pass
    lock = tmp_path / "store.sqlite3.lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "nowhere" / "lock")
    async with Proxy(**settings) as proxy:
        assert "can be read, but not written" in (await page(proxy)).text
        assert (await proxy.get("/status")).json["store"]["read_only"] is True
        assert (await proxy.get("/readyz")).json["detail"]["store"] == "read-only"
