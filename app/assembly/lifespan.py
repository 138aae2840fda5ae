"""The start and the end of an application: its seed, its background tasks, and the closing of its parts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from app.assembly.lifecycle import end_tasks
from app.assembly.resolving import Parts
from app.cache.entry import Entry, RegistryEntry
from app.cache.tiered import TieredStore
from app.cache.upgrade import Rewritable, rewrite_entries
from app.features.bundles.bundle import Refused, read_bundle
from app.features.library.file import LibraryFile
from app.features.local_records.files import WATCH_INTERVAL
from app.features.metrics.event_loop import delay_histogram, sample_delay
from app.features.metrics.gauges import read_process
from app.features.metrics.state import StateMetrics
from app.features.metrics.workers import Exposition
from app.features.tracing.opening import Traces

log = logging.getLogger(__name__)

#: Seconds between two updates of the metrics that other workers read.
PUBLISH_INTERVAL: Final = 1.0
#: Seconds between two reads of what other workers share in files.
REFRESH_INTERVAL: Final = 1.0


@asynccontextmanager
async def run_lifespan(
    parts: Parts,
    clock: Callable[[], float],
    library_file: LibraryFile,
    state: StateMetrics,
    exposition: Exposition,
    refreshes: Sequence[Callable[[], None]],
    traces: Traces | None,
) -> AsyncIterator[None]:
    """Load the seed, run the background tasks, and close the parts at the end. `refreshes` are called every second."""
    if parts.settings.seed is not None:
        await _load_seed(parts.settings.seed, parts.cache, clock, parts.settings.cache_grace)
    tasks = [asyncio.create_task(parts.cache.watch())]
    if isinstance(store := parts.cache.store, Rewritable):
        tasks.append(asyncio.create_task(rewrite_entries(store)))
    delay = sample_delay(delay_histogram(exposition.registry), time.perf_counter, asyncio.sleep)
    tasks.append(asyncio.create_task(delay))
    if parts.local_files is not None:
        tasks.append(asyncio.create_task(parts.local_files.watch(WATCH_INTERVAL)))
    tasks.append(asyncio.create_task(library_file.watch(WATCH_INTERVAL)))
    tasks.append(asyncio.create_task(_refresh(refreshes)))
    if exposition.is_shared:
        tasks.append(asyncio.create_task(_publish_metrics(parts, state, exposition)))
    try:
        yield
    finally:
        await end_tasks(tasks)
        exposition.flush()
        await parts.resolver.close()
        await parts.upstream.source.aclose()
        await parts.cache.close()
        if traces is not None:
            await traces.aclose()


async def _load_seed(path: Path, cache: TieredStore, clock: Callable[[], float], grace: float) -> None:
    """Put the records of the seed into the cache, except names that the cache already has.

    A seed record is expired from the start. It is served only while the upstream cannot be reached.
    """
    loaded = known = 0
    with path.open("rb") as file:
        for item in read_bundle(file):
            now = clock()
            if isinstance(item, Refused):
                log.warning("%s, line %s is left out: %s", path, item.number, item.reason)
            elif isinstance(item, Entry):
                entry = await cache.reread(item.key)
                if entry is not None and entry.is_usable(now) and not isinstance(entry, RegistryEntry):
                    known += 1
                else:
                    await cache.put(replace(item, fetched_at=now, fresh_until=now, stale_until=now + grace))
                    loaded += 1
    log.info("%s: %s records loaded, %s were in the cache already", path, loaded, known)


async def _refresh(refreshes: Sequence[Callable[[], None]]) -> None:
    while True:
        await asyncio.sleep(REFRESH_INTERVAL)
        for refresh in refreshes:
            refresh()


async def _publish_metrics(parts: Parts, state: StateMetrics, exposition: Exposition) -> None:
    while True:
        exposition.flush()
        state.set_process_state(read_process(parts))
        await asyncio.sleep(PUBLISH_INTERVAL)
