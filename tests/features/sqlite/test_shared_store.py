"""Two processes with one SQLite store, as two resolvers in this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import opened

pytestmark = pytest.mark.anyio


async def test_what_another_process_stores_after_the_lookup_is_found_by_the_second(
    tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "store.sqlite3"
    async with opened(file, clock) as one, opened(file, clock) as two:
        assert one.read_now(entry().key) is None
        await two.put(entry())
        await two.flush()
        assert [await one.get(entry().key) for _ in range(2)] == [None, entry()]


async def test_a_key_is_not_absent_for_longer_than_its_request(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "store.sqlite3"
    async with opened(file, clock) as one, opened(file, clock) as two:
        for seconds in (0.2, -3_600.0):
            assert one.read_now(entry().key) is None
            await two.put(entry())
            await two.flush()
            clock.advance(seconds)
            assert one.read_now(entry().key) == entry()
            await two.delete(entry().key)
            await two.flush()


async def test_an_absent_key_that_is_put_is_found_at_once(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path / "store.sqlite3", clock) as store:
        assert store.read_now(entry().key) is None
        await store.put(entry())
        assert store.read_now(entry().key) == entry()


async def test_at_most_a_thousand_absent_keys_are_remembered(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path / "store.sqlite3", clock) as store:
        for number in range(2_500):
            assert store.read_now(f"10.1000/{number}") is None
        assert len(store._absent) == 500
