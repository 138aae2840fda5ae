"""Opens the store that the settings name, with the tables that features have in a SQLite file."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import Final

from doi_proxy.assembly.features import find_records, store_openers
from doi_proxy.assembly.settings import Settings
from doi_proxy.assembly.settings.cache import MIN_STORE_BYTES
from doi_proxy.cache.late import LateStore
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import Store, StoreUnavailable
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.store.stored_entry import STORE_FORMAT
from doi_proxy.store.url import StoreOptions, find_store_file, open_store, read_store_path

#: Timeout of a Valkey or Redis command, in seconds. A server in the same network answers in a millisecond, and
#: after this time an upstream query is as fast.
STORE_TIMEOUT: Final = 0.1


def open_cache(
    settings: Settings,
    clock: Callable[[], float] = time.time,
    observer: Callable[[str], None] | None = None,
    *,
    read_only: bool = False,
    timeout: float | None = None,
) -> TieredStore:
    """The cache of a command. Raises ConfigurationError for a URL or a file that cannot be used."""
    try:
        store = _open_store(settings, clock, read_only=read_only, timeout=timeout)
    except StoreError as error:
        raise _refuse(error) from error
    return _build_cache(settings, clock, observer, store)


def open_service_cache(
    settings: Settings, clock: Callable[[], float] = time.time, observer: Callable[[str], None] | None = None
) -> TieredStore:
    """The cache of a service. A store that cannot be opened now is tried again while the service runs, and is only
    read until then, if it can be. So is one whose file is lost later.

    Raises ConfigurationError for a URL or a file that can never be used.
    """
    open_again = partial(_open_store, settings, clock)
    try:
        return _build_cache(settings, clock, observer, open_again(), LateStore(open_again, clock))
    except StoreUnavailable as error:
        late = LateStore(open_again, clock, error.message)
    except StoreError as error:
        raise _refuse(error) from error
    readable = None
    with suppress(StoreError):
        readable = _open_store(settings, clock, read_only=True)
    return _build_cache(settings, clock, observer, readable, late)


def _open_store(
    settings: Settings, clock: Callable[[], float], *, read_only: bool = False, timeout: float | None = None
) -> Store | None:
    file = find_store_file(settings.store_url)
    before = _count_bytes(file)
    max_bytes = fitting_bytes(settings, file, before)

    def find_freed() -> int:
        return max(0, fitting_bytes(settings, file, before) - max_bytes)

    seconds = STORE_TIMEOUT if timeout is None else timeout
    options = StoreOptions(clock, max_bytes, seconds, read_only, find_records, find_freed)
    return open_store(settings.store_url, options, store_openers())


def _count_bytes(path: Path | None) -> int:
    with suppress(OSError):
        return path.stat().st_size if path is not None and path.is_file() else 0
    return 0


def describe_left_file(settings: Settings) -> str | None:
    """Why the store is not in the file of `store_url`. None if it is."""
    named, used = read_store_path(settings.store_url), find_store_file(settings.store_url)
    if named == used:
        return None
    return (
        f"{named} is a store of another format than {STORE_FORMAT}, or a database of another program; it is not"
        f" changed, and the store is {used}"
    )


def fitting_bytes(settings: Settings, file: Path | None, before: int | None = None) -> int:
    """The size of the SQLite store: `store_max_bytes`, but at most what it has and half of the free disk.

    `file` is the store. `before` is what it had when it was opened. What it has taken since then counts as free.
    """
    most = settings.store_max_bytes
    folder = None if file is None else next((parent for parent in file.absolute().parents if parent.is_dir()), None)
    if file is None or folder is None:
        return most
    try:
        present = _count_bytes(file)
        first = present if before is None else before
        return max(MIN_STORE_BYTES, min(most, first + (present - first + disk_usage(folder).free) // 2))
    except OSError:
        return most


def _build_cache(
    settings: Settings,
    clock: Callable[[], float],
    observer: Callable[[str], None] | None,
    store: Store | None,
    late: LateStore | None = None,
) -> TieredStore:
    return TieredStore(
        MemoryStore(settings.cache_memory_bytes, clock=clock),
        store,
        clock=clock,
        ceiling=settings.cache_ttl_ceiling,
        observer=observer,
        only_verified=settings.upstream_verify == "always",
        late=late,
    )


def _refuse(error: StoreError) -> ConfigurationError:
    return ConfigurationError(f"the store cannot be opened: {error.message}")
