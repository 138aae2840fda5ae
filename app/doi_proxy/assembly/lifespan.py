"""The start and the end of an application: the services of its features, and the closing of the core's parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from doi_proxy.assembly.lifecycle import end_tasks
from doi_proxy.features.feature import Core
from doi_proxy.system.background import Service
from doi_proxy.web.pages import Pages

#: What anyio runs on. The first streamed answer would import it in one turn of the event loop.
_LATE: Final = "anyio._backends._asyncio"
#: Seconds between two ticks of the services.
TICK_INTERVAL: Final = 1.0


@asynccontextmanager
async def run_lifespan(core: Core, pages: Pages, services: Sequence[Service]) -> AsyncIterator[None]:
    """Start the services and run them. At the end, stop them in reverse, and close the parts of the core."""
    await asyncio.to_thread(import_module, _LATE)
    for service in services:
        await service.start()
    runs = (core.cache.watch(), _tick(services), pages.prepare(), *(service.run() for service in services))
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        yield
    finally:
        await end_tasks(tasks)
        await core.resolver.close()
        await core.upstream.source.aclose()
        await core.cache.close()
        for service in reversed(services):
            await service.stop()


async def _tick(services: Sequence[Service]) -> None:
    while True:
        due = time.perf_counter() + TICK_INTERVAL
        await asyncio.sleep(TICK_INTERVAL)
        late = max(0.0, time.perf_counter() - due)
        for service in services:
            service.tick(late)
