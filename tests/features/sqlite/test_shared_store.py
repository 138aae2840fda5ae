"""Two processes with one SQLite store, as two resolvers in this one."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.resolver.resolution import Origin
from tests.parts import usual_timeouts
from tests.resolver.test_resolver import NAME, OLD, eventually, running, target

pytestmark = pytest.mark.anyio


async def test_the_other_s_answer_is_used(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    async with running(store=store, owner="one") as one, running(store=store, owner="two") as two:
        await one.cached()
        await one.cache.flush()
        found = await two.ask()
        assert (found.origin, target(found), two.queries()) == (Origin.HIT, OLD, 0)


async def test_who_waits_for_the_other_s_question_takes_its_answer(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    quick = usual_timeouts(upstream=60, poll=0.001)
    async with (
        running(store=store, owner="one", patience=quick) as one,
        running(store=store, owner="two", patience=quick) as two,
    ):
        one.upstream.put(NAME.text, url=OLD)
        one.upstream.hold(NAME.text)
        first = asyncio.create_task(one.ask())
        await one.upstream.arrived(NAME.text)
        second = asyncio.create_task(two.ask())
        await asyncio.sleep(0)
        one.upstream.release(NAME.text)
        assert [target(found) for found in await asyncio.gather(first, second)] == [OLD, OLD]
        assert (one.queries(), two.queries()) == (1, 0)


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
        one.clock.advance(0.2)
        renewed_until = one.clock() + 0.3
        await eventually(lambda: ends() == [renewed_until])
        one.upstream.release(NAME.text)
        assert target(await answer) == OLD
        assert ends() == []
