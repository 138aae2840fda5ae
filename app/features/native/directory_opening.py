"""Builds the directory, which finds the handle servers of a name from the root."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

from app.assembly.settings import Settings
from app.features.native.directory import Asker, Directory
from app.features.native.directory_limits import DirectoryLimits
from app.features.native.directory_log import DirectoryLog
from app.features.native.root_file import RootFile
from app.features.native.service_records import RecordStore, ServiceRecords


def open_directory(
    settings: Settings,
    root: RootFile,
    ask: Asker,
    admit_query: Callable[[], Awaitable[None]],
    store: RecordStore | None,
) -> Directory:
    """The directory below a root. With `store`, the cache, lookups and a refreshed root are kept."""
    limits = _read_limits(settings)
    open_with = partial(
        Directory, root.service, ask, limits=limits, observer=DirectoryLog(time.monotonic), admit_query=admit_query
    )
    if store is None:
        return open_with(clock=time.time)
    records = ServiceRecords(store, limits=limits, max_bytes=settings.upstream_max_answer_bytes)
    return open_with(clock=store.clock, records=records, keeper=root)


def _read_limits(settings: Settings) -> DirectoryLimits:
    return DirectoryLimits(
        # The breaker of the whole upstream opens later, because the servers of known prefixes may work.
        root_failures=max(1, settings.upstream_breaker_failures // 2),
        root_pause=settings.upstream_breaker_cooldown,
        timeout=settings.upstream_timeout,
    )
