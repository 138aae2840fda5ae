"""A store with wrong data: no wrong record is served, no request fails, and no record is fresh for too long."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from doi_proxy.assembly.features import store_openers
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import Store
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.features.valkey.store import ValkeyStore
from doi_proxy.store.file import StoreOptions
from doi_proxy.store.file import open_store as open_shared_store
from tests.cache.entries import entry, known, missing
from tests.clock import Clock
from tests.examples import examples
from tests.features.sqlite.sqlite_stores import opened
from tests.table import table

pytestmark = pytest.mark.anyio


CEILING = 86_400.0
TWO_DAYS = 172_800.0
FILES = examples(2)


def tier(store: Store | None, clock: Clock) -> TieredStore:
    return TieredStore(MemoryStore(10_000_000, clock=clock), store, clock=clock, ceiling=CEILING)


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
        with suppress(StoreError):
            assert await store.get(key) in (None, wanted)
    cache = tier(store, clock)
    assert {e.key: e for e in [e async for e in cache.scan()]}.items() <= right.items()
    for found in right.values():
        await cache.put(found)
        assert await cache.get(found.key) == found
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
    assert max(e.fresh_until - clock() for e in entries) <= CEILING
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


# --- From a store URL to a store -------------------------------------------------------------------------------------


def open_store(url: str, clock: Clock) -> TieredStore:
    options = StoreOptions(clock, max_bytes=100_000_000, timeout=0.1)
    store = open_shared_store(url, options, store_openers())
    return TieredStore(MemoryStore(100_000, clock=clock), store, clock=clock, ceiling=86_400.0)


@pytest.mark.parametrize("url", ["memory:", "memory://"])
async def test_memory_has_no_second_tier(url: str, clock: Clock) -> None:
    cache = open_store(url, clock)
    await cache.put(entry())
    assert (await cache.stats()).store is None
    assert await cache.get("10.1000/182") == entry()


async def test_four_slashes_are_an_absolute_path(tmp_path: Path, clock: Clock) -> None:
    cache = open_store(f"sqlite:///{tmp_path}/store.sqlite3", clock)
    await cache.put(entry())
    await cache.close()
    assert (tmp_path / "store.sqlite3").exists()


async def test_three_slashes_are_a_relative_path(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await open_store("sqlite:///var/store.sqlite3", clock).close()
    assert (tmp_path / "var" / "store.sqlite3").exists()


async def test_a_server_may_be_called_valkey(clock: Clock) -> None:
    store = ValkeyStore("valkey://valkey.invalid:6379/0", clock=clock, timeout=5.0)
    # No host of that name exists, and the error of the library names the host that it did not find.
    with pytest.raises(StoreError, match=r"connecting to valkey\.invalid:6379"):
        await store.get("10.1000/182")
    await store.close()


@table(
    "url",
    [
        "", "memory", "memory:/tmp", "sqlite:", "sqlite://store", "sqlite:///", "sqlite:////", "sqlite:store.sqlite3",
        "sqlite:///:memory:", "sqlite:///var/", "/var/store", "file:///var/store", "postgres://host/0", "redis:",
        "redis://", "redis:///0", "redis://host:port/0", "redis://host:99999/0", "valkey://:secret@host/first",
        "redis://host/0?socket_timeout=soon", "redis://host/0?nonsense=1",
        "redis+", "redis+tcp://host", "redisx://host", "valkeys+unix:///run/x",
        "valkey+cluster://:secret@h1,h2/1", "valkey+sentinel://:secret@h1", "valkey+cluster://:secret@h1,h2:99999", "valkey+unix:///run/x?nonsense=1",
    ],
)  # fmt: skip
async def test_any_other_url_is_one_clear_line_without_its_password(url: str, clock: Clock) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url, clock)
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message
