"""The contract of every store: memory, SQLite, Valkey and its model, Valkey behind Sentinels, and a Valkey cluster.

A fact takes a row, which opens the stores of several processes. `advance` lets time pass for all of them. The clock of
a server goes on during a test, so a fact has a margin of TEST_TIME wherever a server counts the seconds."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from msgspec.structs import replace

from doi_proxy.assembly import core
from doi_proxy.assembly.core import fitting_bytes, open_cache, open_service_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import MAX_SKEW, Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import MAX_LATE_PURGES, MAX_PURGES, PURGE_MEMORY, CountingStore, Store, StoreUnavailable
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, DamagedEntry, StoreError
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.store.stored_entry import pack
from tests.cache.entries import NOW, entry, known, missing, verified
from tests.cache.store_rows import Row
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import forbid_writing, opened
from tests.table import table

pytestmark = pytest.mark.anyio


KEY: Final = "10.1000/182"
#: The longest that a test may take, in seconds of a server's clock.
TEST_TIME: Final = 20.0
CEILING: Final = 86_400.0
TWO_DAYS: Final = 172_800.0

SERVERS: Final = [
    pytest.param("valkey", marks=pytest.mark.valkey),
    *(pytest.param(name, marks=[pytest.mark.valkey, pytest.mark.nightly]) for name in ("sentinel", "cluster")),
]
#: Stores that keep entries as bytes, where a disk, a person or another program can damage them.
OF_BYTES: Final = ["sqlite", "model", *SERVERS]
every_store = pytest.mark.parametrize("row", ["memory", *OF_BYTES], indirect=True)
every_store_of_bytes = pytest.mark.parametrize("row", OF_BYTES, indirect=True)


async def keys(store: Store, prefix: str = "") -> list[str]:
    return sorted([found.key async for found in store.scan(prefix)])


# --- Entries ---------------------------------------------------------------------------------------------------------

NAMES_OF_KINDS: Final = "10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03%:*?[]\\ 💡"
KINDS: Final = [
    entry("10.1000/A"),
    entry("10.1000/STALE", ttl=-10),
    entry(NAMES_OF_KINDS),
    entry("10.1000/LONG" + "X" * 8_000),
    entry("10.1000/LARGE", url="http://example.org/" + "x" * 300_000),
    missing("10.1000/MISSING"),
    verified(entry("10.1000/VERIFIED")),
    verified(missing("10.1000/VERIFIED.MISSING")),
]


@every_store
async def test_an_entry_of_any_kind_is_here_at_once_and_for_every_process_after_a_flush(row: Row) -> None:
    here, there = await row.open(), await row.open()
    for one in KINDS:
        assert await here.get(one.key) is None
        await here.put(one)
        assert await here.get(one.key) == one
    await here.flush()
    for one in KINDS:
        assert await here.get(one.key) == await there.get(one.key) == one
    assert {found.key: found async for found in there.scan()} == {one.key: one for one in KINDS}
    stats = await there.stats()
    assert (stats.entries, stats.healthy, stats.bytes > 0, stats.detail != "") == (len(KINDS), True, True, True)


@every_store
async def test_the_later_of_two_puts_counts(row: Row) -> None:
    store, new = await row.open(), entry(url="http://example.org/new")
    await store.put(entry(url="http://example.org/old"))
    await store.flush()
    await store.put(new)
    assert await store.get(KEY) == new
    await store.flush()
    assert await store.get(KEY) == new
    assert await keys(store) == [KEY]


@every_store
async def test_an_entry_is_not_returned_after_its_hard_expiry(row: Row) -> None:
    store = await row.open()
    await store.put(entry(ttl=100, grace=200))
    await store.put(entry("10.1000/OVER", ttl=-200, grace=100))
    assert await keys(store) == [KEY]
    # The clocks of the processes alone: that of a server can be behind.
    row.clock.advance(299)
    assert await store.get(KEY) is not None
    row.clock.advance(1)
    assert [await store.get(key) for key in (KEY, "10.1000/OVER")] == [None, None]
    assert await keys(store) == []


@every_store
async def test_a_deleted_entry_is_gone_here_at_once_and_for_every_process_after_a_flush(row: Row) -> None:
    here, there = await row.open(), await row.open()
    await here.put(entry())
    await here.flush()
    assert await there.delete(KEY) is True
    assert await there.get(KEY) is None
    await there.flush()
    assert await here.get(KEY) is await there.get(KEY) is None
    assert await here.delete(KEY) is False
    await here.put(entry())
    await here.flush()
    assert await there.get(KEY) == entry()


@every_store
async def test_a_scan_returns_only_the_entries_with_the_prefix(row: Row) -> None:
    store = await row.open()
    for key in ("10.1000/2", "10.1000/1", "10.10001/1", "10.1000.10/1", NAMES_OF_KINDS):
        await store.put(entry(key))
    assert await keys(store) == ["10.1000.10/1", "10.1000/1", "10.1000/2", "10.10001/1", NAMES_OF_KINDS]
    assert await keys(store, "10.1000/") == ["10.1000/1", "10.1000/2"]
    assert await keys(store, NAMES_OF_KINDS[:-3]) == [NAMES_OF_KINDS]


@every_store
async def test_a_scan_returns_every_entry_of_many_pages(row: Row) -> None:
    store, wanted = await row.open(), {f"10.1000/{n:04}" for n in range(1_234)}
    for key in sorted(wanted):
        await store.put(entry(key))
    assert set(await keys(store)) == wanted


IMPORTED: Final = entry(url="http://example.org/imported")


@every_store
@pytest.mark.parametrize("written", [True, False], ids=["written", "waiting"])
async def test_an_import_replaces_no_usable_record_that_was_fetched_later(row: Row, written: bool) -> None:
    here, there = await row.open(), await row.open()
    known = {"later": (entry(fetched_at=NOW + MAX_SKEW), False), "at the same time": (entry(), True)}
    if written:
        known["expired"] = (entry(fetched_at=NOW + 1, ttl=-2, grace=0), True)
    for reason, (stored, is_replaced) in known.items():
        writer = there if written else here
        await writer.put(stored)
        if written:
            await writer.flush()
        await here.put(IMPORTED, unless_newer=True)
        await here.flush()
        assert await there.get(KEY) == (IMPORTED if is_replaced else stored), reason
        await here.delete(KEY)
        await here.put(IMPORTED, unless_newer=True)
        await here.flush()
        assert await there.get(KEY) == IMPORTED, "after a purge"


@every_store
async def test_an_import_that_waits_does_not_replace_a_record_that_another_process_wrote(row: Row) -> None:
    here, there = await row.open(), await row.open()
    new = entry(fetched_at=NOW + 1)
    await here.put(IMPORTED, unless_newer=True)
    await there.put(new)
    await there.flush()
    await here.flush()
    assert await there.get(KEY) == new


@every_store_of_bytes
async def test_an_import_replaces_a_record_from_the_future_and_a_damaged_one(row: Row) -> None:
    store = await row.open()
    for damage in (False, True):
        await store.put(entry(fetched_at=NOW + MAX_SKEW + (0 if damage else 1)))
        await store.flush()
        if damage:
            row.overwrite({KEY: b"\0"})
        await store.put(IMPORTED, unless_newer=True)
        await store.flush()
        assert await store.get(KEY) == IMPORTED


@every_store
async def test_a_note_is_kept_for_all_processes(row: Row) -> None:
    here, there = await row.open(), await row.open()
    assert await here.read_note("note") is None
    for data in (b"first", b"\x00\xff"):
        await here.write_note("note", data)
    assert await there.read_note("note") == b"\x00\xff"
    assert await there.read_note("other") is None


@every_store_of_bytes
async def test_what_was_put_survives_a_close(row: Row) -> None:
    store = await row.open()
    await store.put(entry())
    await store.write_note("note", b"note")
    await row.close()
    store = await row.open()
    assert (await store.get(KEY), await store.read_note("note")) == (entry(), b"note")


# --- Purges and announcements ----------------------------------------------------------------------------------------


@every_store
@pytest.mark.parametrize("scope", [KEY, "10.1000/", ""])
async def test_the_answer_to_a_question_sent_before_a_purge_is_not_stored(row: Row, scope: str) -> None:
    here, there = await row.open(), await row.open()
    sent_at = row.clock()
    row.advance(100)
    await here.delete(scope)
    await here.flush()
    row.advance(100)
    await there.put(entry(), sent_at=sent_at)
    await there.put(entry("10.10000/OTHER"), sent_at=sent_at)
    await there.flush()
    assert await here.get(KEY) is None
    assert (await here.get("10.10000/OTHER") is None) == (scope == "")
    await there.put(entry(), sent_at=row.clock())
    await there.flush()
    assert await here.get(KEY) == entry()


@every_store_of_bytes
async def test_a_purge_is_forgotten_after_an_hour(row: Row) -> None:
    store, sent_at = await row.open(), row.clock() - 100
    await store.delete(KEY)
    await store.flush()
    row.advance(PURGE_MEMORY)
    await store.put(entry(), sent_at=sent_at)
    await store.flush()
    assert await store.get(KEY) == entry()


@every_store
async def test_a_purge_from_before_the_clock_was_set_back_refuses_nothing(row: Row) -> None:
    store = await row.open()
    await store.delete(KEY)
    await store.flush()
    row.advance(-TWO_DAYS)
    await store.put(entry(), sent_at=row.clock() - 1)
    await store.flush()
    assert await store.get(KEY) == entry()


@every_store
async def test_an_entry_that_waits_to_be_written_does_not_survive_a_purge_by_another_process(row: Row) -> None:
    here, there = await row.open(), await row.open()
    await there.put(entry(), sent_at=row.clock())
    row.advance(0.1)
    await here.delete(KEY)
    await here.flush()
    await there.flush()
    assert await here.get(KEY) is None


@every_store
async def test_announced_puts_and_all_deletes_reach_other_processes(row: Row) -> None:
    here, there = await row.open(), await row.open()
    first = (await there.changes(None)).cursor
    await here.delete("10.1000/GONE")
    await here.flush()
    heard = await there.changes(first)
    assert (heard.keys, heard.overrun) == (("10.1000/GONE",), False)
    heard = await there.changes(None)
    assert (heard.keys, heard.overrun) == ((), False)
    await here.put(entry("10.1000/QUIET"))
    await here.put(entry("10.1000/LOUD"), announce=True)
    # A later quiet put of the same name does not take the announcement back.
    await here.put(entry("10.1000/LOUD"))
    assert await here.delete("10.1000/QUIET", announce=False) is True
    assert await here.delete("10.1000/QUIET", announce=False) is False
    await here.delete("10.1000/GONE")
    await here.announce("10.1000/")
    await here.flush()
    heard = await there.changes(heard.cursor)
    assert set(heard.keys) == {"10.1000/LOUD", "10.1000/GONE", "10.1000/"}
    assert not heard.overrun
    assert (await there.changes(heard.cursor)).keys == ()


@every_store
async def test_every_kept_announcement_is_heard_and_who_missed_more_hears_of_an_overrun(row: Row) -> None:
    here, there = await row.open(), await row.open()
    await here.delete("10.1000/FIRST")
    await here.flush()
    cursor = (await there.changes(None)).cursor
    for n in range(row.kept):
        await here.delete(f"10.1000/{n}")
    await here.flush()
    heard = await there.changes(cursor)
    assert (len(heard.keys), heard.overrun) == (row.kept, False)
    for n in range(row.more):
        await here.delete(f"10.1000/LATER{n}")
    await here.flush()
    assert (await there.changes(cursor)).overrun
    later = await there.changes(heard.cursor)
    assert (len(later.keys), later.overrun) == (row.more, False)


# --- Queries that are counted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["model", *SERVERS], indirect=True)
async def test_the_queries_of_all_instances_are_counted_by_name(row: Row) -> None:
    here, there = await row.open(), await row.open()
    assert isinstance(here, CountingStore) and isinstance(there, CountingStore)
    assert [await store.spend("queries") for store in (here, there, there, here)] == [1, 2, 3, 4]
    assert await there.spend("other") == 1


# --- Damage, and keys of other kinds ---------------------------------------------------------------------------------


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


async def read(store: Store, key: str) -> Entry | None:
    try:
        return await store.get(key)
    except StoreError:
        return None


@every_store_of_bytes
async def test_no_damaged_entry_is_served(row: Row) -> None:
    dice, right = random.Random(1), {known(n).key: known(n) for n in range(300)}
    store, served = await row.open(), 0
    for one in right.values():
        await store.put(one)
    await store.flush()
    for _ in range(10):
        others = [pack(right[key]) for key in dice.choices(list(right), k=len(right))]
        row.overwrite(
            {key: mutate(dice, pack(wanted), other) for (key, wanted), other in zip(right.items(), others, strict=True)}
        )
        for key, wanted in right.items():
            answer = await read(store, key)
            assert answer in (None, wanted)
            served += answer is not None
        assert {found.key: found async for found in store.scan()}.items() <= right.items()
    assert served < 300
    assert (await store.stats()).healthy


@every_store_of_bytes
@table("damaged", [pack(known(2)), pack(known(1))[:-1], b"pickled"], ids=["of another name", "cut", "foreign"])
async def test_a_damaged_entry_is_one_missing_entry_until_it_is_put_again(row: Row, damaged: bytes) -> None:
    store = await row.open()
    for number in (1, 2):
        await store.put(known(number))
    await store.flush()
    for heal in (False, True):
        row.overwrite({known(1).key: damaged})
        with pytest.raises(DamagedEntry):
            await store.get(known(1).key)
        assert await keys(store) == [known(2).key]
        assert await store.get(known(2).key) == known(2)
        assert (await store.stats()).healthy
        if not heal:
            assert await store.delete(known(1).key) is True
            await store.flush()
        await store.put(known(1))
        await store.flush()
        assert await store.get(known(1).key) == known(1)


@every_store_of_bytes
async def test_a_key_that_is_not_unicode_is_an_error_and_not_an_outage(row: Row) -> None:
    store = await row.open()
    await store.put(entry())
    for call in (store.put(entry("10.1000/\ud800")), store.get("10.1000/\ud800"), store.delete("10.1000/\ud800")):
        with pytest.raises(StoreError):
            await call
    await store.flush()
    assert await store.get(KEY) == entry()
    assert (await store.stats()).healthy


@every_store_of_bytes
async def test_after_a_clock_two_days_ahead_no_record_is_fresh_for_longer_than_the_ceiling(row: Row) -> None:
    def tier(store: Store) -> TieredStore:
        return TieredStore(MemoryStore(1_000_000, clock=row.clock), store, clock=row.clock, ceiling=CEILING)

    store = await row.open()
    row.advance(TWO_DAYS)
    written = tier(store)
    await written.put(entry(fetched_at=row.clock()))
    await written.put(missing(fetched_at=row.clock()))
    await written.flush()
    row.advance(-TWO_DAYS)
    cache = tier(store)
    found = await cache.get(KEY)
    assert found is not None
    assert (found.is_fresh(row.clock()), found.is_usable(row.clock())) == (False, True)
    absent = await cache.get("10.1000/MISSING")
    assert absent is not None and not absent.is_usable(row.clock())
    renewed = entry(fetched_at=row.clock())
    assert await cache.put_newer(renewed) is True
    assert await tier(store).get(KEY) == renewed


# --- A store that cannot be opened at the start of a service, or written for a time, is used once it can be ----------


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
