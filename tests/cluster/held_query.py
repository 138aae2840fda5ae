"""A process with a query that the upstream holds, and the wait of another process for the same name."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from tests.cluster.processes import PATIENT, START_DEADLINE, Proxy, UpstreamProcess, until
from tests.cluster.raw_http import Answered

NAME: Final = "10.1234/held"
URL: Final = "https://www.example.org/held"
#: Seconds for which the upstream holds its first answer.
HELD: Final = 60.0
#: The query of the process that is killed lasts longer than the test.
SETTINGS: Final[dict[str, object]] = {"upstream_timeout": HELD, **PATIENT}


async def begin_query(holder: Proxy, upstream: UpstreamProcess) -> asyncio.Task[Any]:
    """Let a process send a query that the upstream holds. Returns the request that waits for it."""
    await upstream.tell("fault", name=NAME, kind="delay", seconds=HELD)
    request = asyncio.create_task(holder.ask(f"/{NAME}", deadline=HELD))

    async def has_arrived() -> bool:
        return await upstream.queries(NAME) == 1

    await until(has_arrived, START_DEADLINE, "the query of the holder arrives")
    await upstream.tell("fault", name=NAME, kind="delay", seconds=0)
    return request


async def ask_another(proxy: Proxy) -> tuple[Answered, float]:
    """The answer of another process, and the seconds until it arrived."""
    began = time.monotonic()
    return await proxy.ask(f"/{NAME}"), time.monotonic() - began
