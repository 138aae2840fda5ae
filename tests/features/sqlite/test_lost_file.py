"""A store whose file is deleted, replaced or damaged while a service runs comes back by itself. The memory is kept."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.assembly.core import open_service_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.tiered import TieredStore
from tests.cache.entries import NOW, entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import keys, opened

pytestmark = pytest.mark.anyio

NAMES = [f"10.1000/{number}" for number in range(300)]
NAME, OTHER, ELSEWHERE = *NAMES[:2], "10.1001/1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "var" / "store.sqlite3"


async def open_filled(path: Path, clock: Clock) -> TieredStore:
    cache = open_service_cache(Settings(store_url=f"sqlite:///{path}"), clock)
    for name in NAMES:
        await cache.put(entry(name))
    await cache.flush()
    await look(cache)
    return cache


async def look(cache: TieredStore) -> None:
    """As `watch` does every second."""
    await cache.open_late()
    await cache.forget_announced()


async def open_backup(path: Path, clock: Clock) -> Path:
    """A store of another process, without a log."""
    backup = path.with_name("backup")
    async with opened(backup, clock) as store:
        await store.put(entry(ELSEWHERE))
        await store.put(entry(NAME, fetched_at=NOW - 1_000))
    return backup


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for found in path.parent.iterdir():
        found.unlink()
    path.parent.rmdir()


def damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)


@pytest.mark.parametrize(
    ("lose", "words", "cause"),
    [
        (delete, "was deleted while it was open", "store-deleted"),
        (delete_all, "was deleted while", "store-deleted"),
        (damage, "is damaged: file is not", "store-damaged"),
    ],
)
async def test_a_lost_file_is_created_again_with_the_records_of_every_process(
    lose: Callable[[Path], None],
    words: str,
    cause: str,
    path: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    caches = [await open_filled(path, clock) for _ in range(2)]
    await caches[1].put(entry(ELSEWHERE))
    await caches[1].flush()
    lose(path)
    for cache in caches:
        await cache.get(OTHER, newest=True)
        await look(cache)
        stats = await cache.stats()
        assert stats.state in ("read-only", "failing") and stats.store is not None
        assert str(path) in stats.store.detail and not stats.healthy
        assert {one.cause.token for incidents in cache.incidents for one in incidents.read()} == {cause}
    assert words in caplog.records[0].message and str(path) in caplog.records[0].message
    assert len(caplog.records) == len(caches)
    for cache in caches:
        assert await cache.get(NAME) == entry(NAME)
    for cache in caches:
        await look(cache)
        assert (await cache.stats()).healthy and cache.memory.entries >= len(NAMES)
        await cache.flush()
    # Each reads and writes what the other wrote since.
    await caches[0].put(entry("10.1000/new"))
    await caches[0].flush()
    assert await caches[1].get("10.1000/new") == entry("10.1000/new")
    for cache in caches:
        await look(cache)
        await cache.close()
    assert len(caplog.records) == len(caches)
    async with opened(path, clock) as store:
        assert await keys(store) == sorted([*NAMES, ELSEWHERE, "10.1000/new"])
    aside = list(path.parent.glob("*.corrupt-*"))
    assert bool(aside) == (lose is damage)


async def test_a_file_that_was_put_there_is_opened_with_what_it_has(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of the lost file is beside it. SQLite would write its pages into the file that was put there."""
    caplog.set_level(logging.ERROR)
    caches = [await open_filled(path, clock) for _ in range(2)]
    (await open_backup(path, clock)).replace(path)
    for cache in caches * 2:
        await look(cache)
    assert ["was replaced while it was open" in record.message for record in caplog.records] == [True, True]
    for cache in caches:
        assert await cache.get(ELSEWHERE) == entry(ELSEWHERE)
        assert await cache.get(NAME, newest=True) == entry(NAME)
        assert cache.memory.entries >= len(NAMES)
        await cache.close()
    async with opened(path, clock) as store:
        assert await keys(store) == sorted([*NAMES, ELSEWHERE])


async def test_a_purge_holds_in_a_file_that_was_put_there_and_its_later_records_stay(path: Path, clock: Clock) -> None:
    caches = [await open_filled(path, clock) for _ in range(2)]
    clock.advance(10)
    await caches[0].begin_purge("")
    await caches[0].delete(NAME)
    await caches[1].forget_announced()
    backup = path.with_name("backup")
    async with opened(backup, clock) as store:
        await store.put(entry(NAME))
        await store.put(entry(OTHER))
        await store.put(entry(ELSEWHERE, fetched_at=clock() + 1))
    clock.advance(10)
    hot = entry("10.1002/hot", fetched_at=clock())
    for cache in caches:
        await cache.put(hot)
    backup.replace(path)
    for cache in caches * 3:
        await look(cache)
    assert [await caches[1].get(name) is not None for name in (NAME, OTHER, ELSEWHERE)] == [False, False, True]
    assert [cache.peek(hot.key) for cache in caches] == [hot, hot]
    for cache in caches:
        await cache.close()


async def test_a_file_whose_folder_cannot_be_read_for_a_time_is_not_lost(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = await open_filled(path, clock)
    aside = path.parent.rename(path.parent.with_name("aside"))
    path.parent.symlink_to(path.parent)  # as for a folder without permission, but also for root
    for _ in range(3):
        await look(cache)
    assert await cache.get(NAME, newest=True) == entry(NAME)
    path.parent.unlink()
    aside.rename(path.parent)
    await look(cache)
    assert (await cache.stats()).healthy
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    await cache.close()


async def test_a_store_that_cannot_be_created_again_is_read_on_and_tried_again(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = await open_filled(path, clock)
    await cache.memory.close()
    delete_all(path)
    path.parent.touch()
    for _ in range(5):
        await look(cache)
    assert await cache.get(NAME) == entry(NAME)
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2
    path.parent.unlink()
    await look(cache)
    assert (await cache.stats()).healthy
    await cache.close()
    async with opened(path, clock) as store:
        assert await keys(store) == [NAME]


async def test_a_file_of_another_program_is_not_changed_and_the_store_is_beside_it(path: Path, clock: Clock) -> None:
    cache = await open_filled(path, clock)
    foreign = path.with_name("foreign")
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    content = foreign.read_bytes()
    foreign.replace(path)
    for _ in range(3):
        await look(cache)
    stats = (await cache.stats()).store
    assert stats is not None and stats.healthy and f"SQLite file {path}.1" in stats.detail
    assert await cache.get(NAME, newest=True) == entry(NAME)
    await cache.close()
    assert path.read_bytes() == content


def count_open(path: Path) -> int:
    """How many files of the store's folder this process has open, deleted ones included."""
    return sum(str(path.parent) in str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


async def test_losses_leave_no_open_file(path: Path, clock: Clock) -> None:
    cache = await open_filled(path, clock)
    before = count_open(path)
    for _ in range(8):
        path.unlink()
        await look(cache)
        await look(cache)
    assert 0 < count_open(path) <= before
    assert (await cache.stats()).healthy and cache.memory.entries == len(NAMES)
    await cache.close()
