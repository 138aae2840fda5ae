"""A process that has the lease on a name is killed: the other processes do not wait for the end of its query."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.valkey]

NAME: Final = "10.1234/held"
URL: Final = "https://www.example.org/held"
#: Seconds for which the upstream holds its first answer.
HELD: Final = 60.0


async def test_another_proxy_queries_the_upstream_itself(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: URL})
    store = f"valkey://127.0.0.1:{valkey.port}/0"
    settings: dict[str, object] = {"upstream_timeout": HELD, "upstream_read_timeout": HELD}
    holder, other = (start_proxy(upstream.url, store, **settings) for _ in range(2))
    await asyncio.gather(upstream.ready(), holder.ready(), other.ready())
    await upstream.tell("fault", name=NAME, kind="delay", seconds=HELD)
    lost = asyncio.create_task(holder.ask(f"/{NAME}"))

    async def has_arrived() -> bool:
        return await upstream.queries(NAME) == 1

    await until(has_arrived, START_DEADLINE, "the query of the holder arrives")
    await upstream.tell("fault", name=NAME, kind="delay", seconds=0)
    holder.process.kill()
    killed_at = time.monotonic()
    answer = await other.ask(f"/{NAME}")
    print(f"the other proxy answered {time.monotonic() - killed_at:.2f} s after the kill")
    assert (answer.status, answer.location) == (302, URL)
    assert await upstream.queries(NAME) == 2
    with pytest.raises((OSError, EOFError)):
        await lost
