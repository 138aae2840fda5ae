"""The earlier targets of names in the file of a store: which are kept, and when they leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.cache.entry import Entry
from app.features.help import earlier_targets
from app.features.help.earlier_targets import EARLIER_TARGETS, read_earlier_targets
from app.features.sqlite.store import SqliteStore
from app.handle.answer import Answer, ResponseCode
from tests.clock import Clock

pytestmark = pytest.mark.anyio

KEY = "10.5555/WORK"


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db", clock=clock, max_bytes=10**8, gather=0.0, tables=[EARLIER_TARGETS])
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


@pytest.mark.parametrize(("scope", "left"), [(KEY, 1), ("10.5555/", 0), ("", 0), ("10.555/", 2)])
async def test_a_purge_deletes_them(store: SqliteStore, clock: Clock, tmp_path: Path, scope: str, left: int) -> None:
    for key in (KEY, "10.5555/OTHER"):
        for number in (1, 2):
            await put(store, clock, f"https://example.org/{number}", key)
    await store.delete(scope)
    await store.flush()
    assert len(read(tmp_path) + read(tmp_path, "10.5555/OTHER")) == left


async def test_the_oldest_of_all_names_leave_first(
    store: SqliteStore, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_targets, "MAX_ROWS", 2)
    for name in ("A", "B", "C"):
        for number in (1, 2):
            await put(store, clock, f"https://example.org/{number}", f"10.5555/{name}")
    assert [len(read(tmp_path, f"10.5555/{name}")) for name in ("A", "B", "C")] == [0, 1, 1]


def test_a_file_without_the_table_has_none(tmp_path: Path) -> None:
    assert read_earlier_targets(tmp_path / "nothing.db", KEY) == []
