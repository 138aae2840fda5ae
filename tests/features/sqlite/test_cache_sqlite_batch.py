"""One transaction of the store: what a batch writes, what it leaves out, and what it evicts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.store import MAX_PURGES, UNKNOWN
from doi_proxy.features.sqlite.file import connect, prepare
from doi_proxy.features.sqlite.writer import Change, split_changes, write_batch
from doi_proxy.store.stored_entry import unpack
from tests.cache.entries import NOW, entry

KEY = "10.1000/182"
PLENTY = 100_000_000


@pytest.fixture
def file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    prepare(tmp_path / "store.sqlite3", NOW)
    with closing(connect(tmp_path / "store.sqlite3", timeout=1.0)) as connection:
        yield connection


def write(
    file: sqlite3.Connection,
    *changes: Change,
    now: float = NOW,
    max_bytes: int = PLENTY,
    used: dict[str, float] | None = None,
) -> None:
    write_batch(file, list(changes), used or {}, now=now, max_bytes=max_bytes)


def put(one: Entry, *, sent_at: float | None = None, unless_newer: bool = False) -> Change:
    return Change(one.key, one, announce=False, sent_at=sent_at, unless_newer=unless_newer)


def purge(scope: str, at: float) -> Change:
    return Change(scope, None, announce=False, purged_at=at)


def read(file: sqlite3.Connection, key: str = KEY) -> Entry | None:
    row = file.execute("SELECT data FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else unpack(key, row[0])


def keys(file: sqlite3.Connection) -> list[str]:
    return [key for (key,) in file.execute("SELECT key FROM entries ORDER BY key")]


def test_a_batch_is_written_whole_or_not_at_all(file: sqlite3.Connection) -> None:
    with pytest.raises(UnicodeEncodeError):
        write(file, Change(KEY, entry(), announce=True), put(entry("10.1000/\ud800")))
    assert keys(file) == []
    assert file.execute("SELECT count(*) FROM announcements").fetchone() == (0,)
    assert not file.in_transaction


def test_a_transaction_that_an_error_left_open_does_not_stop_the_writing(file: sqlite3.Connection) -> None:
    file.execute("BEGIN IMMEDIATE")
    file.execute("DELETE FROM totals")
    write(file, put(entry(KEY)))
    assert read(file) == entry(KEY)
    assert file.execute("SELECT count(*) FROM totals").fetchone() == (1,)


def test_announcements_of_long_names_have_a_bound_in_bytes(file: sqlite3.Connection) -> None:
    for at in range(0, 1_000, 100):
        write(
            file, *(Change(f"10.1/{number}".ljust(8_000, "é"), None, announce=True) for number in range(at, at + 100))
        )
    query = "SELECT sum(length(CAST(key AS BLOB))), max(number) FROM announcements"
    size, newest = file.execute(query).fetchone()
    assert 1_000_000 < size <= 1_048_576
    assert newest == 1_000


def test_more_purges_than_are_remembered_refuse_all_earlier_answers_and_delete_nothing(
    file: sqlite3.Connection,
) -> None:
    write(file, *(purge(f"10.{n}/", NOW - 1) for n in range(MAX_PURGES)))
    assert file.execute("SELECT count(*) FROM purges").fetchone() == (MAX_PURGES,)
    write(file, purge("10.0.1/", NOW - 1))
    assert file.execute("SELECT scope, at FROM purges").fetchall() == [(UNKNOWN, NOW)]
    write(file, put(entry(), sent_at=NOW - 0.5))
    assert read(file) is None
    write(file, put(entry(), sent_at=NOW))
    assert read(file) == entry()


def test_the_hand_passes_over_all_entries_and_begins_again(file: sqlite3.Connection) -> None:
    """The expired entry comes behind more entries than one batch passes."""
    for start in range(0, 1_200, 400):
        write(file, *(put(entry(f"10.1000/{n:05}")) for n in range(start, start + 400)))
    write(file, put(entry("10.1000/99999", ttl=1, grace=0)))
    for _ in range(4):
        write(file, now=NOW + 60)
    assert len(keys(file)) == 1_200
    assert file.execute("SELECT entries FROM totals").fetchone() == (1_200,)


def test_a_large_store_loses_those_used_longest_ago_of_each_stretch(file: sqlite3.Connection) -> None:
    for start in range(0, 1_600, 400):
        write(file, *(put(entry(f"10.1000/{n:05}")) for n in range(start, start + 400)), now=NOW)
    recent = [f"10.1000/{n:05}" for n in range(0, 1_600, 2)]
    write(file, used=dict.fromkeys(recent, NOW + 9), now=NOW + 9)
    size = file.execute("SELECT bytes FROM totals").fetchone()[0]
    for _ in range(4):
        write(file, now=NOW + 9, max_bytes=size * 3 // 4)
    left = keys(file)
    assert set(recent) <= set(left)
    assert 1_100 <= len(left) <= 1_200


def test_expired_entries_leave_first_and_then_those_used_longest_ago(file: sqlite3.Connection) -> None:
    for number in range(4):
        write(file, put(entry(f"10.1000/{number}")), now=NOW + number)
    write(file, put(entry("10.1000/EXPIRED", ttl=1, grace=0)), now=NOW)
    write(file, used={"10.1000/0": NOW + 9, "10.1000/UNKNOWN": NOW + 9}, now=NOW + 9)
    assert keys(file) == [f"10.1000/{number}" for number in range(4)]
    (of_four,) = file.execute("SELECT bytes FROM totals").fetchone()
    write(file, put(entry("10.1000/DAMAGED")), now=NOW + 9)
    file.execute("UPDATE entries SET stale_until = 'never', last_used = 'text' WHERE key = '10.1000/DAMAGED'")
    write(file, now=NOW + 9, max_bytes=of_four // 2)
    assert keys(file) == ["10.1000/0", "10.1000/3"]


def test_a_transaction_has_a_limit_of_rows_and_of_bytes_and_at_least_one_change() -> None:
    changes = [Change(f"10.1000/{number}", None, announce=False) for number in range(7)]
    assert [len(part) for part in split_changes(changes, 3, 1_000)] == [3, 3, 1]
    assert [len(part) for part in split_changes(changes, 100, 2 * len(changes[0].key))] == [2, 2, 2, 1]
    assert [len(part) for part in split_changes(changes, 100, 1)] == [1] * 7
    assert list(split_changes([], 100, 1)) == [[]]
