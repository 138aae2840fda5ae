"""Purges while the store cannot be opened: each worker of the machine repeats those of the others, once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.settings import Settings
from doi_proxy.assembly.stores import open_cache, open_service_cache
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.admin.purge import Selection, purge
from doi_proxy.features.admin.shared_purges import MAX_SHARED, SharedPurges
from doi_proxy.sharing.memory import SharedMemory
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import forbid_writing, opened

pytestmark = pytest.mark.anyio

NAME = "10.1000/182"


class Worker:
    """A worker whose store cannot be opened, unless `cache` is another one."""

    def __init__(self, folder: Path, clock: Clock, memory: SharedMemory, cache: TieredStore | None = None) -> None:
        (folder / "var").touch()
        settings = Settings(store_url=f"sqlite:///{folder}/var/store.sqlite3")
        self.cache = cache or open_service_cache(settings, clock)
        self.repeated: list[str] = []
        self.purges = SharedPurges(memory, self.cache, clock, self.repeat)

    async def repeat(self, body: dict[str, Any], name: str) -> None:
        self.repeated.append(name)
        await purge(self.cache, Selection(names=[HandleName(name)]), soft=body.get("soft", False))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(tmp_path: Path) -> SharedMemory:
    return SharedMemory(tmp_path / "memory.lock")


@pytest.fixture
async def workers(tmp_path: Path, clock: Clock, memory: SharedMemory) -> AsyncIterator[tuple[Worker, Worker]]:
    both = Worker(tmp_path, clock, memory), Worker(tmp_path, clock, memory)
    yield both
    for worker in both:
        await worker.cache.close()


async def test_a_purge_is_repeated_once_by_the_other_worker_alone(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    await two.cache.put(entry(NAME))
    await two.purges.follow()
    one.purges.announce({"doi": NAME}, NAME)
    two.purges.announce({"doi": "10.1000/1"}, "10.1000/1")
    for _ in range(2):
        for worker in workers:
            await worker.purges.follow()
    assert (one.repeated, two.repeated) == (["10.1000/1"], [NAME])
    assert await two.cache.get(NAME) is None


async def test_a_worker_whose_store_is_open_repeats_a_recent_purge_and_announces_none(
    workers: tuple[Worker, Worker], tmp_path: Path, clock: Clock, memory: SharedMemory
) -> None:
    one, _ = workers
    cache = open_cache(Settings(store_url="memory:"), clock)
    recent, late = Worker(tmp_path, clock, memory, cache), Worker(tmp_path, clock, memory, cache)
    recent.purges.announce({"doi": NAME}, NAME)
    assert memory.read() == b""
    one.purges.announce({"doi": NAME}, NAME)
    await recent.purges.follow()
    clock.advance(60)
    await late.purges.follow()
    assert (recent.repeated, late.repeated) == ([NAME], [])
    await cache.close()


async def test_of_a_flood_of_purges_the_newest_are_shared(workers: tuple[Worker, Worker], memory: SharedMemory) -> None:
    one, two = workers
    earlier = json.dumps([[number, 0.0, {}, "x"] for number in range(1, MAX_SHARED + 1)]).encode()
    memory.change(lambda _: earlier)
    one.purges.announce({"doi": NAME}, NAME)
    await two.purges.follow()
    assert len(two.repeated) == MAX_SHARED and two.repeated[-1] == NAME


async def test_of_purges_without_room_the_newest_are_shared(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    for number in range(20):
        one.purges.announce({"doi": NAME, "reason": "x" * 60_000}, f"10.1000/{number}")
    await two.purges.follow()
    assert 1 <= len(two.repeated) < 20 and two.repeated[-1] == "10.1000/19"


@pytest.mark.parametrize("soft", [False, True])
async def test_a_purge_holds_while_the_store_can_only_be_read(tmp_path: Path, clock: Clock, soft: bool) -> None:
    path = tmp_path / "store.sqlite3"
    async with opened(path, clock) as store:
        await store.put(entry(NAME))
    forbid_writing(path)
    cache = open_service_cache(Settings(store_url=f"sqlite:///{path}"), clock)
    assert await cache.get(NAME) == entry(NAME)
    clock.advance(1)
    await purge(cache, Selection(names=[HandleName(NAME)]), soft=soft)
    found = await cache.get(NAME)
    assert (found is not None and not found.is_fresh(clock())) if soft else found is None
    await cache.close()
