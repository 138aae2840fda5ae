"""The pages of changes of the admin API."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import app.features.follow.change_feed
from app.cache.entry import Entry
from app.features.bundles.bundle import BundleEnd, Checksum, read_bundle
from app.features.bundles.delta import VERSION, DeltaEnd, DeltaStart
from app.features.follow.change_feed import MAX_OPEN_PAGES
from tests.cluster.processes import until
from tests.web.proxy import Got, Proxy, running

pytestmark = pytest.mark.anyio

TOKEN = "correct-horse-battery-staple"
NAME = "10.1000/182"


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    store = f"sqlite:///{tmp_path}/store.db"
    async with running(admin_token=TOKEN, store_url=store) as proxy:
        proxy.upstream.put(NAME, url="http://here.example/")
        yield proxy


async def look(proxy: Proxy, target: str) -> Got:
    return await proxy.get(target, authorization=f"Bearer {TOKEN}")


async def test_a_page_has_a_record_a_cursor_and_a_checksum(proxy: Proxy) -> None:
    await proxy.get(f"/{NAME}")

    async def is_written() -> bool:
        return NAME.encode() in gzip.decompress((await look(proxy, "/admin/changes")).body)

    await until(is_written, 30.0, "the record is in the store")
    reply = await look(proxy, "/admin/changes")
    assert (reply.status, reply["content-type"], reply["content-encoding"]) == (200, "application/x-ndjson", "gzip")
    start, record, end, checksum = read_bundle(BytesIO(gzip.decompress(reply.body)))
    assert isinstance(record, Entry)
    assert record.key == NAME
    assert start == DeltaStart(VERSION, "")
    assert isinstance(end, DeltaEnd)
    assert not end.more
    assert checksum == BundleEnd(3, 0, Checksum.RIGHT)


@pytest.mark.parametrize(("cursor", "status"), [("x", 400), ("c1.0000000000000000.0.l.", 410), ("c" * 5_000, 400)])
async def test_a_cursor_that_cannot_be_used_is_refused(proxy: Proxy, cursor: str, status: int) -> None:
    assert (await look(proxy, f"/admin/changes?cursor={cursor}")).status == status


async def test_without_the_token_there_is_no_page(proxy: Proxy) -> None:
    assert (await proxy.get("/admin/changes")).status == 401


async def test_a_process_makes_a_limited_number_of_pages_at_a_time(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first page waits for the lock that this test holds, so the second and the third one find no place.
    lock, make_page = threading.Lock(), app.features.follow.change_feed._make_page
    begun = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def make_page_later(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(begun.release)
        with lock:
            return make_page(*arguments)

    monkeypatch.setattr(app.features.follow.change_feed, "_make_page", make_page_later)
    with lock:
        # As many as one process makes at a time.
        pages = [asyncio.create_task(look(proxy, "/admin/changes")) for _ in range(MAX_OPEN_PAGES)]
        for _ in pages:
            await begun.acquire()
        replies = [await look(proxy, "/admin/changes") for _ in range(2)]
        # The page is made outside the event loop, which goes on answering.
        assert (await proxy.get("/healthz")).status == 200
    assert [(one.status, one["retry-after"]) for one in replies] == [(429, "1")] * 2
    page, other = await asyncio.gather(*pages)
    assert page.status == other.status == 200
    assert (await look(proxy, "/admin/changes?cursor=x")).status == 400
    lines = (await proxy.get("/metrics")).text.splitlines()
    results = [f'doi_proxy_change_pages_total{{result="{one}"}}' for one in ("sent", "busy", "refused")]
    assert {*lines} > {f"{name} {count}" for name, count in zip(results, ("2.0", "2.0", "1.0"), strict=True)}
    assert f"doi_proxy_change_page_bytes_total {len(page.body) + len(other.body):.1f}" in lines


async def test_a_store_without_a_log_says_so() -> None:
    async with running(admin_token=TOKEN, store_url="memory:") as proxy:
        reply = await look(proxy, "/admin/changes")
        assert reply.status == 400
        assert "keeps no log of changes" in reply.json["detail"]
