"""The earlier targets of names in the entries of a store: which are kept, and when they leave."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.cache.entry import Entry
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.features.sqlite.writer import read_earlier_targets
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock

pytestmark = pytest.mark.anyio

KEY = "10.5555/WORK"


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db", clock=clock, max_bytes=10**8, gather=0.0)
    yield opened
    await opened.close()


async def put(store: SqliteStore, clock: Clock, target: str, key: str = KEY) -> None:
    clock.advance(10)
    value = f'[{{"index":1,"type":"URL","data":{{"format":"string","value":"{target}"}},"ttl":1}}]'
    now = clock()
    await store.put(Entry(key, Answer(ResponseCode.SUCCESS, value.encode()), now, now + 1, now + 10**6))
    await store.flush()


def read(tmp_path: Path, key: str = KEY) -> list[str]:
    return [one.target for one in read_earlier_targets(tmp_path / "store.db", key)]


async def test_the_last_three_are_kept_the_newest_first(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    for number in (1, 2, 2, 3, 4, 5):
        await put(store, clock, f"https://example.org/{number}")
    assert read(tmp_path) == [f"https://example.org/{number}" for number in (4, 3, 2)]
    newest = read_earlier_targets(tmp_path / "store.db", KEY)[0]
    assert (newest.seen, newest.replaced) == (clock() - 10, clock())


async def test_an_answer_without_another_target_keeps_nothing(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    await put(store, clock, "https://example.org/")
    await put(store, clock, "javascript:alert(1)")
    await put(store, clock, "https://example.org/")
    assert read(tmp_path) == []


async def test_a_purge_deletes_those_of_its_names(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    for key in (KEY, "10.5555/OTHER"):
        for number in (1, 2):
            await put(store, clock, f"https://example.org/{number}", key)
    await store.delete(KEY)
    await put(store, clock, "https://example.org/3")
    assert (read(tmp_path), read(tmp_path, "10.5555/OTHER")) == ([], ["https://example.org/1"])


async def test_they_leave_with_the_entry(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    for number in (1, 2):
        await put(store, clock, f"https://example.org/{number}")
    clock.advance(10**7)
    await put(store, clock, "https://example.org/", "10.5555/OTHER")
    assert read(tmp_path) == []


async def test_a_not_found_keeps_them(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    for number in (1, 2):
        await put(store, clock, f"https://example.org/{number}")
    now = clock()
    await store.put(Entry(KEY, Answer(ResponseCode.HANDLE_NOT_FOUND), now, now + 1, now + 10**6))
    await store.flush()
    assert read(tmp_path) == ["https://example.org/1"]


async def test_their_bytes_count_in_the_size_of_the_store(store: SqliteStore, clock: Clock) -> None:
    await put(store, clock, "https://example.org/1")
    before = (await store.stats()).bytes
    await put(store, clock, f"https://example.org/{'x' * 600}")
    await put(store, clock, "https://example.org/1")
    assert (await store.stats()).bytes > before + 600


@pytest.mark.parametrize("damaged", [b"{", b"[" * 100_000, b"[1]", "text", 7])
async def test_damaged_ones_count_as_none_and_are_replaced(
    store: SqliteStore, clock: Clock, tmp_path: Path, damaged: object
) -> None:
    await put(store, clock, "https://example.org/1")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE entries SET earlier = ?", (damaged,))
    assert read(tmp_path) == []
    await put(store, clock, "https://example.org/2")
    assert read(tmp_path) == ["https://example.org/1"]


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert read_earlier_targets(tmp_path / "nothing.db", KEY) == ()
