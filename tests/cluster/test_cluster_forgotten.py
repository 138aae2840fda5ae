"""If one proxy replaces or purges an entry, the memory tiers of the others drop it within two seconds."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import PATIENT, Proxy, until
from tests.cluster.raw_http import Answered
from tests.parts import usual_cache

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.valkey, pytest.mark.process]

NAME: Final = "10.1234/known"
OLD: Final = "https://www.example.org/old"
NEW: Final = "https://www.example.org/new"
#: Seconds within which every memory tier has heard of a change.
SEEN_WITHIN: Final = 2.0


async def expect(proxies: list[Proxy], status: int, location: str) -> None:
    """Every proxy answers so within SEEN_WITHIN."""

    async def seen() -> bool:
        answers: list[Answered] = [await proxy.ask(f"/{NAME}") for proxy in proxies]
        return all((answer.status, answer.location) == (status, location) for answer in answers)

    print(f"seen by both after {await until(seen, SEEN_WITHIN, f'{status} {location}'):.2f} s")


async def test_a_change_a_purge_and_a_not_found_of_one_proxy_reach_the_other(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream, store = start_upstream({NAME: OLD}), f"valkey://127.0.0.1:{valkey.port}/0"
    proxies = [start_proxy(upstream.url, store, **PATIENT) for _ in range(2)]
    await asyncio.gather(upstream.ready(), *(proxy.ready() for proxy in proxies))
    # Both have the record in memory.
    for proxy in (*proxies, *proxies):
        assert (await proxy.ask(f"/{NAME}")).location == OLD
    assert await upstream.queries(NAME) == 1

    await upstream.put(NAME, NEW)
    assert (await proxies[0].ask(f"/{NAME}?auth")).location == NEW
    await expect(proxies, 302, NEW)
    assert await upstream.queries(NAME) == 2

    await upstream.put(NAME, OLD)
    cache = usual_cache(store, clock=time.time)
    assert await cache.delete(NAME.upper())
    await cache.close()
    await expect(proxies, 302, OLD)
    assert await upstream.queries(NAME) == 3

    upstream.process.kill()
    upstream.restart(records={})
    await upstream.ready()
    assert (await proxies[0].ask(f"/{NAME}?auth")).status == 404
    await expect(proxies, 404, "")
