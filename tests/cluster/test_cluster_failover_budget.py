"""Two hosts share one budget, also while the server that counts its tokens fails and is replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import Proxy, UpstreamProcess, until
from tests.constants import QUEUE_TIMEOUT
from tests.features.valkey.valkey_cluster import Cluster, running_cluster
from tests.features.valkey.valkey_sentinel import running_sentinels

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.valkey, pytest.mark.process]

RATE: Final = 20.0
BURST: Final = 20
#: Queries of both hosts in flight. So many can have a token and arrive later, however slow the machine is.
CONCURRENCY: Final = 4
SETTINGS: Final[dict[str, object]] = {
    "upstream_rate": RATE,
    "upstream_burst": BURST,
    "upstream_max_concurrency": CONCURRENCY,
    "instances": 2,
    QUEUE_TIMEOUT: 1,
}
MAX_NAMES: Final = 10_000
CALLERS: Final = 20
#: Queries of each phase. After the failover, they take longer than the time in which the server gives no token.
QUERIES: Final = 80
PATIENCE: Final = 60.0


@dataclass(frozen=True)
class Store:
    """A store whose counting server a test can fail. `recover` returns when another one has taken over."""

    url: str
    fail: Callable[[], None]
    recover: Callable[[], object]


@pytest.fixture(params=["cluster", "sentinel", "server without its data"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "cluster":
        with running_cluster(tmp_path) as cluster:
            yield of_cluster(cluster)
    elif request.param == "sentinel":
        with running_sentinels(tmp_path) as sentinels:
            yield Store(sentinels.url, sentinels.primary.kill, sentinels.wait_for_failover)
    else:
        server = request.getfixturevalue("valkey")
        yield Store(f"valkey://127.0.0.1:{server.port}/0", server.terminate, server.start)


def of_cluster(cluster: Cluster) -> Store:
    lost = cluster.primaries()[0]
    return Store(cluster.url, lost.kill, lambda: cluster.wait_for_failover(lost))


class Sightings:
    """The number of queries that the upstream got, at many times."""

    def __init__(self, upstream: UpstreamProcess) -> None:
        self._upstream = upstream
        self.asked = 0
        self._least = inf
        #: The most queries in any time, beyond those that its length allows at RATE.
        self.excess = 0.0

    async def look(self) -> None:
        began = time.monotonic()
        self.asked = int((await self._upstream.counts())["asked"])
        # The count was taken between these two times.
        self._least = min(self._least, self.asked - RATE * began)
        self.excess = max(self.excess, self.asked - RATE * time.monotonic() - self._least)

    async def wait(self, more: int) -> float:
        """Look until there are `more` queries. Returns the seconds."""
        wanted = self.asked + more

        async def enough() -> bool:
            await self.look()
            return self.asked >= wanted

        return await until(enough, PATIENCE, f"{wanted} queries")


async def test_the_budget_holds_through_a_failover(
    store: Store, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({})
    proxies = [start_proxy(upstream.url, store.url, **SETTINGS) for _ in range(2)]
    await asyncio.gather(upstream.ready(), *(proxy.ready() for proxy in proxies))
    sightings = Sightings(upstream)
    async with asyncio.TaskGroup() as load:
        callers = [load.create_task(call(proxies, number)) for number in range(CALLERS)]
        print(f"\nall servers run: {QUERIES} queries in {await sightings.wait(QUERIES):.1f} s")
        store.fail()
        recovery = asyncio.create_task(asyncio.to_thread(store.recover))
        print(f"one has failed: {QUERIES // 2} queries in {await sightings.wait(QUERIES // 2):.1f} s")
        await recovery
        print(f"another one took over: {QUERIES} queries in {await sightings.wait(QUERIES):.1f} s")
        for caller in callers:
            caller.cancel()
    print(f"at most {sightings.excess:.1f} queries more than {RATE:.0f} a second; the burst is {BURST}")
    assert sightings.excess <= BURST + CONCURRENCY


async def call(proxies: list[Proxy], caller: int) -> None:
    """Ask for names that no cache has, until the test ends."""
    for number in count():
        assert number < MAX_NAMES
        answer: Any = await proxies[(caller + number) % len(proxies)].ask(f"/10.1234/{caller}-{number}")
        assert answer.status in (404, 503)
