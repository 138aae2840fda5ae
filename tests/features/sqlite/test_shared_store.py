"""Two processes with one SQLite store, as two resolvers in this one."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import opened
from tests.parts import usual_timeouts
from tests.resolver.test_resolver import NAME, OLD, eventually, running, target

pytestmark = pytest.mark.anyio


async def test_a_lease_is_renewed_while_the_query_lasts(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"

    def ends() -> list[float]:
        with closing(sqlite3.connect(f"{file}.coordination")) as connection:
            return [end for (end,) in connection.execute("SELECT ends FROM leases")]

    quick = usual_timeouts(upstream=60, lease=0.3)
    async with running(store=f"sqlite:///{file}", owner="one", patience=quick) as one:
        one.upstream.put(NAME.text, url=OLD)
        one.upstream.hold(NAME.text)
        answer = asyncio.create_task(one.ask())
        await one.upstream.arrived(NAME.text)
        (first,) = ends()
        await eventually(lambda: ends()[0] > first)
        one.upstream.release(NAME.text)
        assert target(await answer) == OLD
        await eventually(lambda: ends() == [])


async def test_a_new_name_is_read_once_before_its_query(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path / "store.sqlite3", clock) as store:
        reads: list[str] = []
        store._rows.connection.set_trace_callback(reads.append)
        # The lookups of a request without a task, and then of its task.
        assert (store.read_now("10.1000/NEW"), store.read_now("10.1000/NEW")) == (None, None)
        assert await store.get("10.1000/NEW") is None
        assert len(reads) == 1
        # With a lease, the store is read again.
        assert await store.get("10.1000/NEW") is None
        assert len(reads) == 2


async def test_what_another_process_stores_after_the_lookup_is_found_by_the_second(
    tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "store.sqlite3"
    async with opened(file, clock) as one, opened(file, clock) as two:
        assert one.read_now(entry().key) is None
        await two.put(entry())
        await two.flush()
        assert [await one.get(entry().key) for _ in range(2)] == [None, entry()]


async def test_what_another_process_stores_before_the_lease_is_found_while_more_requests_come(
    tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "store.sqlite3"
    async with opened(file, clock) as one, opened(file, clock) as two:
        assert (one.read_now(entry().key), await one.get(entry().key)) == (None, None)
        # The lookup of another request, which then waits for the query of the first.
        assert one.read_now(entry().key) is None
        await two.put(entry())
        await two.flush()
        assert await one.lease(entry().key, "one", 10.0)
        assert await one.get(entry().key) == entry()


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


async def test_a_name_that_another_process_answers_after_the_lookup_is_not_queried(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    async with running(store=store, owner="one") as one, running(store=store, owner="two") as two:
        assert two.resolver.resolve_now(NAME) is None
        one.upstream.put(NAME.text, url=OLD)
        assert target(await one.ask()) == OLD
        await one.cache.flush()
        assert (target(await two.ask()), two.queries()) == (OLD, 0)
