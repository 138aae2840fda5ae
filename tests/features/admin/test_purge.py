"""A purge deletes what was chosen and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.features import find_records
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import EVERYTHING
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.admin.purge import Selection, count_selected, purge
from doi_proxy.features.sqlite.store import SqliteStore
from tests.cache.conftest import valkey_url  # noqa: F401 - a fixture of the next one
from tests.cache.entries import NOW, entry, missing
from tests.cache.test_cache_tiered import few_announcements, open_two  # noqa: F401 - a fixture
from tests.clock import Clock
from tests.registry_records import write_registry

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


async def filled(*keys: str) -> TieredStore:
    clock = Clock(NOW)
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), None, clock=clock, ceiling=86_400.0)
    for key in keys:
        await cache.put(entry(key))
    return cache


async def test_a_name_without_an_entry_is_not_counted() -> None:
    cache = await filled("10.1000/1", "10.1000/2")
    for selection, count in ((Selection(HandleName("10.1000/1")), 1), (Selection(HandleName("10.1000/9")), 0)):
        assert await count_selected(cache, selection) == count
        assert await purge(cache, selection) == count
    assert [one.key async for one in cache.scan()] == ["10.1000/2"]


async def test_negative_entries_alone_can_be_purged() -> None:
    cache = await filled("10.1000/1")
    await cache.put(missing("10.1000/MISSING"))
    assert await purge(cache, Selection(negative=True)) == 1
    assert [one.key async for one in cache.scan()] == ["10.1000/1"]


async def test_more_entries_than_one_batch_are_all_purged() -> None:
    cache = await filled(*(f"10.1000/{number}" for number in range(200)))
    assert await count_selected(cache, Selection(everything=True)) == 200
    assert await purge(cache, Selection(everything=True)) == 200
    assert cache.memory.entries == 0


async def test_a_purge_of_everything_is_announced_as_one_scope(clock: Clock) -> None:
    store = MemoryStore(1_000_000, clock=clock)
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=1e9)
    for number in range(20):
        await cache.put(entry(f"10.1000/{number}"))
    cursor = (await store.changes(None)).cursor
    assert await purge(cache, Selection(everything=True)) == 20
    assert set((await store.changes(cursor)).keys) == {EVERYTHING}


@pytest.mark.parametrize(
    "selection",
    [
        Selection(HandleName("10.1000/1")),
        Selection(prefix=HandleName("10.1000")),
        Selection(everything=True),
    ],
)
async def test_a_soft_purge_keeps_the_record_for_an_outage(selection: Selection) -> None:
    cache = await filled("10.1000/1")
    assert await purge(cache, selection, soft=True) == 1
    found = cache.peek("10.1000/1")
    assert found is not None
    assert not found.is_fresh(NOW)
    assert found.is_usable(NOW)


async def test_a_soft_purge_of_more_names_than_are_announced_leaves_other_prefixes_in_memory(
    open_two: tuple[TieredStore, TieredStore],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = open_two
    few_announcements(monkeypatch)
    await here.put(entry("10.2000/hot"))
    for number in range(120):
        await here.put(missing(f"10.1000/{number}") if number % 100 == 0 else entry(f"10.1000/{number}"))
        if number % 20 == 0:
            await here.flush()
    await here.flush()
    purged = [f"10.1000/{number}" for number in (1, 100, 119)]
    for key in ("10.2000/hot", *purged):
        assert await there.get(key) is not None
    assert await purge(here, Selection(prefix=HandleName("10.1000")), soft=True) == 120
    await there.forget_announced()
    assert there.peek("10.2000/hot") is not None
    assert [there.peek(key) for key in purged] == [None] * 3
    found = [await there.get(key) for key in purged]
    assert [one is not None and one.is_usable(NOW) and not one.is_fresh(NOW) for one in found] == [True, False, True]


@pytest.mark.parametrize("soft", [False, True])
async def test_a_purge_of_more_not_found_names_than_are_announced_leaves_records_in_memory(
    open_two: tuple[TieredStore, TieredStore],  # noqa: F811
    soft: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = open_two
    few_announcements(monkeypatch)
    await here.put(entry("10.2000/hot"))
    for number in range(120):
        await here.put(missing(f"10.1000/{number}"))
        if number % 20 == 0:
            await here.flush()
    await here.flush()
    purged = [f"10.1000/{number}" for number in (1, 100, 119)]
    for key in ("10.2000/hot", *purged):
        assert await there.get(key) is not None
    assert await purge(here, Selection(negative=True), soft=soft) == 120
    await there.forget_announced()
    assert there.peek("10.2000/hot") is not None
    assert [there.peek(key) for key in purged] == [await there.get(key) for key in purged] == [None] * 3
    # An answer to a query that was sent before the purge is not stored, here and there.
    for cache, key in zip((here, there), purged, strict=False):
        await cache.put(missing(key), sent_at=NOW - 10)
        await cache.flush()
        assert await cache.get(key, newest=True) is None


async def test_a_soft_purge_of_names_is_announced_once_for_each(tmp_path: Path) -> None:
    clock = Clock(NOW)
    stores = [SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=1_000_000) for _ in range(2)]
    here, there = (
        TieredStore(MemoryStore(1_000_000, clock=clock), one, clock=clock, ceiling=86_400.0) for one in stores
    )
    await there.forget_announced()
    names = [HandleName(f"10.1000/{number}") for number in range(3)]
    for name in names:
        await here.put(entry(name.key))
        await here.flush()
        assert await there.get(name.key) is not None
    before = int((await stores[0].changes(None)).cursor)
    assert [await purge(here, Selection(name), soft=True) for name in names] == [1, 1, 1]
    assert int((await stores[0].changes(None)).cursor) == before + len(names)
    await there.forget_announced()
    for name in names:
        found = await there.get(name.key)
        assert found is not None and found.is_usable(NOW) and not found.is_fresh(NOW)
    for cache in (here, there):
        await cache.close()


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "selection",
    [
        Selection(HandleName("10.1000/R")),
        Selection(HandleName("10.1000/A")),
        Selection(prefix=HandleName("10.1000")),
        Selection(everything=True),
        Selection(negative=True),
    ],
)
async def test_a_dry_run_counts_what_the_purge_then_changes_also_of_registry_records(
    selection: Selection, soft: bool, tmp_path: Path
) -> None:
    clock, path = Clock(NOW), tmp_path / "store.db"
    both, alone = "10.1000/BOTH", "10.1000/R"
    write_registry(path, clock, dict.fromkeys((both, alone, "10.2000/R", "10.10001/R"), "http://r.example/"))
    store = SqliteStore(path, clock=clock, max_bytes=10_000_000, gather=0.0, records=find_records())
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=86_400.0)
    for name in (both, "10.1000/A", "10.2000/A"):
        await cache.put(entry(name))
    await cache.put(missing("10.1000/MISSING"))
    await cache.flush()
    counted = await count_selected(cache, selection, soft=soft)
    assert counted == await purge(cache, selection, soft=soft)
    await cache.close()
