"""Both tiers together: which tier answers, announcements of other processes, and failures of the store."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from doi_proxy.assembly.core import open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import MAX_ANNOUNCEMENTS, Changes, Store
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import StoreError
from doi_proxy.features.sqlite import store as sqlite_store
from doi_proxy.features.sqlite import writer
from doi_proxy.features.sqlite.store import SqliteStore
from tests.cache.entries import NOW, entry, missing, verified
from tests.clock import Clock

pytestmark = pytest.mark.anyio


def tier(store: Store | None, clock: Clock) -> TieredStore:
    return TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=86_400.0)


@pytest.fixture
def shared(clock: Clock) -> MemoryStore:
    """A store that several tiers share."""
    return MemoryStore(10_000_000, clock=clock)


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.valkey)])
async def open_two(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[tuple[TieredStore, TieredStore]]:
    """The caches of two workers on one real store."""
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    if request.param == "valkey":
        url = request.getfixturevalue("valkey_url")
        # Other tests of the session leave names on its server.
        with Redis.from_url(url.replace("valkey:", "redis:")) as client:
            client.flushall()
    settings = Settings(store_url=url)
    caches = open_cache(settings, clock, timeout=5.0), open_cache(settings, clock, timeout=5.0)
    for cache in caches:
        await cache.forget_announced()
    yield caches
    for cache in caches:
        await cache.close()


def few_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQLite store announces the last 100 changes to other processes."""
    for module in (writer, sqlite_store):
        monkeypatch.setattr(module, "MAX_ANNOUNCEMENTS", 100)


class CountingStore(SqliteStore):
    """Counts the deletions of one turn of the event loop."""

    in_this_turn = most = 0

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        self.in_this_turn += 1
        self.most = max(self.most, self.in_this_turn)
        return await super().delete(key, announce=announce)


async def test_the_names_of_a_prefix_are_deleted_in_several_turns(tmp_path: Path, clock: Clock) -> None:
    store = CountingStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=1_000_000_000)
    cache = TieredStore(MemoryStore(0, clock=clock), store, clock=clock, ceiling=86_400.0)
    for number in range(3_000):
        await store.put(entry(f"10.1000/{number}"))

    async def count_turns() -> None:
        while True:
            store.in_this_turn = 0
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count_turns())
        assert await cache.clear_prefix("10.1000") == 3_000
        counting.cancel()
    # A page of the file, 6 ms of processor time.
    assert 0 < store.most <= 501
    await cache.close()


async def test_put_writes_to_memory_and_to_the_store(shared: MemoryStore, clock: Clock) -> None:
    cache = tier(shared, clock)
    await cache.put(entry())
    assert cache.peek("10.1000/182") == entry()
    assert shared.peek("10.1000/182") == entry()


async def test_an_entry_from_the_store_is_put_into_memory(shared: MemoryStore, clock: Clock) -> None:
    await shared.put(entry())
    cache = tier(shared, clock)
    assert cache.peek("10.1000/182") is None
    assert await cache.get("10.1000/182") == entry()
    assert cache.peek("10.1000/182") == entry()


async def test_a_stale_entry_in_memory_gives_way_to_one_that_another_process_renewed(
    shared: MemoryStore, clock: Clock
) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await here.put(entry(ttl=60))
    await there.get("10.1000/182")
    clock.advance(100)
    renewed = entry(ttl=60, fetched_at=clock())
    await here.put(renewed)
    assert await there.get("10.1000/182") == renewed


async def test_a_renewed_entry_takes_the_place_of_the_stale_one_in_a_full_memory(
    shared: MemoryStore, clock: Clock
) -> None:
    cache = TieredStore(MemoryStore(entry().size, clock=clock), shared, clock=clock, ceiling=86_400.0)
    await cache.put(entry(ttl=60))
    clock.advance(100)
    renewed = entry(ttl=60, fetched_at=clock())
    await shared.put(renewed)
    assert await cache.get(renewed.key) == cache.peek(renewed.key) == renewed


async def test_a_stale_entry_that_the_store_lost_is_still_there_to_be_served(shared: MemoryStore, clock: Clock) -> None:
    cache = tier(shared, clock)
    await cache.put(entry(ttl=60))
    await shared.close()
    clock.advance(100)
    assert await cache.get("10.1000/182") == entry(ttl=60)


