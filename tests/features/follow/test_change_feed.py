"""The pages of a primary: which of them are kept for further replicas, and that a change is never missed."""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path

import pytest

import app.features.follow.change_feed as tested
import app.features.follow.sqlite_change_pages
from app.assembly.stores import read_tables
from app.cache.entry import Entry
from app.cache.purges import MAX_PURGES
from app.errors import InvalidParameter
from app.features.bundles.bundle import read_bundle
from app.features.bundles.delta import DeltaEnd, DeltaPurge
from app.features.follow.change_feed import ChangeFeed, FeedPage
from app.features.sqlite.store import SqliteStore
from tests.cache.entries import NOW, entry
from tests.clock import Clock

pytestmark = pytest.mark.anyio

NAMES = [f"10.1000/{number:02}" for number in range(25)]


class Primary:
    """A store with NAMES, and its feed."""

    def __init__(self, path: Path, *, max_open: int = 2) -> None:
        self.clock = Clock(NOW + 100)
        self.results: list[str] = []
        self.store = SqliteStore(path, clock=self.clock, max_bytes=10_000_000, gather=0.0, tables=read_tables())
        self.feed = ChangeFeed(
            path, self.clock, max_open=max_open, record=lambda result, _: self.results.append(result)
        )

    def _record(self, result: str, _: int) -> None:
        self.results.append(result)

    async def fill(self) -> None:
        for name in NAMES:
            await self.store.put(entry(name))
        await self.store.flush()

    async def read(self, cursor: str) -> FeedPage:
        page = await self.feed.read(cursor)
        assert page is not None
        return page

    async def follow(self, cursor: str = "") -> tuple[set[str], str]:
        """The names that a replica has after a whole pull, and the next cursor."""
        names, more = set[str](), True
        while more:
            for item in read_bundle(BytesIO(gzip.decompress((await self.read(cursor)).body))):
                match item:
                    case Entry():
                        names.add(item.key)
                    case DeltaPurge():
                        names.discard(item.scope)
                    case DeltaEnd():
                        cursor, more = item.next, item.more
        return names, cursor


@pytest.fixture
async def primary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Primary:
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", 10)
    primary = Primary(tmp_path / "store.db")
    await primary.fill()
    return primary


async def test_a_full_page_is_made_once_for_many_replicas(primary: Primary) -> None:
    first = await primary.read("")
    assert await primary.read("") is first
    primary.clock.advance(61)
    assert await primary.read("") is not first


async def test_the_last_page_is_always_new(primary: Primary) -> None:
    names, cursor = await primary.follow()
    assert names == set(NAMES)
    last = await primary.read(cursor)
    await primary.store.delete(NAMES[0])
    await primary.store.flush()
    assert (await primary.read(cursor)).body != last.body


async def test_a_replica_that_gets_an_earlier_page_has_all_changes_in_the_end(primary: Primary) -> None:
    await primary.follow()
    await primary.store.delete(NAMES[0])
    await primary.store.put(entry("10.1000/NEW"))
    await primary.store.flush()
    names, _ = await primary.follow()
    assert names == {*NAMES[1:], "10.1000/NEW"}


async def test_the_bytes_of_kept_pages_are_limited(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await primary.read("")
    monkeypatch.setattr(tested, "_KEPT_BYTES", len(first.body) + 1)
    await primary.follow()
    assert await primary.read("") is not first


async def test_a_page_that_is_kept_needs_no_place_and_a_refusal_is_counted(primary: Primary, tmp_path: Path) -> None:
    busy = Primary(tmp_path / "store.db", max_open=0)
    assert await busy.feed.read("") is None
    with pytest.raises(InvalidParameter):
        await busy.feed.read("x")
    await primary.read("")
    primary.feed._max_open = 0
    assert await primary.feed.read("") is not None
    assert (busy.results, primary.results) == (["busy", "refused"], ["sent", "sent"])


async def test_a_purge_after_more_than_are_remembered_reaches_a_replica(primary: Primary) -> None:
    for number in range(MAX_PURGES + 1):
        await primary.store.delete(f"10.1001/{number}")
    await primary.store.flush()
    await primary.store.delete(NAMES[0])
    await primary.store.flush()
    names, _ = await primary.follow()
    assert names == set(NAMES[1:])
    _, cursor = await primary.follow()
    await primary.store.delete(NAMES[1])
    await primary.store.flush()
    page = await primary.read(cursor)
    assert [
        item.scope for item in read_bundle(BytesIO(gzip.decompress(page.body))) if isinstance(item, DeltaPurge)
    ] == [NAMES[1]]
