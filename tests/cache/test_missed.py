"""What a store missed while it was away, it gets when it is back, whatever the store is."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.missed import Missed
from doi_proxy.cache.store import Purges
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import StoreError
from tests.cache.entries import entry
from tests.clock import Clock
from tests.constants import changed
from tests.fake_upstream import EVERY_NAME
from tests.world.world import World

pytestmark = pytest.mark.anyio

NAME, OTHER, THIRD = "10.1000/1", "10.1000/2", "10.1001/3"


class Unsteady(MemoryStore):
    """A store of its own process that can be away."""

    is_away = False

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        self._fail()
        await super().put(entry, announce=announce, sent_at=sent_at, unless_newer=unless_newer)

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        self._fail()
        return await super().delete(key, announce=announce)

    async def close(self) -> None:
        """Another process has it."""

    def _fail(self) -> None:
        if self.is_away:
            raise StoreError("The server does not answer.")


async def read_nothing() -> None:
    """No other instance has purged anything."""


@pytest.fixture
def store(clock: Clock) -> Unsteady:
    return Unsteady(1_000_000, clock=clock)


@pytest.fixture
def cache(store: Unsteady, clock: Clock) -> TieredStore:
    return TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=1e9)


async def test_a_record_that_was_fetched_meanwhile_is_written(
    cache: TieredStore, store: Unsteady, clock: Clock
) -> None:
    store.is_away = True
    await cache.put(entry(NAME))
    await cache.write_missed()
    assert await store.get(NAME) is None
    store.is_away = False
    await cache.write_missed()
    assert await store.get(NAME) == entry(NAME)


async def test_a_newer_record_of_another_process_stays(cache: TieredStore, store: Unsteady, clock: Clock) -> None:
    store.is_away = True
    await cache.put(entry(NAME))
    store.is_away = False
    clock.advance(5)
    newer = entry(NAME, fetched_at=clock())
    await store.put(newer)
    await cache.write_missed()
    assert await store.get(NAME) == newer


async def test_a_purge_holds_and_so_does_what_was_fetched_after_it(
    cache: TieredStore, store: Unsteady, clock: Clock
) -> None:
    for name in (NAME, OTHER, THIRD):
        await store.put(entry(name))
    clock.advance(5)
    store.is_away = True
    await cache.delete(THIRD)
    await cache.clear_prefix("10.1000")
    assert await cache.get(NAME) is None
    clock.advance(5)
    fetched = entry(OTHER, fetched_at=clock())
    await cache.put(fetched)
    store.is_away = False
    assert await cache.get(NAME) is None
    await cache.write_missed()
    assert [await store.get(name) for name in (NAME, OTHER, THIRD)] == [None, fetched, None]


async def test_a_purge_holds_against_what_another_instance_writes_back_after_it(
    cache: TieredStore, store: Unsteady, clock: Clock
) -> None:
    other = TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=1e9)
    await other.forget_announced()
    store.is_away = True
    await other.put(entry(NAME))
    clock.advance(5)
    await cache.delete(NAME)
    store.is_away = False
    await cache.write_missed()
    await other._missed.write(store, other.memory, Purges(), clock(), read_nothing)
    assert await store.get(NAME) is None


async def test_a_record_that_was_made_stale_is_stale_in_the_store(
    cache: TieredStore, store: Unsteady, clock: Clock
) -> None:
    await cache.put(entry(NAME))
    store.is_away = True
    await cache.expire(entry(NAME))
    stale = await cache.get(NAME)
    assert stale is not None and not stale.is_fresh(clock())
    store.is_away = False
    await cache.write_missed()
    found = await store.get(NAME)
    assert found is not None and not found.is_fresh(clock())


async def test_a_process_that_ends_writes_what_it_has(cache: TieredStore, store: Unsteady) -> None:
    store.is_away = True
    await cache.put(entry(NAME))
    store.is_away = False
    await cache.close()
    assert await store.get(NAME) == entry(NAME)


async def test_more_keys_than_are_kept_are_all_of_memory(clock: Clock, store: Unsteady) -> None:
    memory, missed = MemoryStore(1_000_000, clock=clock), Missed()
    for number in range(20):
        await memory.put(entry(f"10.1000/{number}"))
    with changed({"doi_proxy.cache.missed.MAX_BYTES": 1_000}):
        for number in range(10):
            missed.add(f"10.1000/{number}", announce=False)
    await missed.write(store, memory, Purges(), clock(), read_nothing)
    assert not missed
    assert store.entries == 20


async def test_a_change_is_announced_also_to_a_store_that_lost_its_data(cache: TieredStore, store: Unsteady) -> None:
    cursor = (await store.changes(None)).cursor
    store.is_away = True
    await cache.put(entry(NAME), announce=True)
    store.is_away = False
    cache._missed.add_everything()
    await cache.write_missed()
    assert (await store.changes(cursor)).keys == (NAME,)


async def test_a_purge_by_another_instance_is_obeyed_while_the_rest_of_memory_is_written(
    cache: TieredStore, store: Unsteady
) -> None:
    for number in range(600):
        await cache.memory.put(entry(f"10.1000/{number}"))
    await cache.forget_announced()
    put, written = store.put, list[str]()

    async def put_and_purge(given: Entry, **more: Any) -> None:
        await put(given, **more)
        written.append(given.key)
        if len(written) == 1:
            await store.delete("10.1000/")

    cache._missed.add_everything()
    with patch.object(store, "put", put_and_purge):
        await cache.write_missed()
    assert len(written) == 250
    assert cache.memory.entries == 0


async def test_a_store_that_loses_its_data_while_it_gets_them_gets_them_again(clock: Clock, store: Unsteady) -> None:
    memory, missed = MemoryStore(1_000_000, clock=clock), Missed()
    for number in range(300):
        await memory.put(entry(f"10.1000/{number}"))

    async def lose_once() -> None:
        if store.entries == 250:
            async for _ in store.drop_scope("10.1000/"):
                pass
            missed.add_everything()

    missed.add_everything()
    await missed.write(store, memory, Purges(), clock(), lose_once)
    assert missed and store.entries == 50
    await missed.write(store, memory, Purges(), clock(), read_nothing)
    assert not missed and store.entries == 300


def test_names_that_were_fetched_while_valkey_was_away_are_answered_by_the_other_machine() -> None:
    with World(store_url="valkey://127.0.0.1", instances=2) as world:
        names = [f"10.5555/{number}" for number in range(20)]
        for name in names:
            world.upstream.put(name, url=f"https://example.org/{name}")
        world.get("/10.5555/0")
        world.valkey.hang()
        world.sleep(2)
        assert [world.get(f"/{name}", world.client(instance=0)).status for name in names] == [302] * 20
        world.valkey.resume()
        world.sleep(25)
        world.upstream.fault(EVERY_NAME, "reset")
        assert [world.get(f"/{name}", world.client(instance=1)).status for name in names] == [302] * 20
        world.restart()
        assert [world.get(f"/{name}", world.client(instance=0)).status for name in names] == [302] * 20


def test_instances_write_their_memory_back_to_a_valkey_that_lost_its_data() -> None:
    with World(store_url="valkey://127.0.0.1", instances=2) as world:
        names = [f"10.5555/{number}" for number in range(20)]
        for name in names:
            world.upstream.put(name, url=f"https://example.org/{name}")
        for number, name in enumerate(names):
            world.get(f"/{name}", world.client(instance=number % 2))
        # The instances find the loss by the last name that was announced: one whose target has changed.
        world.upstream.put(names[0], url="https://example.org/other")
        world.sleep(30)
        world.get(f"/{names[0]}", cache_control="no-cache")
        world.sleep(2)
        world.valkey.stop()
        world.valkey.start()
        world.sleep(25)
        world.upstream.fault(EVERY_NAME, "reset")
        for instance in range(2):
            assert [world.get(f"/{name}", world.client(instance=instance)).status for name in names] == [302] * 20
        world.restart()
        assert [world.get(f"/{name}", world.client(instance=0)).status for name in names] == [302] * 20