async def test_the_newest_entry_can_be_one_that_another_process_has_just_put(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await there.put(entry())
    clock.advance(5)
    renewed = entry(fetched_at=NOW + 5)
    await here.put(renewed)
    assert await there.get("10.1000/182") == entry()
    assert await there.get("10.1000/182", newest=True) == renewed
    assert there.peek("10.1000/182") == renewed


async def test_the_newest_entry_is_that_of_memory_or_of_the_store(shared: MemoryStore, clock: Clock) -> None:
    cache = tier(shared, clock)
    assert await cache.get("10.1000/182", newest=True) is None
    await shared.put(entry())
    assert await cache.get("10.1000/182", newest=True) == entry()
    clock.advance(5)
    newer = entry(fetched_at=NOW + 5)
    cache.memory.keep(newer)
    assert await cache.get("10.1000/182", newest=True) == newer
    assert cache.peek("10.1000/182") == newer


async def test_an_entry_of_memory_or_of_a_file_takes_no_task(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=1_000_000)
    await store.put(entry())
    cache = tier(store, clock)
    assert cache.get_now("10.1000/1") is None
    assert cache.get_now("10.1000/182") == cache.peek("10.1000/182") == entry()
    assert cache.get_now("10.1000/182") is cache.peek("10.1000/182")
    await cache.close()


async def test_a_shared_store_is_not_read_without_a_task(shared: MemoryStore, clock: Clock) -> None:
    await shared.put(entry())
    assert tier(shared, clock).get_now("10.1000/182") is None


async def test_an_import_never_replaces_a_newer_record(shared: MemoryStore, clock: Clock) -> None:
    cache = tier(shared, clock)
    assert await cache.put_newer(entry(fetched_at=NOW - 10)) is True
    assert await cache.put_newer(entry(fetched_at=NOW - 10)) is False
    assert await cache.put_newer(entry(fetched_at=NOW - 20)) is False
    assert await cache.put_newer(entry(fetched_at=NOW)) is True
    assert await cache.get("10.1000/182") == entry(fetched_at=NOW)


async def test_other_processes_drop_announced_entries_and_keep_the_rest(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    for cache in (here, there):
        await cache.forget_announced()
    for key in ("10.1000/PURGED", "10.1000/GONE", "10.1000/KEPT"):
        await here.put(entry(key))
        await there.get(key)
    await here.delete("10.1000/PURGED")
    await here.put(missing("10.1000/GONE"), announce=True)
    await there.forget_announced()
    assert await there.get("10.1000/PURGED") is None
    assert await there.get("10.1000/GONE") == missing("10.1000/GONE")
    assert there.peek("10.1000/KEPT") == entry("10.1000/KEPT")


async def test_a_process_that_missed_announcements_drops_all_of_its_memory(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await there.forget_announced()
    await there.put(entry())
    for n in range(MAX_ANNOUNCEMENTS + 1):
        await here.delete(f"10.1000/{n}")
    await there.forget_announced()
    assert there.memory.entries == 0


async def test_a_process_keeps_a_record_that_it_has_announced_itself(
    open_two: tuple[TieredStore, TieredStore],
) -> None:
    here, _ = open_two
    await here.put(entry(ttl=86_399.5), announce=True)
    await here.flush()
    await here.forget_announced()
    assert here.peek("10.1000/182") == entry(ttl=86_399.5)


async def test_a_record_that_another_process_makes_stale_right_after_its_change_is_dropped(
    open_two: tuple[TieredStore, TieredStore],
) -> None:
    here, there = open_two
    await here.put(entry(), announce=True)
    await here.flush()
    await there.expire(entry())
    await there.flush()
    await here.forget_announced()
    found = await here.get("10.1000/182")
    assert found is not None
    assert not found.is_fresh(NOW)


async def test_watch_listens_until_it_is_cancelled(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await there.forget_announced()
    await there.put(entry())
    await here.delete("10.1000/182")
    watching = asyncio.ensure_future(there.watch(interval=0))
    for _ in range(100):
        await asyncio.sleep(0)
    assert there.peek("10.1000/182") is None
    assert not watching.done()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_a_purged_prefix_is_gone_and_its_neighbours_stay(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await there.forget_announced()
    for key in ("10.1000/1", "10.1000/2", "10.10001/1", "10.1000.10/1"):
        await here.put(entry(key))
        await there.get(key)
    here.memory.drop("10.1000/1")
    assert await here.clear_prefix("10.1000") == 2
    await there.forget_announced()
    for cache in (here, there):
        assert sorted([e.key async for e in cache.scan()]) == ["10.1000.10/1", "10.10001/1"]
        assert await cache.get("10.1000/1") is await cache.find("10.1000/1") is None
        assert await cache.get("10.1000/2") is None


class AskedStore(MemoryStore):
    """Lets other tasks run before it answers which entries were announced, and remembers since when it was asked."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(1_000_000, clock=clock)
        self.cursors: list[str | None] = []

    async def changes(self, cursor: str | None) -> Changes:
        """See Store."""
        self.cursors.append(cursor)
        await asyncio.sleep(0)
        return await super().changes(cursor)


async def test_two_readings_of_announcements_at_a_time_do_not_read_the_same(clock: Clock) -> None:
    """Each reading records purges with its own time. A second one would be later than what was fetched meanwhile."""
    store = AskedStore(clock)
    cache = tier(store, clock)
    await cache.forget_announced()
    await store.announce("10.1000/1")
    await asyncio.gather(cache.forget_announced(), cache.forget_announced())
    assert store.cursors == [None, "0", "1"]


async def test_a_whole_prefix_leaves_a_file_that_holds_more_than_the_queue(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_PENDING", 80)
    store = SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=1_000_000_000)
    cache = TieredStore(MemoryStore(0, clock=clock), store, clock=clock, ceiling=86_400.0)
    for n in range(100):
        await cache.put(entry(f"10.1000/{n}"))
        if n % 20 == 0:
            await cache.flush()
    assert await cache.clear_prefix("10.1000/") == 100
    assert (await store.stats()).entries == 0
    assert cache.counters.store_errors == 0
    await cache.close()


async def test_a_purge_of_more_names_than_are_announced_leaves_other_prefixes_in_memory(
    open_two: tuple[TieredStore, TieredStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = open_two
    few_announcements(monkeypatch)
    hot = [f"10.2000/{number}" for number in range(20)]
    for key in hot:
        await here.put(entry(key))
    await here.flush()
    for key in hot:
        assert await there.get(key) is not None
    for number in range(120):
        await here.put(entry(f"10.1000/{number}"))
        if number % 20 == 0:
            await here.flush()
    await here.flush()
    assert await there.get("10.1000/119") is not None
    assert await here.clear_prefix("10.1000") == 120
    await there.forget_announced()
    await here.forget_announced()
    for cache in (here, there):
        assert [cache.peek(key) is not None for key in hot] == [True] * len(hot)
        assert cache.peek("10.1000/119") is await cache.get("10.1000/119") is None
    # A query that was sent before the purge is refused, here and there; one about another prefix is not.
    for cache, name in ((here, "10.1000/1"), (there, "10.1000/2")):
        await cache.put(entry(name), sent_at=NOW - 10)
        await cache.flush()
        assert await cache.get(name) is None
        await cache.put(entry(hot[0], fetched_at=NOW + 1), sent_at=NOW - 10)
        await cache.flush()
        assert await cache.get(hot[0], newest=True) == entry(hot[0], fetched_at=NOW + 1)


async def test_what_another_process_reads_during_the_purge_of_a_prefix_is_dropped_after_it(
    shared: MemoryStore, clock: Clock
) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await there.forget_announced()
    await here.put(entry("10.1000/1"))
    await here.begin_purge("10.1000/")
    await there.forget_announced()
    assert await there.get("10.1000/1") is not None
    assert await here.clear_prefix("10.1000") == 1
    await there.forget_announced()
    assert there.peek("10.1000/1") is None


async def test_without_a_store_memory_is_all_there_is(clock: Clock) -> None:
    cache = tier(None, clock)
    await cache.put(entry())
    await cache.forget_announced()
    await cache.flush()
    assert await cache.get("10.1000/182") == await cache.get("10.1000/182", newest=True) == entry()
    assert await cache.spend("queries") is None
    stats = await cache.stats()
    assert (stats.memory_entries, stats.store, stats.healthy) == (1, None, True)
    assert await cache.delete("10.1000/182") is True
    assert await cache.delete("10.1000/182") is False


async def fail(*_: object, **__: object) -> Any:
    """Fail, as an operation of a store."""
    raise StoreError


async def fail_to_scan(*_: object) -> AsyncIterator[Entry]:
    """Fail, as the scan of a store."""
    raise StoreError
    yield


#: The operations of a store with records, but `scan`.
OPERATIONS: Final = (
    *("get", "put", "delete", "announce", "read_note", "write_note", "stats", "flush", "close"),
    *("changes", "spend"),
)


class BrokenRecords:
    """Registry records of a store that fails."""

    forget = count = fail

    def peek(self, _: str) -> None:
        """Have read nothing."""

    def find(self, _: str) -> Any:
        """Fail, as a read."""
        raise StoreError


#: A store that fails at everything.
BrokenStore: Any = type(
    "BrokenStore", (), {**dict.fromkeys(OPERATIONS, fail), "scan": fail_to_scan, "registry": BrokenRecords()}
)


class RecordingObserver:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def __call__(self, operation: str) -> None:
        self.operations.append(operation)


async def test_a_store_that_always_fails_does_not_stop_the_cache(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    observer = RecordingObserver()
    cache = TieredStore(
        MemoryStore(1_000_000, clock=clock),
        BrokenStore(),
        clock=clock,
        ceiling=86_400.0,
        observer=observer,
    )
    for _ in range(3):
        await cache.put(entry())
    assert await cache.get("10.1000/182") == entry()
    assert await cache.get("10.1000/1") is await cache.find("10.1000/1") is None
    assert await cache.get("10.1000/182", newest=True) == entry()
    assert await cache.spend("queries") is None
    assert [e async for e in cache.scan()] == []
    assert await cache.clear_prefix("10.1000") == 1
    assert await cache.delete("10.1000/182") is False
    assert await cache.count_registry() == 0
    assert await cache.read_note("note") is None
    await cache.change_note("note", lambda _: b"new")
    await cache.forget_announced()
    assert (await cache.stats()).healthy is False
    await cache.close()
    assert cache.counters.store_errors == len(observer.operations)
    assert set(observer.operations) == {"scan", "forget_registry", "count_registry", *OPERATIONS}
    assert [record.message for record in caplog.records] == [
        "The store is down: put failed; this process continues with its memory. The store could not be read or written."
        " Do not restart doi-proxy before the store works: what is in memory alone would be lost."
    ]


@pytest.mark.parametrize("arrives", ["before the announcement", "after the announcement"])
@pytest.mark.parametrize("scope", ["10.1000/182", "10.1000/", ""])
async def test_a_purge_by_another_process_holds_against_an_answer_under_way(
    tmp_path: Path, clock: Clock, scope: str, arrives: str
) -> None:
    stores = [SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=10_000_000, gather=3_600) for _ in "ab"]
    here, there = (tier(store, clock) for store in stores)
    await there.forget_announced()
    sent_at = clock()
    clock.advance(1)
    await here.begin_purge(scope)
    clock.advance(1)
    if arrives == "before the announcement":
        await there.put(entry(), sent_at=sent_at)
        await there.get("10.1000/182")
    await there.forget_announced()
    if arrives == "after the announcement":
        await there.put(entry(), sent_at=sent_at)
    for cache in (here, there):
        await cache.flush()
        assert await cache.get("10.1000/182") is None
        await cache.close()


async def test_an_expired_entry_is_stale_in_every_process_and_still_usable(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    await there.forget_announced()
    await there.put(entry())
    await here.expire(entry())
    await there.forget_announced()
    for cache in (here, there):
        found = await cache.get("10.1000/182")
        assert found is not None
        assert not found.is_fresh(clock())
        assert found.is_usable(clock())


async def test_a_verified_entry_that_is_expired_is_no_longer_fresh(shared: MemoryStore, clock: Clock) -> None:
    cache = tier(shared, clock)
    await cache.put(verified(entry()))
    await cache.expire(verified(entry()))
    found = await cache.get("10.1000/182")
    assert found is not None
    assert (found.is_fresh(clock()), found.answer.is_verified) == (False, True)


async def test_an_import_replaces_a_verified_record_only_after_its_ttl(shared: MemoryStore, clock: Clock) -> None:
    cache = tier(shared, clock)
    await cache.put(verified(entry(ttl=60)))
    clock.advance(30)
    imported = entry(fetched_at=clock())
    assert not await cache.put_newer(imported)
    assert await cache.get("10.1000/182") == verified(entry(ttl=60))
    clock.advance(30)
    assert await cache.put_newer(imported)
    assert await cache.get("10.1000/182") == imported


async def test_expiring_does_not_replace_a_newer_record(shared: MemoryStore, clock: Clock) -> None:
    here, there = tier(shared, clock), tier(shared, clock)
    newer = entry(fetched_at=clock() + 1)
    clock.advance(2)
    await there.put(newer)
    await here.expire(entry())
    assert await there.get("10.1000/182", newest=True) == newer


async def test_a_note_that_cannot_be_read_is_not_replaced(clock: Clock) -> None:
    class UnreadableStore(MemoryStore):
        async def read_note(self, name: str) -> builtins.bytes | None:
            raise StoreError

    store = UnreadableStore(1_000_000, clock=clock)
    await store.write_note("note", b"old")
    await tier(store, clock).change_note("note", lambda _: b"new")
    assert await MemoryStore.read_note(store, "note") == b"old"


async def test_memory_alone_has_no_registry_records_and_no_notes(clock: Clock) -> None:
    cache = tier(None, clock)
    await cache.change_note("note", lambda _: b"new")
    assert (await cache.read_note("note"), await cache.count_registry(), await cache.forget_registry()) == (None, 0, 0)
