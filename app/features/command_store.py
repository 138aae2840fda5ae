"""Opens the store for a command: with little memory and long timeouts. A failure of the store ends the command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from app.assembly.core import SuppliedParts, open_core
from app.assembly.resolving import UNOBSERVED, open_cache
from app.assembly.settings import Settings
from app.cache.tiered import TieredStore
from app.errors import ConfigurationError, StoreError
from app.features.bulk_source import BulkSource
from app.features.feature import Core, Observers
from app.features.redaction import redact

#: Size of the memory tier of a command, in bytes: enough for the prefix records that names share.
MEMORY_BYTES: Final = 8 * 1024 * 1024
#: Timeout of the store, in seconds. It is long because no client waits and answers are large.
STORE_TIMEOUT: Final = 5.0
#: Limit of the wait for an upstream query of a bulk job, in seconds.
_PATIENCE: Final = 3_600.0
_SQLITE: Final = "sqlite:///"


def for_command(settings: Settings) -> Settings:
    """Adapt the settings of a proxy to a command on the same store. Raises ConfigurationError for `memory:`."""
    if settings.store_url.startswith("memory:"):
        raise ConfigurationError(
            "--store-url memory: this store ends with its process; give the store of the proxy, "
            "such as sqlite:///path, or use show, refresh and purge with --server URL"
        )
    patient = max(settings.store_timeout, STORE_TIMEOUT)
    return settings.model_copy(update={"cache_memory_bytes": MEMORY_BYTES, "store_timeout": patient})


def require_store(settings: Settings) -> None:
    """Raise ConfigurationError if the file of the store is missing or out of reach. Opening would create one."""
    if not settings.store_url.startswith(_SQLITE):
        return
    store = f"--store-url {redact(settings.store_url)}"
    try:
        Path(settings.store_url.removeprefix(_SQLITE)).stat()
    except FileNotFoundError as error:
        raise ConfigurationError(f"{store}: there is no such file; the current folder is {Path.cwd()}") from error
    except OSError as error:
        raise ConfigurationError(
            f"{store}: cannot be opened: {error.strerror}; run the command as the user of the service"
        ) from error


@asynccontextmanager
async def open_store(settings: Settings, *, read_only: bool = False) -> AsyncIterator[TieredStore]:
    """Open the cache while the body runs, and flush it at the end. Raises ConfigurationError and StoreError."""
    with _name_store_in_errors(settings):
        cache = open_cache(for_command(settings), read_only=read_only)
    try:
        yield cache
        await cache.flush()
        await cache.check()
    finally:
        await cache.close()


@asynccontextmanager
async def open_online(settings: Settings, observers: Observers = UNOBSERVED) -> AsyncIterator[Core]:
    """Open a resolver that queries the upstream as a bulk job. Raises the errors of `open_store`, also if sealed."""
    if settings.mode == "sealed":
        raise ConfigurationError(
            "--mode sealed: a sealed proxy does not query the upstream; run this command with --mode online"
        )
    # Wait for the fresh record even if there is a stale one.
    patience = {"upstream_stale_timeout": _PATIENCE, "upstream_recheck": 0.0}
    with _name_store_in_errors(settings):
        adapted = for_command(settings).model_copy(update=patience)
        core = open_core(adapted, observers=observers, parts=SuppliedParts(wrap_source=BulkSource))
    async with _close_at_end(core):
        yield core


@asynccontextmanager
async def open_for_batches(settings: Settings, observers: Observers = UNOBSERVED) -> AsyncIterator[Core]:
    """Open a resolver for batches, in any mode, also with the store `memory:`. Raises the errors of `open_store`."""
    if not settings.store_url.startswith("memory:"):
        settings = for_command(settings)
    patience = {"upstream_stale_timeout": _PATIENCE, "upstream_recheck": 0.0}
    with _name_store_in_errors(settings):
        core = open_core(settings.model_copy(update=patience), observers=observers)
    async with _close_at_end(core):
        yield core


@asynccontextmanager
async def open_sealed(settings: Settings, observers: Observers = UNOBSERVED) -> AsyncIterator[Core]:
    """Open a resolver that only reads the store. Raises the errors of `open_store`."""
    # Without queries there are no failures to remember.
    quiet = {"mode": "sealed", "upstream_recheck": 0.0}
    with _name_store_in_errors(settings):
        adapted = for_command(settings).model_copy(update=quiet)
        core = open_core(adapted, observers=observers, read_only=True)
    async with _close_at_end(core):
        yield core


@asynccontextmanager
async def _close_at_end(core: Core) -> AsyncIterator[None]:
    try:
        yield
        await core.cache.flush()
        await core.cache.check()
    finally:
        await core.resolver.close()
        await core.upstream.source.aclose()
        await core.cache.close()


@contextmanager
def _name_store_in_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise ConfigurationError(f"--store-url {redact(settings.store_url)}: {error.message}") from error
