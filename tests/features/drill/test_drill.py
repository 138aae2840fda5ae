"""A drill: queries are refused for a time, those of people only if the operator says so. And what is counted."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from app.features.drill.command import DrillCount, count_drill
from app.features.drill.drill import Drill
from app.upstream.budget import Budget, BudgetLimits
from app.upstream.source import Priority
from tests.web.proxy import Proxy, running

pytestmark = pytest.mark.anyio

TOKEN: Final = "correct-horse-battery-staple"


@asynccontextmanager
async def proxy_with(**settings: Any) -> AsyncIterator[Proxy]:
    async with running(admin_token=TOKEN, **settings) as proxy:
        for name in ("known", "new", "later"):
            proxy.upstream.put(f"10.5555/{name}", url=f"https://target.example/{name}")
        yield proxy


async def begin(proxy: Proxy, **drill: Any) -> int:
    body = json.dumps(drill).encode()
    got = await proxy.post(
        "/admin/drill", body, authorization=f"Bearer {TOKEN}", content_type="application/json"
    )  # fmt: skip
    return got.status


async def test_a_drill_with_people_refuses_new_names_and_serves_known_ones() -> None:
    async with proxy_with() as proxy:
        assert (await proxy.get("/10.5555/known")).status == 302
        assert await begin(proxy, seconds=60, people=True) == 200
        got = await proxy.get("/10.5555/new")
        assert (got.status, proxy.upstream.queries("10.5555/new")) == (502, 0)
        assert "not registered" not in got.text
        proxy.clock.advance(30)
        assert (await proxy.get("/10.5555/known")).status == 302
        assert await begin(proxy, seconds=0) == 200
        assert (await proxy.get("/10.5555/new")).status == 302


async def test_a_drill_ends_by_itself() -> None:
    async with proxy_with() as proxy:
        assert await begin(proxy, seconds=60, people=True) == 200
        proxy.clock.advance(61)
        assert (await proxy.get("/10.5555/new")).status == 302


@pytest.mark.parametrize("step", [3_600, 365 * 86_400, -1, -3_600, -365 * 86_400])
async def test_a_drill_ends_if_the_clock_is_set_to_a_time_outside_it(step: int) -> None:
    async with proxy_with() as proxy:
        assert await begin(proxy, seconds=60, people=True) == 200
        assert (await proxy.get("/10.5555/new")).status == 502
        proxy.clock.advance(step)
        assert (await proxy.get("/10.5555/later")).status == 302


async def test_a_drill_without_people_refuses_lists_alone() -> None:
    async with proxy_with() as proxy:
        assert await begin(proxy, seconds=60) == 200
        assert (await proxy.get("/10.5555/new")).status == 302
        got = await proxy.post("/api/resolve", b"10.5555/later\n", content_type="text/plain")
        assert '"verdict":"unverified"' in got.text
        assert proxy.upstream.queries("10.5555/later") == 0


@pytest.mark.parametrize("drill", [{"seconds": -1}, {"seconds": 86400}, {"seconds": 1, "x": 1}, {}])
async def test_a_wrong_drill_is_refused(drill: dict[str, Any]) -> None:
    async with proxy_with() as proxy:
        assert await begin(proxy, **drill) in (400, 422)


def test_another_worker_follows(tmp_path: Path) -> None:
    budgets = [Budget(BudgetLimits(1, 1, 1, 0.5, 1), time.monotonic) for _ in range(2)]
    announced: list[bool] = []
    ours, theirs = (
        Drill(tmp_path / "drill.json", lambda: 100.0, budget, lambda: announced.append(True)) for budget in budgets
    )
    theirs.refresh()
    ours.begin(60, people=False)
    assert budgets[1].drill is None
    theirs.refresh()
    refuse = budgets[1].drill
    assert refuse is not None and (refuse(Priority.PERSON), refuse(Priority.BULK)) == (0.0, 60.0)
    ours.begin(0, people=False)
    theirs.refresh()
    assert [budget.drill for budget in budgets] == [None, None]
    assert len(announced) == 2


def test_drills_that_begin_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    file, budget = tmp_path / "drill.json", Budget(BudgetLimits(1, 1, 1, 0.5, 1), time.monotonic)
    drills = [Drill(file, lambda: 100.0, budget, lambda: None) for _ in range(4)]
    with ThreadPoolExecutor(len(drills)) as threads:
        for _ in range(50):
            seconds = set(threads.map(lambda at: drills[at].begin(at, people=False), range(len(drills))))
            assert json.loads(file.read_text())[0] in seconds
    assert {found.name for found in tmp_path.iterdir()} == {"drill.json", "drill.lock"}


def test_what_two_statuses_say() -> None:
    before = {"answers": {"fresh": 10, "asked": 2}, "unverified": {}}
    after = {"answers": {"fresh": 90, "renewed": 5, "asked": 12, "joined": 3}, "unverified": {"upstream-timeout": 2}}
    count = count_drill(before, after)
    assert count == DrillCount(answered=85, needed=10, shared=3, failed=2)
    assert count.share == 0.85
    assert count_drill(after, after).share is None
