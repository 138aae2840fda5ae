"""A store with wrong data: no wrong record is served, no request fails, and no record is fresh for too long."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from app.cache.entry import Entry
from app.cache.memory import MemoryStore
from app.cache.store import SharedStore
from app.cache.tiered import TieredStore
from app.errors import StoreError
from app.features.sqlite.store import SqliteStore
from app.features.stored_entry import pack
from app.features.valkey.layout import KEY_PREFIX
from app.features.valkey.store import ValkeyStore
from tests.cache.entries import entry, missing
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import opened

pytestmark = pytest.mark.anyio

CEILING = 86_400.0
TWO_DAYS = 172_800.0
#: Damaged entries per store, and damaged files.
MUTATIONS = 3_000
FILES = 60


def tier(store: SharedStore | None, clock: Clock) -> TieredStore:
    return TieredStore(MemoryStore(10_000_000, clock=clock), store, clock=clock, ceiling=CEILING)


def known(number: int) -> Entry:
    """One of the entries that are put; each has its own URL."""
    key = f"10.1000/{number:04}"
    return missing(key) if number % 10 == 0 else entry(key, f"https://example.org/{number}")


def mutate(dice: random.Random, data: bytes, other: bytes) -> bytes:
    """The data of an entry, damaged in one of the ways that a disk, a person or another program has."""
    place = dice.randrange(len(data))
    ways: list[Callable[[], bytes]] = [
        lambda: other,
        lambda: data[:place],
        lambda: data + other[:place],
        lambda: data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :],
        lambda: data[:place] + dice.randbytes(4) + data[place + 4 :],
        lambda: data[:34] + other[34:],
        lambda: other[:34] + data[34:],
        lambda: data[:4] + other[4:],
        lambda: b"",
        lambda: dice.randbytes(60),
        lambda: pack(replace(entry(), fresh_until=dice.choice([float("inf"), 1e13, float("nan")]))),
    ]  # fmt: skip
    return dice.choice(ways)()


async def read(store: SharedStore, key: str) -> Entry | None:
    try:
        return await store.get(key)
    except StoreError:
        return None


async def test_no_damaged_row_is_served(tmp_path: Path, clock: Clock) -> None:
    dice, numbers = random.Random(1), range(MUTATIONS // 10)
    path = tmp_path / "store.sqlite3"
    right = {known(n).key: known(n) for n in numbers}
    async with opened(path, clock) as store:
        for found in right.values():
            await store.put(found)
        await store.flush()
        served = 0
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            for _ in range(10):
                file.execute("BEGIN")
                for key, wanted in right.items():
                    data = mutate(dice, pack(wanted), pack(right[dice.choice(list(right))]))
                    odd: list[object] = [data, data, data, data, "text", 1, 1.5, b"\xff".decode("latin-1")]
                    file.execute("UPDATE entries SET data = ? WHERE key = ?", (dice.choice(odd), key))
                odd_time = dice.choice(["text", 1e300, b"x"])
                keys = [(odd_time, key) for key in list(right)[::7]]
                file.executemany("UPDATE entries SET last_used = ? WHERE key = ?", keys)
                file.execute("COMMIT")
                for key, wanted in right.items():
                    answer = await read(store, key)
                    assert answer in (None, wanted)
                    served += answer is not None
                assert {e.key: e for e in [e async for e in store.scan()]}.items() <= right.items()
        assert served < MUTATIONS / 10
        assert (await store.stats()).healthy


async def test_swapped_rows_are_noticed_in_sqlite(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"
    async with opened(path, clock) as store:
        await store.put(known(1))
        await store.put(known(2))
        await store.flush()
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("UPDATE entries SET key = 'x' WHERE key = ?", (known(1).key,))
            file.execute("UPDATE entries SET key = ? WHERE key = ?", (known(1).key, known(2).key))
            file.execute("UPDATE entries SET key = ? WHERE key = 'x'", (known(2).key,))
        assert [await read(store, known(n).key) for n in (1, 2)] == [None, None]
        assert await store.delete(known(1).key) is True
        await store.put(known(1))
        assert await store.get(known(1).key) == known(1)


@pytest.mark.parametrize("seed", range(FILES))
async def test_no_damaged_file_serves_a_wrong_record(seed: int, tmp_path: Path, clock: Clock) -> None:
    dice = random.Random(seed)
    path = tmp_path / "store.sqlite3"
    right = {known(n).key: known(n) for n in range(100)}
    async with opened(path, clock) as store:
        for found in right.values():
            await store.put(found)
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice([1, 5, 50])):
        start = dice.randrange(len(data))
        piece = dice.randbytes(dice.choice([1, 1, 8, 300]))
        data[start : start + len(piece)] = piece
    path.write_bytes(data[: dice.choice([len(data), len(data), dice.randrange(len(data))])])
    try:
        store = SqliteStore(path, clock=clock, max_bytes=1_000_000)
    except StoreError:
        return
    for key, wanted in right.items():
        assert await read(store, key) in (None, wanted)
    cache = tier(store, clock)
    assert {e.key: e for e in [e async for e in cache.scan()]}.items() <= right.items()
    for found in right.values():
        await cache.put(found)
        assert await cache.get(found.key) == found
    await cache.take("upstream", 1, 5)
    await cache.stats()
    await cache.close()


async def test_totals_that_are_not_numbers_are_counted_again(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"
    for odd in ("text", -(10**6), 10**18, 10**15):
        async with opened(path, clock) as store:
            await store.put(known(1))
            await store.flush()
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                file.execute("UPDATE totals SET bytes = ?", (odd,))
            await store.put(known(2))
            await store.flush()
            assert [await store.get(known(n).key) for n in (1, 2)] == [known(1), known(2)]
            stats = await store.stats()
            assert (stats.entries, stats.healthy) == (2, True)
            assert 0 < stats.bytes < 10_000


async def test_a_lease_of_a_damaged_or_future_row_is_free(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path / "store.sqlite3", clock) as store:
        for odd in ("text", 1e13, clock() + TWO_DAYS, b"blob"):
            assert await store.lease("10.1000/182", "there", 20)
            with closing(sqlite3.connect(tmp_path / "store.sqlite3.coordination", isolation_level=None)) as file:
                file.execute("UPDATE leases SET ends = ?", (odd,))
            assert await store.lease("10.1000/182", "here", 20)
            assert not await store.lease("10.1000/182", "there", 20)
            await store.release("10.1000/182", "here")


async def test_a_bucket_of_the_wrong_types_is_full(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path / "store.sqlite3", clock) as store:
        await store.take("upstream", 1, 5)
        with closing(sqlite3.connect(tmp_path / "store.sqlite3.coordination", isolation_level=None)) as file:
            file.execute("UPDATE buckets SET tokens = 'text', at = x'00', blocked_until = 'text'")
        assert [await store.take("upstream", 1, 5) for _ in range(6)] == [0.0] * 5 + [1.0]


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.valkey)])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[SharedStore]:
    if request.param == "sqlite":
        async with opened(tmp_path / "store.sqlite3", clock) as file:
            yield file
    else:
        url = request.getfixturevalue("valkey_url")
        async with Redis.from_url(url.replace("valkey", "redis", 1)) as server:
            await server.flushdb()
        shared = ValkeyStore(url, clock=clock, timeout=5.0)
        yield shared
        await shared.close()


@pytest.mark.valkey
async def test_no_damaged_value_is_served_from_valkey(clock: Clock, valkey_url: str) -> None:
    dice, numbers = random.Random(1), range(MUTATIONS // 10)
    right = {known(n).key: known(n) for n in numbers}
    store = ValkeyStore(valkey_url, clock=clock, timeout=5.0)
    async with Redis.from_url(valkey_url.replace("valkey", "redis", 1)) as server:
        await server.flushdb()
        for _ in range(10):
            damaged: dict[str, Any] = {}
            for key, wanted in right.items():
                data = mutate(dice, pack(wanted), pack(right[dice.choice(list(right))]))
                damaged[f"{KEY_PREFIX}entry:{key}"] = data
            await server.mset(damaged)
            for key, wanted in right.items():
                assert await read(store, key) in (None, wanted)
            assert {e.key: e for e in [e async for e in store.scan()]}.items() <= right.items()
    await store.close()


@pytest.mark.valkey
async def test_a_value_of_another_type_in_valkey_is_one_missing_entry(clock: Clock, valkey_url: str) -> None:
    store = ValkeyStore(valkey_url, clock=clock, timeout=5.0)
    async with Redis.from_url(valkey_url.replace("valkey", "redis", 1)) as server:
        await server.flushdb()
        await store.put(known(2))
        await server.rpush(f"{KEY_PREFIX}entry:{known(1).key}", "a list")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.get(known(1).key)
    assert await store.get(known(2).key) == known(2)  # no pause
    await store.put(known(1))
    assert await store.get(known(1).key) == known(1)
    await store.close()


async def test_after_a_clock_two_days_ahead_no_stored_record_is_fresh_for_longer_than_the_ceiling(
    store: SharedStore, clock: Clock
) -> None:
    clock.advance(TWO_DAYS)
    written = tier(store, clock)
    await written.put(entry(fetched_at=clock()))
    await written.put(missing(fetched_at=clock()))
    await written.flush()
    clock.advance(-TWO_DAYS)
    cache = tier(store, clock)
    found = await cache.get("10.1000/182")
    assert found is not None
    assert not found.is_fresh(clock())
    assert found.is_usable(clock())
    assert await cache.get("10.1000/MISSING") is None
    renewed = entry(fetched_at=clock())
    assert await cache.put_newer(renewed) is True
    assert await tier(store, clock).get("10.1000/182") == renewed


async def test_after_the_clock_was_set_back_memory_keeps_to_the_ceiling(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tier(None, clock)
    await cache.put(known(1))
    clock.advance(TWO_DAYS)
    for number in range(2, 2_500):
        await cache.put(replace(known(number), fetched_at=clock(), fresh_until=clock() + CEILING))
    await cache.notice_clock_step()
    clock.advance(-TWO_DAYS)
    await cache.notice_clock_step()
    await cache.notice_clock_step()
    entries = [e async for e in cache.scan()]
    assert max(e.ttl_left(clock()) for e in entries) <= CEILING
    assert [e.key for e in entries if e.is_fresh(clock())] == [known(1).key]
    assert len(caplog.records) == 1


async def test_small_steps_back_of_the_clock_add_up(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    cache = tier(None, clock)
    for _ in range(4):
        clock.advance(-20)
        await cache.notice_clock_step()
    assert len(caplog.records) == 1


async def test_a_not_found_leaves_memory_when_it_has_ended_and_a_record_stays(clock: Clock) -> None:
    memory = MemoryStore(1_000_000, clock=clock)
    memory.keep(missing())
    memory.keep(missing("10.1000/RENEWED"))
    memory.keep(missing("10.1000/FOUND"))
    memory.keep(entry("10.1000/FOUND", ttl=1, grace=1))
    clock.advance(30)
    memory.keep(missing("10.1000/RENEWED", fetched_at=clock()))
    assert memory.drop_expired() == 0
    clock.advance(30)
    assert memory.drop_expired() == 1
    assert sorted(memory.unsorted_keys()) == ["10.1000/FOUND", "10.1000/RENEWED"]
    clock.advance(30)
    assert memory.drop_expired() == 1
    assert sorted(memory.unsorted_keys()) == ["10.1000/FOUND"]
