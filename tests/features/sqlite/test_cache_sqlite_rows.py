"""Reading the rows of a store: usable entries, pages, damage, and the state of the file."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.sqlite.file import connect, prepare
from doi_proxy.features.sqlite.rows import Rows, read_note
from doi_proxy.features.sqlite.writer import Change, write_batch
from tests.cache.entries import NOW, entry
from tests.clock import Clock


class File:
    """A store file, its rows, and how often its damage was reported."""

    def __init__(self, path: Path, connection: sqlite3.Connection, clock: Clock) -> None:
        self.connection = connection
        self.reports = 0
        self.rows = Rows(path, connection, clock, report_damage=self._report)

    def put(self, *keys: str) -> None:
        changes = [Change(key, entry(key), announce=False) for key in keys]
        write_batch(self.connection, changes, {}, now=NOW, max_bytes=100_000_000)

    def pages(self, prefix: str) -> list[list[str]]:
        return [[found.key for found in page] for page in self.rows.pages(prefix)]

    def _report(self, _: Exception) -> None:
        self.reports += 1


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> Iterator[File]:
    path = tmp_path / "store.sqlite3"
    prepare(path, NOW)
    with closing(connect(path, timeout=1.0)) as connection:
        yield File(path, connection, clock)


def test_a_damaged_time_of_use_counts_as_never(file: File) -> None:
    file.put("10.1000/182")
    for odd in ("text", b"x"):
        file.connection.execute("UPDATE entries SET last_used = ?", (odd,))
        assert file.rows.find("10.1000/182") == (entry(), 0.0)
    file.connection.execute("UPDATE entries SET last_used = 1e300")
    assert file.rows.find("10.1000/182")[0] == entry()


def test_a_note_that_is_long_or_not_bytes_counts_as_none_and_is_not_read(file: File) -> None:
    for value, found in (("x'00ff'", b"\x00\xff"), ("zeroblob(8388608)", bytes(8_388_608)), ("'text'", None)):
        file.connection.execute(f"INSERT OR REPLACE INTO notes VALUES ('note', {value})")
        assert read_note(file.rows, "note") == found
    file.connection.execute("INSERT OR REPLACE INTO notes VALUES ('note', zeroblob(10000000))")
    tracemalloc.start()
    try:
        assert read_note(file.rows, "note") is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_damaged_entries_are_counted_and_the_store_stays_healthy(file: File) -> None:
    file.put("10.1000/1", "10.1000/2")
    file.connection.execute("UPDATE entries SET data = substr(data, 1, length(data) - 1)")
    with pytest.raises(DamagedEntry):
        file.rows.find("10.1000/1")
    assert file.pages("") == [[]]
    stats = file.rows.stats()
    assert (stats.entries, stats.healthy) == (2, True)
    assert "3 reads of damaged entries" in stats.detail
    assert file.reports == 0


def test_a_failed_read_is_a_store_error_and_the_next_one_makes_the_store_healthy(file: File) -> None:
    file.put("10.1000/182")
    file.connection.execute("ALTER TABLE totals RENAME TO hidden")
    stats = file.rows.stats()
    assert (stats.entries, stats.bytes, stats.healthy) == (0, 0, False)
    with pytest.raises(StoreError, match="no such table"):
        file.rows.rows("SELECT * FROM totals", ())
    assert "3 reads failed, the last one: no such table: totals" in file.rows.stats().detail
    file.connection.execute("ALTER TABLE hidden RENAME TO totals")
    assert file.rows.find("10.1000/182")[0] == entry()
    assert file.rows.stats().healthy
    assert file.reports == 0
