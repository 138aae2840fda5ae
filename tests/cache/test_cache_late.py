"""A store that cannot be opened at the start of a service, or written for a time, is used once it can be."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from doi_proxy.assembly import core
from doi_proxy.assembly.core import fitting_bytes, open_cache, open_service_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import RegistryEntry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.missed import Missed
from doi_proxy.cache.store import MAX_LATE_PURGES, MAX_PURGES, Purges, StoreUnavailable
from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.features.sqlite.store import SqliteStore
from tests.cache.entries import entry
from tests.cache.test_missed import read_nothing
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import forbid_writing, opened

pytestmark = pytest.mark.anyio

#: Another user than root, which has no account here.
USER = 64_321
NAME, OTHER, GONE = "10.1000/182", "10.1000/1", "10.1001/2"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A store in a folder that is a file, until the disk is repaired."""
    (tmp_path / "var").touch()
    return Settings(store_url=f"sqlite:///{tmp_path}/var/store.sqlite3")


def repair(folder: Path) -> None:
    (folder / "var").unlink()
    (folder / "var").mkdir()


async def test_a_service_starts_in_memory_and_its_store_gets_the_records_since(
    settings: Settings, tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cache = open_service_cache(settings, clock)
    await cache.put(entry(NAME))
    for _ in range(3):
        await cache.open_late()
    stats = (await cache.stats()).store
    assert stats is not None and not stats.healthy and "cannot be opened" in stats.detail
    assert await cache.get(NAME) == entry(NAME)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "New records are kept in memory alone; the store is tried again every second." in caplog.text

    repair(tmp_path)
    await cache.open_late()
    assert (await cache.stats()).healthy
    assert cache.get_now(OTHER) is None
    await cache.close()
    assert caplog.records[-1].message.startswith("The store is open after ")
    async with opened(tmp_path / "var" / "store.sqlite3", clock) as store:
        assert await store.get(NAME) == entry(NAME)


async def test_a_store_that_opens_at_the_second_attempt_is_not_worth_a_line(
    settings: Settings, tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = open_service_cache(settings, clock)
    repair(tmp_path)
    await cache.open_late()
    assert (await cache.stats()).healthy
    assert not [message for message in caplog.messages if "The store" in message]
    await cache.close()


async def test_a_purge_before_the_store_was_open_holds_in_it(settings: Settings, tmp_path: Path, clock: Clock) -> None:
    cache = open_service_cache(settings, clock)
    repair(tmp_path)
    async with opened(tmp_path / "var" / "store.sqlite3", clock) as store:
        for name in (NAME, OTHER, GONE):
            await store.put(entry(name))
    await cache.delete(NAME)
    await cache.clear_prefix("10.1001")
    await cache.open_late()
    assert [name for name in (NAME, OTHER, GONE) if await cache.get(name) is not None] == [OTHER]
    await cache.close()


@pytest.mark.parametrize(("purges", "left"), [(MAX_PURGES + 1, [OTHER]), (MAX_LATE_PURGES + 1, [])])
async def test_many_purges_before_the_store_was_open_empty_it_only_if_their_names_are_not_remembered(
    purges: int,
    left: list[str],
    settings: Settings,
    tmp_path: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = open_service_cache(settings, clock)
    repair(tmp_path)
    async with opened(tmp_path / "var" / "store.sqlite3", clock) as store:
        for name in (NAME, OTHER):
            await store.put(entry(name))
    await cache.delete(NAME)
    for number in range(purges):
        await cache.delete(f"10.1001/{number}")
    await cache.open_late()
    assert [name for name in (NAME, OTHER) if await cache.get(name) is not None] == left
    assert ("The store is purged completely" in caplog.text) == (not left)
    await cache.close()


async def test_a_record_since_a_purge_by_this_process_is_stored_and_one_before_another_purge_is_not(
    settings: Settings, tmp_path: Path, clock: Clock
) -> None:
    cache = open_service_cache(settings, clock)
    await cache.put(entry(NAME))
    await cache.put(entry(OTHER))
    await cache.delete(OTHER)
    clock.advance(10)
    await cache.put(entry(OTHER, fetched_at=clock()))
    clock.advance(10)
    repair(tmp_path)
    async with opened(tmp_path / "var" / "store.sqlite3", clock) as store:
        await store.delete(NAME)
        await cache.open_late()
        await cache.flush()
        assert [name for name in (NAME, OTHER) if await store.get(name) is not None] == [OTHER]
    await cache.close()


async def test_a_late_store_gets_what_an_upstream_said_alone(clock: Clock) -> None:
    memory, store = MemoryStore(1_000_000, clock=clock), MemoryStore(1_000_000, clock=clock)
    said = entry(OTHER)
    fields = {name: getattr(said, name) for name in said.__struct_fields__}
    for found in (entry(NAME), RegistryEntry(**fields, agency="Crossref")):
        await memory.put(found)
    missed = Missed()
    missed.add_everything()
    await missed.write(store, memory, Purges(), clock(), read_nothing)
    assert not missed
    assert [(await store.get(name)) is not None for name in (NAME, OTHER)] == [True, False]


async def test_a_store_that_can_only_be_read_is_read(tmp_path: Path, clock: Clock) -> None:
    """A full disk at the start: the records are there, and only the files beside the store cannot be created."""
    path = tmp_path / "store.sqlite3"
    async with opened(path, clock) as store:
        await store.put(entry(NAME))
    forbid_writing(path)
    cache = open_service_cache(Settings(store_url=f"sqlite:///{path}"), clock)
    await cache.open_late()
    assert await cache.get(NAME) == entry(NAME)
    assert (await cache.stats()).state == "read-only"
    await cache.put(entry(OTHER))
    await cache.delete(NAME)
    Path(f"{path}.lock").unlink()
    await cache.open_late()
    assert (await cache.stats()).healthy
    await cache.flush()
    assert (await cache.get(OTHER, newest=True), await cache.get(NAME, newest=True)) == (entry(OTHER), None)
    await cache.close()


async def test_a_command_does_not_start_without_its_store(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        open_cache(settings)


async def test_a_file_that_can_never_be_a_store_ends_the_start(tmp_path: Path, clock: Clock) -> None:
    settings = Settings(store_url=f"sqlite:///{tmp_path}/store.sqlite3")
    for name in ("store.sqlite3", "store.sqlite3.1"):
        async with opened(tmp_path / name, clock) as store:
            store._writing.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigurationError) as error:
        open_service_cache(settings)
    assert not isinstance(error.value.__cause__, StoreUnavailable)


async def test_records_of_a_full_disk_are_written_when_there_is_room(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path / "store.sqlite3", clock) as store:
        (pages,) = store._writing.execute("PRAGMA page_count").fetchone()
        # SQLite answers as on a full disk: SQLITE_FULL.
        store._writing.execute(f"PRAGMA max_page_count = {pages}")
        names = [f"10.1000/{number}" for number in range(400)]
        for name in names:
            await store.put(entry(name))
        with pytest.raises(StoreError, match="full") as failure:
            await store.flush()
        assert failure.value.cause == "store-full"
        assert not (await store.stats()).healthy
        store._writing.execute(f"PRAGMA max_page_count = {2**31 - 2}")
        await store.flush()
        assert ((await store.stats()).entries, (await store.stats()).healthy) == (len(names), True)
        assert "lost" not in (await store.stats()).detail


def set_writable(store: SqliteStore, *, writable: bool) -> None:
    """Let SQLite answer as on a disk that is read-only: SQLITE_READONLY."""
    store._writing.execute(f"PRAGMA query_only = {int(not writable)}")


async def test_a_store_that_is_written_again_is_up_without_a_request(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = open_service_cache(Settings(store_url=f"sqlite:///{tmp_path}/store.sqlite3"), clock)
    store = cache.store
    assert isinstance(store, SqliteStore)
    set_writable(store, writable=False)
    began = clock()
    await cache.put(entry(NAME))
    await cache.flush()
    assert (await cache.stats()).state == "read-only"
    clock.advance(60)
    await asyncio.sleep(60)
    await cache.end_outage()
    (outage,) = [known.under_way for known in cache.incidents if known.under_way is not None]
    assert outage.began == began

    set_writable(store, writable=True)
    await cache.flush()
    await cache.forget_announced()
    await cache.end_outage()
    assert (await cache.stats()).healthy and not any(known.under_way for known in cache.incidents)
    assert caplog.records[-1].message == "The store is up again after 60 seconds."
    await cache.close()


def copy_of_a_killed_process(path: Path) -> None:
    """A store with the log that a killed process leaves, all of which can only be read."""

    async def fill() -> None:
        async with opened(path.with_suffix(".open"), Clock()) as store:
            await store.put(entry(NAME))
            await store.flush()
            for tail in ("", "-wal", "-shm"):
                shutil.copyfile(f"{path.with_suffix('.open')}{tail}", f"{path}{tail}")
                Path(f"{path}{tail}").chmod(0o400)

    asyncio.run(fill())


def read_then_write(path: Path) -> None:
    """As a user without the rights of root: open the store of a disk that is read-only, then of one that is not."""
    if os.geteuid() == 0:
        os.chown(path.parent, USER, USER)
        os.setgid(USER)
        os.setuid(USER)
    copy_of_a_killed_process(path)

    async def check() -> None:
        cache = open_service_cache(Settings(store_url=f"sqlite:///{path}"), Clock())
        assert (await cache.stats()).state == "read-only"
        assert await cache.get(NAME) == entry(NAME)
        for tail in ("", "-wal", "-shm"):
            Path(f"{path}{tail}").chmod(0o600)
        # As `watch` does every second.
        for _ in range(2):
            await cache.open_late()
            await cache.forget_announced()
        assert (await cache.stats()).state == "ok"
        await cache.close()

    asyncio.run(check())


@pytest.mark.process
def test_a_store_with_a_log_that_could_only_be_read_is_opened_for_writing() -> None:
    """SQLite does not let a process write a file while it reads it by an index that it could not write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        user = multiprocessing.get_context("fork").Process(target=read_then_write, args=(Path(folder) / "store.db",))
        user.start()
        user.join()
        assert user.exitcode == 0


async def test_a_store_leaves_half_of_the_free_disk(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    path = tmp_path / "var" / "store.sqlite3"
    assert fitting_bytes(Settings(store_max_bytes=10**14), path) == pytest.approx(free / 2, rel=0.2)
    assert fitting_bytes(Settings(store_max_bytes=2**20), path) == 2**20
    assert fitting_bytes(Settings(store_max_bytes=10**14), None) == 10**14


async def test_a_store_that_was_opened_on_a_full_disk_grows_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, number, least = Clock(), 1_500, 131_072
    disk = {"free": 0}
    monkeypatch.setattr(core, "MIN_STORE_BYTES", least)
    monkeypatch.setattr(core, "disk_usage", lambda _: SimpleNamespace(free=disk["free"]))
    cache = open_service_cache(Settings(store_url=f"sqlite:///{tmp_path}/store.sqlite3"), clock)
    disk["free"] = 100 * 2**20
    for n in range(number):
        await cache.put(entry(f"10.1000/{n:05}", fetched_at=clock()))
        if n % 500 == 499:
            await cache.flush()
    found = (await cache.stats()).store
    await cache.close()
    assert found is not None
    assert found.entries == number
    assert found.bytes > least


def test_the_growth_of_a_store_does_not_raise_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.sqlite3"
    settings = Settings(store_url=f"sqlite:///{path}", store_max_bytes=10**9)
    before, free = 10 * 2**20, 100 * 2**20
    for grown, others in ((0, 0), (20 * 2**20, 0), (50 * 2**20, 0), (50 * 2**20, 40 * 2**20)):
        with path.open("wb") as file:
            file.truncate(before + grown)
        left = free - grown + others
        monkeypatch.setattr(core, "disk_usage", lambda _, left=left: SimpleNamespace(free=left))
        assert fitting_bytes(settings, path, before) == before + (free + others) // 2
