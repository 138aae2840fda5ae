"""The start and the end of an application: its seed, its background tasks, and the closing of its parts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from app.assembly import Parts
from app.cache.bundle import Refused, read_bundle
from app.cache.entry import Entry
from app.cache.tiered import TieredStore
from app.gauges import read_process
from app.lifecycle import end_tasks
from app.metrics.event_loop import delay_histogram, sample_delay
from app.metrics.instruments import StateMetrics
from app.metrics.workers import Exposition

log = logging.getLogger(__name__)

#: How often a worker tells the others how it is, in seconds.
TELL_INTERVAL: Final = 1.0


@asynccontextmanager
async def run_lifespan(
    parts: Parts, clock: Callable[[], float], state: StateMetrics, exposition: Exposition
) -> AsyncIterator[None]:
    """Start and end; numbers are kept up to date where another process may be asked for them."""
    if parts.settings.seed is not None:
        await _load_seed(parts.settings.seed, parts.cache, clock, parts.settings.cache_grace)
    tasks = [asyncio.create_task(parts.cache.watch())]
    delay = sample_delay(delay_histogram(exposition.registry), time.perf_counter, asyncio.sleep)
    tasks.append(asyncio.create_task(delay))
    if exposition.is_shared:
        tasks.append(asyncio.create_task(_keep_telling(parts, state, exposition)))
    try:
        yield
    finally:
        await end_tasks(tasks)
        exposition.tell()
        await parts.resolver.close()
        await parts.upstream.source.aclose()
        await parts.cache.close()


async def _load_seed(path: Path, cache: TieredStore, clock: Callable[[], float], grace: float) -> None:
    """Put the records of the seed into the cache, except names that it knows.

    They expire at once: the upstream is queried first, and they are served only while it cannot be reached.
    """
    loaded = known = 0
    with path.open("rb") as file:
        for item in read_bundle(file):
            now = clock()
            if isinstance(item, Refused):
                log.warning("%s, line %s is left out: %s", path, item.number, item.reason)
            elif isinstance(item, Entry):
                entry = await cache.reread(item.key)
                if entry is not None and entry.is_usable(now):
                    known += 1
                else:
                    await cache.put(replace(item, fetched_at=now, fresh_until=now, stale_until=now + grace))
                    loaded += 1
    log.info("%s: %s records loaded, %s were in the cache already", path, loaded, known)


async def _keep_telling(parts: Parts, state: StateMetrics, exposition: Exposition) -> None:
    while True:
        exposition.tell()
        state.tell_process(read_process(parts))
        await asyncio.sleep(TELL_INTERVAL)
