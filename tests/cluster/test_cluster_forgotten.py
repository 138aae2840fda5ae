"""If one proxy replaces or purges an entry, the memory tiers of the others drop it within two seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import PATIENT, Proxy, UpstreamProcess, until
from tests.cluster.raw_http import Answered
from tests.parts import usual_cache

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.valkey, pytest.mark.process]

NAME: Final = "10.1234/known"
OLD: Final = "https://www.example.org/old"
NEW: Final = "https://www.example.org/new"
#: Seconds within which every memory tier has heard of a change.
SEEN_WITHIN: Final = 2.0


class Cluster:
    """Two proxies on one Valkey, both with NAME in memory."""

    def __init__(self, upstream: UpstreamProcess, proxies: list[Proxy], store: str) -> None:
        self.upstream = upstream
        self.first, self.second = proxies
        self.store = store

    async def remember(self) -> None:
        await asyncio.gather(*(one.ready() for one in (self.upstream, self.first, self.second)))
        for proxy in (self.first, self.second, self.first, self.second):
            assert (await proxy.ask(f"/{NAME}")).location == OLD
        assert await self.upstream.queries(NAME) == 1

    async def expect(self, status: int, location: str) -> None:
        """Every proxy answers so within SEEN_WITHIN."""

        async def seen() -> bool:
            answers: list[Answered] = [await proxy.ask(f"/{NAME}") for proxy in (self.first, self.second)]
            return all((answer.status, answer.location) == (status, location) for answer in answers)

        print(f"seen by both after {await until(seen, SEEN_WITHIN, f'{status} {location}'):.2f} s")


@pytest.fixture
async def cluster(valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy) -> AsyncIterator[Cluster]:
    upstream = start_upstream({NAME: OLD})
    store = f"valkey://127.0.0.1:{valkey.port}/0"
    found = Cluster(upstream, [start_proxy(upstream.url, store, **PATIENT) for _ in range(2)], store)
    await found.remember()
    yield found


async def test_a_purged_record_is_asked_for_again_by_every_proxy(cluster: Cluster) -> None:
    await cluster.upstream.put(NAME, NEW)
    cache = usual_cache(cluster.store, clock=time.time)
    assert await cache.delete(NAME.upper())
    await cache.close()
    await cluster.expect(302, NEW)
    assert await cluster.upstream.queries(NAME) == 2


async def test_a_record_that_changed_for_one_proxy_changes_for_the_other(cluster: Cluster) -> None:
    await cluster.upstream.put(NAME, NEW)
    assert (await cluster.first.ask(f"/{NAME}?auth")).location == NEW
    await cluster.expect(302, NEW)


async def test_a_not_found_that_one_proxy_learned_is_known_to_the_other(cluster: Cluster) -> None:
    cluster.upstream.process.kill()
    cluster.upstream.restart(records={})
    await cluster.upstream.ready()
    assert (await cluster.first.ask(f"/{NAME}?auth")).status == 404
    await cluster.expect(404, "")
