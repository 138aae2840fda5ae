"""What the cache answers from registry records: only what no entry says, and nothing that was purged."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.features import find_records
from doi_proxy.cache.entry import RegistryEntry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import StoreError
from doi_proxy.features.admin.purge import Selection, purge
from doi_proxy.features.sqlite.store import SqliteStore
from tests.cache.entries import NOW, entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import fill
from tests.parts import usual_cache
from tests.registry_records import FILE_DATE, count_registry, write_registry

pytestmark = pytest.mark.anyio

_OPEN_AND_CLOSE: Final = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT 1 FROM entries').fetchone()"

KEY = "10.1000/182"
TARGET = "https://a.example/registry"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.fixture
async def cache(path: Path, clock: Clock) -> AsyncIterator[TieredStore]:
    write_registry(path, clock, {KEY: TARGET, "10.1000/2": TARGET, "10.10001/X": TARGET})
    opened = usual_cache(f"sqlite:///{path}", clock=clock)
    yield opened
    await opened.close()


async def test_without_an_entry_the_registry_record_is_found_and_is_no_entry(cache: TieredStore) -> None:
    found = await cache.find(KEY)
    assert isinstance(found, RegistryEntry)
    assert (found.agency, found.fetched_at, found.is_fresh(NOW)) == ("Crossref", FILE_DATE, False)
    assert TARGET.encode() in found.answer.values
    assert cache.get_now(KEY) == found
    assert (await cache.get(KEY), cache.peek(KEY)) == (None, None)


async def test_the_registry_record_answers_after_the_hard_expiry_of_a_record(cache: TieredStore, clock: Clock) -> None:
    await cache.put(entry(ttl=10, grace=10))
    await cache.flush()
    clock.advance(30)
    assert isinstance(await cache.find(KEY), RegistryEntry)
    assert isinstance(cache.get_now(KEY), RegistryEntry)


async def test_an_older_record_of_the_upstream_is_put_although_the_file_is_newer(cache: TieredStore) -> None:
    older = entry(fetched_at=FILE_DATE - 1_000.0)
    assert await cache.put_newer(older)
    assert await cache.get(KEY) == older


async def test_a_purge_deletes_the_registry_record_of_a_name_and_of_a_prefix(
    cache: TieredStore, path: Path, clock: Clock
) -> None:
    assert await purge(cache, Selection(HandleName(KEY))) == 1
    assert (await cache.find(KEY), count_registry(path, clock)) == (None, 2)
    await cache.put(entry("10.1000/3"))
    assert await purge(cache, Selection(prefix=HandleName("10.1000"))) == 2
    assert (await cache.find("10.1000/2"), count_registry(path, clock)) == (None, 1)
    assert await purge(cache, Selection(everything=True)) == 1
    assert count_registry(path, clock) == 0


async def test_a_soft_purge_leaves_it(cache: TieredStore, path: Path, clock: Clock) -> None:
    assert await purge(cache, Selection(HandleName(KEY)), soft=True) == 1
    assert await purge(cache, Selection(prefix=HandleName("10.1000")), soft=True) == 0
    assert isinstance(await cache.find(KEY), RegistryEntry)


async def test_it_is_counted_apart_from_the_entries(cache: TieredStore) -> None:
    await cache.put(entry("10.1000/3"))
    await cache.flush()
    stats = (await cache.stats()).store
    assert stats is not None
    assert (stats.entries, stats.registry) == (1, 3)


async def test_a_damaged_registry_record_is_a_miss_and_the_store_stays_healthy(cache: TieredStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE registry_blocks SET data = x'00' WHERE first = ?", (KEY,))
    file.close()
    assert await cache.find(KEY) is None
    stats = (await cache.stats()).store
    assert stats is not None and stats.healthy and "damaged" in stats.detail


async def test_commands_that_only_read_find_it(cache: TieredStore, path: Path, clock: Clock) -> None:
    store = SqliteStore(path, clock=clock, records=find_records(), max_bytes=1_000_000, read_only=True)
    assert store.registry is not None
    assert isinstance(store.registry.find(KEY), RegistryEntry)
    with pytest.raises(StoreError):
        await store.registry.forget("")
    await store.close()


async def test_a_file_of_an_earlier_release_has_none_until_it_is_opened_for_writing(path: Path, clock: Clock) -> None:
    await fill(path, clock, 1)
    store = SqliteStore(path, clock=clock, records=find_records(), max_bytes=1_000_000, read_only=True)
    assert store.registry is not None
    found = store.registry.find(KEY), await store.get("10.1000/00000")
    assert (found[0], found[1] is not None, (await store.stats()).registry) == (None, True, 0)
    await store.close()


@pytest.mark.process
async def test_the_log_in_use_stays_when_registry_records_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"
    store = SqliteStore(path, clock=clock, max_bytes=1_000_000, records=find_records())
    assert store.registry is not None
    await store.registry.forget("10.2000/")
    await store.put(entry("10.1000/1"))
    await store.flush()
    log = Path(f"{path}-wal").stat().st_ino
    # A process that finds no other one with the file open deletes the log at its end.
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _OPEN_AND_CLOSE, str(path))
    assert await process.wait() == 0
    assert Path(f"{path}-wal").stat().st_ino == log
    await store.close()
