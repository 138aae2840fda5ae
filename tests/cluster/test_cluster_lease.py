"""A process that has the lease on a name is killed: the other processes do not wait for the end of its query."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.lease_holder import NAME, SETTINGS, URL, ask_another, begin_query
from tests.cluster.processes import Proxy, UpstreamProcess

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.mark.nightly
@pytest.mark.valkey
async def test_another_proxy_queries_the_upstream_itself(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: URL})
    holder, other = (start_proxy(upstream.url, f"valkey://127.0.0.1:{valkey.port}/0", **SETTINGS) for _ in range(2))
    await asyncio.gather(upstream.ready(), holder.ready(), other.ready())
    lost = await begin_query(holder, upstream)
    holder.process.kill()
    await expect_answer(other, upstream)
    with pytest.raises((OSError, EOFError)):
        await lost


async def expect_answer(other: Proxy, upstream: UpstreamProcess) -> None:
    answer, seconds = await ask_another(other)
    print(f"another process answered {seconds:.2f} s after the kill")
    assert (answer.status, answer.location) == (302, URL)
    assert await upstream.queries(NAME) == 2
