"""However many proxies share a store, the upstream sees one guest with one budget."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import PATIENT, Proxy, until
from tests.constants import QUEUE_TIMEOUT

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

RATE: Final = 20.0
BURST: Final = 5
#: Seconds of the load, which asks for far more than the budget.
SECONDS: Final = 3.0
MAX_NAMES: Final = 2_000
CALLERS: Final = 10
NAMES: Final = {f"10.1234/n{number}": f"https://www.example.org/{number}" for number in range(MAX_NAMES)}


async def expect_one_budget(proxies: list[Proxy], upstream: Any) -> None:
    await asyncio.gather(upstream.ready(), *(proxy.ready() for proxy in proxies))
    numbers, statuses = count(), []
    began = time.monotonic()

    async def call() -> None:
        while time.monotonic() - began < SECONDS and (number := next(numbers)) < MAX_NAMES:
            answer = await proxies[number % len(proxies)].ask(f"/10.1234/n{number}")
            statuses.append(answer.status)
            assert answer.status == 503 or answer.location == NAMES[f"10.1234/n{number}"], answer
            assert answer.status == 302 or int(answer.headers["retry-after"]) >= 1

    async def watch() -> bool:
        asked = (await upstream.counts())["asked"]
        elapsed = time.monotonic() - began
        assert asked <= RATE * elapsed + BURST, f"{asked} questions in {elapsed:.2f} s"
        return elapsed >= SECONDS

    await asyncio.gather(until(watch, SECONDS + 1, "the load ends"), *(call() for _ in range(CALLERS)))
    asked, elapsed = (await upstream.counts())["asked"], time.monotonic() - began
    print(f"{asked} questions in {elapsed:.2f} s, {len(statuses)} answers, {statuses.count(503)} of them 503")
    # Both were at work, and the budget was used: the proxies' answers arrived at about its rate.
    assert asked >= RATE * SECONDS / 2


@pytest.mark.valkey
async def test_two_proxies_on_one_valkey_share_one_rate(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream(NAMES)
    store = f"valkey://127.0.0.1:{valkey.port}/0"
    more: dict[str, object] = {
        "upstream_rate": RATE,
        "upstream_burst": BURST,
        QUEUE_TIMEOUT: 0.5,
        **PATIENT,
    }
    await expect_one_budget([start_proxy(upstream.url, store, **more) for _ in range(2)], upstream)


async def test_two_workers_on_one_sqlite_store_share_one_rate(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str
) -> None:
    upstream = start_upstream(NAMES)
    more: dict[str, object] = {"upstream_rate": RATE, "upstream_burst": BURST, QUEUE_TIMEOUT: 0.5, "workers": 2}
    await expect_one_budget([start_proxy(upstream.url, store_file, **more)], upstream)
