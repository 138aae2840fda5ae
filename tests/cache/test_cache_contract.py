"""The contract of every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.cache.coordination import MAX_ANNOUNCEMENTS
from app.cache.entry import Entry
from app.cache.memory import MemoryStore
from app.cache.store import SharedStore
from app.features.sqlite.store import SqliteStore
from app.features.valkey.store import ValkeyStore
from tests.cache.entries import NOW, entry, missing, proven, verified
from tests.clock import Clock

pytestmark = pytest.mark.anyio

#: Gives a store that shares its entries with every other one it gave; memory is shared by being the same.
Opener = Callable[[], Awaitable[SharedStore]]

_numbers = count()


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("valkey", marks=pytest.mark.valkey),
        pytest.param("cluster", marks=pytest.mark.valkey),
    ]
)
async def open_one(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[Opener]:
    memory = MemoryStore(1_000_000, clock=clock)
    if request.param == "valkey":
        url = request.getfixturevalue("valkey_url")
        server = Redis.from_url(url.replace("valkey", "redis", 1))
        await server.flushdb()
        await server.aclose()
    elif request.param == "cluster":
        cluster = request.getfixturevalue("session_cluster")
        cluster.flush()
        url = cluster.url

    async def opener() -> SharedStore:
        store: SharedStore = memory
        if request.param == "sqlite":
            store = SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=100_000_000)
        elif request.param in ("valkey", "cluster"):
            # A loaded test machine may take longer than a server on the same network.
            store = ValkeyStore(url, clock=clock, timeout=5.0)
        opened.push_async_callback(store.close)
        return store

    async with AsyncExitStack() as opened:
        yield opener


@pytest.fixture
async def store(open_one: Opener) -> SharedStore:
    return await open_one()


async def keys(store: SharedStore, prefix: str = "") -> list[str]:
    return [found.key async for found in store.scan(prefix)]


async def test_an_entry_is_visible_immediately_after_put(store: SharedStore) -> None:
    await store.put(entry())
    assert await store.get("10.1000/182") == entry()


@pytest.mark.parametrize(
    "one",
    [verified(entry()), verified(missing()), proven(entry()), proven(missing(), b"x" * 65_536), proven(entry(), b"")],
    ids=["record", "not found", "proven record", "proven not found", "empty proof"],
)
async def test_an_answer_stays_verified_for_every_process(open_one: Opener, one: Entry) -> None:
    here, there = await open_one(), await open_one()
    await here.put(one)
    await here.flush()
    assert await there.get(one.key) == one
    assert [found async for found in there.scan(one.key)] == [one]
    await there.delete(one.key)
    await there.flush()
    assert await here.get(one.key) is None


async def test_an_entry_is_visible_after_a_flush(store: SharedStore) -> None:
    await store.put(entry())
    await store.flush()
    assert await store.get("10.1000/182") == entry()


async def test_a_negative_entry_is_kept_like_a_record(store: SharedStore) -> None:
    await store.put(missing())
    await store.flush()
    assert await store.get("10.1000/MISSING") == missing()


async def test_an_unknown_key_has_no_entry(store: SharedStore) -> None:
    assert await store.get("10.1000/182") is None


async def test_a_name_in_any_script_is_a_key(store: SharedStore) -> None:
    key = "10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03%:*?[]\\ 💡"
    await store.put(entry(key))
    await store.flush()
    assert await store.get(key) == entry(key)
    assert await keys(store, "10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03%:*?[") == [key]


async def test_the_later_of_two_puts_counts(store: SharedStore) -> None:
    await store.put(entry(url="http://example.org/old"))
    await store.flush()
    await store.put(entry(url="http://example.org/new"))
    assert await store.get("10.1000/182") == entry(url="http://example.org/new")
    await store.flush()
    assert await store.get("10.1000/182") == entry(url="http://example.org/new")
    assert await keys(store) == ["10.1000/182"]


@pytest.mark.parametrize(
    "proof",
    [verified(entry(ttl=60)), verified(missing("10.1000/182")), proven(entry(ttl=60)), proven(missing("10.1000/182"))],
    ids=["record", "none", "proven record", "proven none"],
)
@pytest.mark.parametrize("written", [True, False], ids=["written", "waiting"])
async def test_no_unverified_entry_replaces_a_fresh_verified_one(
    open_one: Opener, clock: Clock, proof: Entry, written: bool
) -> None:
    here, there = await open_one(), await open_one()
    cursor = (await there.changes(None)).cursor
    await here.put(proof)
    if written:
        await here.flush()
    lies = [entry(url="http://evil.example/", fetched_at=NOW + 5), missing("10.1000/182", fetched_at=NOW + 5)]
    for writer, lie in zip((there, here) if written else (here, here), lies, strict=True):
        await writer.put(lie, sent_at=NOW, announce=False)
        await writer.put(lie, unless_newer=True)
        await writer.flush()
    assert await here.get(proof.key) == await there.get(proof.key) == proof
    # A process that has the lie in memory drops it.
    assert not written or proof.key in (await there.changes(cursor)).keys
    # Another verified entry replaces it, and so does any entry after its soft expiry or a purge.
    await there.put(verified(entry(ttl=30, fetched_at=NOW)))
    await there.flush()
    assert await here.get(proof.key) == verified(entry(ttl=30))
    clock.advance(30)
    await there.put(lies[0])
    await there.flush()
    assert await here.get(proof.key) == lies[0]
    await here.put(verified(entry(fetched_at=NOW + 30)))
    await here.delete(proof.key)
    await here.put(lies[0])
    await here.flush()
    assert await there.get(proof.key) == lies[0]


async def test_an_entry_is_not_returned_after_its_hard_expiry(store: SharedStore, clock: Clock) -> None:
    await store.put(entry(ttl=10, grace=20))
    clock.advance(29)
    assert await store.get("10.1000/182") is not None
    clock.advance(1)
    assert await store.get("10.1000/182") is None
    assert await keys(store) == []


async def test_a_deleted_entry_is_gone_immediately_and_after_a_flush(store: SharedStore) -> None:
    await store.put(entry())
    await store.flush()
    assert await store.delete("10.1000/182") is True
    assert await store.get("10.1000/182") is None
    await store.flush()
    assert await store.get("10.1000/182") is None
    assert await store.delete("10.1000/182") is False


async def test_a_deleted_entry_can_be_put_again(store: SharedStore) -> None:
    await store.put(entry())
    await store.delete("10.1000/182")
    await store.put(entry())
    await store.flush()
    assert await store.get("10.1000/182") == entry()


async def test_a_scan_returns_only_the_entries_with_the_prefix(store: SharedStore) -> None:
    for key in ("10.1000/2", "10.1000/1", "10.10001/1", "10.1000.10/1"):
        await store.put(entry(key))
    assert sorted(await keys(store)) == ["10.1000.10/1", "10.1000/1", "10.1000/2", "10.10001/1"]
    assert sorted(await keys(store, "10.1000/")) == ["10.1000/1", "10.1000/2"]


async def test_a_scan_returns_every_entry_of_many_pages(store: SharedStore) -> None:
    wanted = {f"10.1000/{n:04}" for n in range(1_234)}
    for key in sorted(wanted):
        await store.put(entry(key))
    assert set(await keys(store)) == wanted


async def test_entries_are_shared(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    await here.put(entry())
    await here.flush()
    assert await there.get("10.1000/182") == entry()
    await there.delete("10.1000/182")
    await there.flush()
    assert await here.get("10.1000/182") is None


async def test_announced_puts_and_all_deletes_reach_other_processes(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    await here.put(entry("10.1000/BEFORE"), announce=True)
    await here.flush()
    heard = await there.changes(None)
    assert (heard.keys, heard.overrun) == ((), False)
    await here.put(entry("10.1000/QUIET"))
    await here.put(entry("10.1000/LOUD"), announce=True)
    await here.delete("10.1000/GONE")
    await here.flush()
    heard = await there.changes(heard.cursor)
    assert set(heard.keys) == {"10.1000/LOUD", "10.1000/GONE"}
    assert not heard.overrun
    assert (await there.changes(heard.cursor)).keys == ()


async def test_the_very_first_announcement_is_returned(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    cursor = (await there.changes(None)).cursor
    await here.delete("10.1000/182")
    await here.flush()
    heard = await there.changes(cursor)
    assert (heard.keys, heard.overrun) == (("10.1000/182",), False)


async def test_an_announcement_survives_a_later_quiet_put_of_the_same_name(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    cursor = (await there.changes(None)).cursor
    await here.put(entry(), announce=True)
    await here.put(entry())
    await here.flush()
    assert (await there.changes(cursor)).keys == ("10.1000/182",)


async def test_who_missed_more_than_is_kept_hears_of_an_overrun(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    await here.delete("10.1000/FIRST")
    await here.flush()
    cursor = (await there.changes(None)).cursor
    # Valkey trims its stream by whole nodes of 100.
    for n in range(MAX_ANNOUNCEMENTS + 200):
        await here.delete(f"10.1000/{n}")
    await here.flush()
    heard = await there.changes(cursor)
    assert heard.overrun
    assert (await there.changes(heard.cursor)).overrun is False


async def test_every_kept_announcement_is_heard(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    await here.delete("10.1000/FIRST")
    await here.flush()
    cursor = (await there.changes(None)).cursor
    # The announcement at the cursor is kept too.
    for n in range(MAX_ANNOUNCEMENTS - 1):
        await here.delete(f"10.1000/{n}")
    await here.flush()
    heard = await there.changes(cursor)
    assert (len(heard.keys), heard.overrun) == (MAX_ANNOUNCEMENTS - 1, False)


async def test_a_lease_has_one_owner_at_a_time(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    assert await here.lease("10.1000/182", "here", 20) is True
    assert await there.lease("10.1000/182", "there", 20) is False
    assert await here.lease("10.1000/182", "here", 20) is False
    assert await there.lease("10.1000/1", "there", 20) is True


async def test_a_released_lease_is_free_and_its_entry_visible(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    assert await here.lease("10.1000/182", "here", 20)
    await here.put(entry())
    await here.release("10.1000/182", "here")
    assert await there.lease("10.1000/182", "there", 20) is True
    assert await there.get("10.1000/182") == entry()


async def test_an_owner_cannot_release_the_lease_of_another_owner(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    assert await here.lease("10.1000/182", "here", 20)
    await there.release("10.1000/182", "there")
    assert await there.lease("10.1000/182", "there", 20) is False


async def test_its_owner_alone_renews_a_lease(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    assert await here.lease("10.1000/182", "here", 20)
    await there.renew("10.1000/182", "there", 0.0)
    assert await there.lease("10.1000/182", "there", 20) is False
    await here.renew("10.1000/182", "here", 0.0)
    # Valkey lets it end after a millisecond.
    async with asyncio.timeout(10):
        while not await there.lease("10.1000/182", "there", 20):
            pass
    await here.renew("10.1000/182", "here", 0.0)
    assert await here.lease("10.1000/182", "here", 20) is False


async def test_of_fifty_who_want_a_lease_one_gets_it(open_one: Opener) -> None:
    stores = [await open_one() for _ in range(5)]
    asked = [stores[n % 5].lease("10.1000/182", f"owner {n}", 20) for n in range(50)]
    assert (await asyncio.gather(*asked)).count(True) == 1


async def test_a_bucket_gives_its_burst_and_then_a_wait(store: SharedStore) -> None:
    bucket = f"bucket {next(_numbers)}"
    assert [await store.take(bucket, 0.001, 3) for _ in range(3)] == [0.0, 0.0, 0.0]
    wait = await store.take(bucket, 0.001, 3)
    assert 0 < wait <= 1_000


async def test_a_shared_bucket_gives_its_burst_once(open_one: Opener) -> None:
    stores, bucket = [await open_one() for _ in range(10)], f"bucket {next(_numbers)}"
    waits = await asyncio.gather(*(stores[n % 10].take(bucket, 0.000_001, 20) for n in range(100)))
    assert waits.count(0.0) == 20


async def test_a_bucket_without_a_rate_never_fills_again(store: SharedStore) -> None:
    bucket = f"bucket {next(_numbers)}"
    assert await store.take(bucket, 0, 1) == 0.0
    assert await store.take(bucket, 0, 1) == float("inf")


async def test_tokens_that_are_left_for_others_are_not_taken(store: SharedStore) -> None:
    bucket = "people-first"
    assert [await store.take(bucket, 0.001, 3, 2) for _ in range(2)] == [0.0, pytest.approx(1000, rel=0.01)]
    assert [await store.take(bucket, 0.001, 3) for _ in range(2)] == [0.0, 0.0]


async def test_a_caller_need_not_leave_more_tokens_than_a_full_bucket_can(store: SharedStore) -> None:
    assert await store.take("small", 0.001, 1, 50) == 0.0


async def test_a_back_off_holds_for_every_process_that_shares_the_bucket(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    bucket = f"bucket {next(_numbers)}"
    assert await here.take(bucket, 1, 5) == 0.0
    await here.back_off(bucket, 3_600)
    await there.back_off(bucket, 5)  # a shorter one does not end the longer one
    assert 3_000 < await there.take(bucket, 1, 5) <= 3_601


async def test_a_bucket_may_be_backed_off_before_it_was_ever_used(store: SharedStore) -> None:
    bucket = f"bucket {next(_numbers)}"
    await store.back_off(bucket, 3_600)
    assert await store.take(bucket, 1, 5) > 3_000


async def test_a_working_store_is_healthy_and_counts_its_entries(store: SharedStore) -> None:
    await store.put(entry("10.1000/1"))
    await store.put(entry("10.1000/2"))
    await store.flush()
    stats = await store.stats()
    assert (stats.entries, stats.healthy) == (2, True)
    assert stats.bytes > 0
    assert stats.detail


@pytest.mark.parametrize("scope", ["10.1000/182", "10.1000/", ""])
async def test_the_answer_to_a_question_sent_before_a_purge_is_not_stored(
    open_one: Opener, clock: Clock, scope: str
) -> None:
    here, there = await open_one(), await open_one()
    sent_at = clock()
    clock.advance(5)
    await here.delete(scope)
    await here.flush()
    clock.advance(1)
    await there.put(entry(), sent_at=sent_at)
    await there.put(entry("10.10000/OTHER"), sent_at=sent_at)
    await there.flush()
    assert await here.get("10.1000/182") is None
    assert (await here.get("10.10000/OTHER") is None) == (scope == "")
    await there.put(entry(), sent_at=clock())
    await there.flush()
    assert await here.get("10.1000/182") == entry()


async def test_an_entry_that_waits_to_be_written_does_not_survive_a_purge_by_another_process(
    open_one: Opener, clock: Clock
) -> None:
    here, there = await open_one(), await open_one()
    await there.put(entry(), sent_at=clock())
    clock.advance(0.1)
    await here.delete("10.1000/182")
    await here.flush()
    await there.flush()
    assert await here.get("10.1000/182") is None


async def test_an_import_does_not_replace_a_record_that_was_fetched_later(open_one: Opener, clock: Clock) -> None:
    here, there = await open_one(), await open_one()
    old, new = entry(url="http://old.example/"), entry(url="http://new.example/", fetched_at=clock() + 1)
    await here.put(old, unless_newer=True)
    clock.advance(2)
    await there.put(new)
    await there.flush()
    await here.flush()
    assert await there.get("10.1000/182") == new
    await here.put(old, unless_newer=True)
    await here.flush()
    assert await here.get("10.1000/182") == new


async def test_an_import_after_a_purge_is_stored(store: SharedStore, clock: Clock) -> None:
    await store.put(entry(fetched_at=clock() + 1))
    await store.flush()
    await store.delete("10.1000/182")
    await store.put(entry(), unless_newer=True)
    await store.flush()
    assert await store.get("10.1000/182") == entry()


async def test_a_note_is_kept_for_all_processes(open_one: Opener) -> None:
    here, there = await open_one(), await open_one()
    assert await here.read_note("note") is None
    for data in (b"first", b"\x00\xff"):
        await here.write_note("note", data)
    assert await there.read_note("note") == b"\x00\xff"
    assert await there.read_note("other") is None
