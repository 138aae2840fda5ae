"""The SQLite store: durability, eviction, batches of writes, and sharing between processes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event

import pytest

from doi_proxy.errors import StoreError
from doi_proxy.features.sqlite import writer
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.features.sqlite.writer import GATHER, MAX_PENDING, BatchWriter, Change
from tests.cache.entries import entry, missing
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import NEVER, keys, opened

pytestmark = pytest.mark.anyio

#: How long a child process may take before a test gives up, in seconds.
PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


# --- What survives -----------------------------------------------------------------------------------------------


def write_until_killed(path: Path, pipe: Connection) -> None:
    async def write() -> None:
        store = SqliteStore(path, clock=Clock(), max_bytes=100_000_000, gather=NEVER)
        for n in range(1_000):
            await store.put(entry(f"10.1000/{n:04}"))
        await store.flush()
        await store.put(entry("10.1000/LATE"))
        pipe.send("flushed")
        pipe.recv()

    asyncio.run(write())


@pytest.mark.process
async def test_a_killed_process_loses_nothing_that_was_flushed(path: Path, clock: Clock) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=write_until_killed, args=(path, theirs))
    child.start()
    assert ours.poll(PATIENCE), "the child process did not write its entries"
    assert ours.recv() == "flushed"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(PATIENCE)
    async with opened(path, clock) as store:
        assert len(await keys(store)) == 1_000
        assert (await store.stats()).entries == 1_000


def test_a_write_without_a_flush_is_written_too() -> None:
    written = Event()
    writer = BatchWriter(lambda changes, used: written.set(), gather=0.01)
    writer.submit(Change("10.1000/182", entry(), False))
    assert written.wait(PATIENCE)
    writer.close()
    assert GATHER < 1.0  # what a killed process may lose, in seconds


# --- Room --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "names"), [(20, 1_000), (600, 2_400), (2_000, 1_200)])
async def test_the_file_and_its_log_stay_within_the_limit(path: Path, clock: Clock, length: int, names: int) -> None:
    most, limit = 0, 1_048_576
    async with opened(path, clock, limit) as store:
        for start in range(0, names, 100):
            for number in range(start, start + 100):
                # In an order that is not that of the keys. The names do not exist.
                key = f"10.1000/{number * 7 % names:04}".ljust(length, "X")
                await store.put(missing(key))
            await store.flush()
            most = max(most, sum(Path(f"{path}{tail}").stat().st_size for tail in ("", "-wal")))
        assert (await store.stats()).entries > 100
    assert most <= limit


async def test_the_totals_follow_every_put_replacement_and_deletion(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        await store.put(entry("10.1000/1"))
        await store.flush()
        one = (await store.stats()).bytes
        longer = entry("10.1000/1", url="http://www.doi.org/of-the-handle-system")
        await store.put(longer)
        await store.flush()
        assert (await store.stats()).bytes > one
        await store.put(entry("10.1000/2"))
        await store.delete("10.1000/1")
        await store.flush()
        stats = await store.stats()
        assert (stats.entries, stats.bytes) == (1, one)


# --- The writer --------------------------------------------------------------------------------------------------


async def test_a_full_queue_drops_the_newest_write_and_counts_it(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 200
    monkeypatch.setattr(writer, "MAX_PENDING", most)
    async with opened(path, clock) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other, other:
            other.execute("BEGIN IMMEDIATE")  # the writer cannot write
            dropped = 0
            for n in range(3 * most):
                try:
                    await store.put(entry(f"10.1000/{n}"))
                except StoreError:
                    dropped += 1
            other.execute("COMMIT")
        other.close()
        await store.flush()
        stats = await store.stats()
        assert dropped >= most
        assert stats.entries == 3 * most - dropped
        assert f"{dropped} writes dropped" in stats.detail
        assert await store.delete("10.1000/0") is True


async def test_a_failed_batch_is_reported_and_the_next_one_is_written(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("ALTER TABLE entries RENAME TO hidden")
            await store.put(entry("10.1000/1"))
            with pytest.raises(StoreError):
                await store.flush()
            assert "no such table" in (await store.stats()).detail
            assert "; 0 writes dropped, 1 lost" in (await store.stats()).detail
            assert not (await store.stats()).healthy
            other.execute("ALTER TABLE hidden RENAME TO entries")
        # It is written all the same.
        with pytest.raises(StoreError, match="no such table"):
            await store.put(entry("10.1000/2"))
        await store.flush()
        await store.put(entry("10.1000/3"))
        assert await store.get("10.1000/1") is None
        assert await store.get("10.1000/2") is not None
        assert (await store.stats()).healthy


def test_after_a_failure_an_empty_batch_is_tried_until_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY", 0.01)
    written = Event()
    errors = [RuntimeError("the disk is read-only")] * 3

    def write(changes: list[Change], used: dict[str, float]) -> None:
        if errors:
            raise errors.pop()
        if not changes:
            written.set()

    writing = BatchWriter(write, gather=NEVER)
    writing.submit(Change("10.1000/182", entry(), announce=False))
    with pytest.raises(StoreError, match="read-only"):
        writing.flush().result(PATIENCE)
    assert written.wait(PATIENCE)
    writing.flush().result(PATIENCE)
    assert (writing.last_error, writing.lost) == (None, 1)
    writing.close()


def test_the_times_of_use_that_wait_are_bounded() -> None:
    written: list[int] = []
    writing = BatchWriter(lambda changes, used: written.append(len(used)), gather=NEVER)
    for number in range(MAX_PENDING + 1):
        writing.record_use(str(number), 1.0)
    writing.flush().result(PATIENCE)
    assert sum(written) == MAX_PENDING
    writing.close()


async def test_a_cancelled_flush_does_no_harm(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        await store.put(entry())
        waiting = asyncio.ensure_future(store.flush())
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await store.flush()
        assert await store.get("10.1000/182") == entry()
