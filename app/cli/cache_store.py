"""Opens the parts for a command on the cache: little memory, long timeouts, and failures of the store that end it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from app.assembly import UNOBSERVED, Observers, Parts, assemble, open_cache
from app.bulk.source import BulkSource
from app.cache.tiered import TieredStore
from app.errors import ConfigurationError, StoreError
from app.redaction import redact
from app.settings import Settings

#: The memory tier of a command, in bytes: enough for the prefix records that many names share.
MEMORY_BYTES: Final = 8 * 1024 * 1024
#: Seconds a server has to answer: nobody waits for a page here, and answers are large.
STORE_TIMEOUT: Final = 5.0
#: For an upstream question of a bulk job, in seconds.
_PATIENCE: Final = 3_600.0
_SQLITE: Final = "sqlite:///"


def for_command(settings: Settings) -> Settings:
    """The settings of a proxy, for a command on the same store. Raises ConfigurationError for `memory:`."""
    if settings.store_url.startswith("memory:"):
        raise ConfigurationError(
            "--store-url memory: ends with each process; name the store of the proxy, such as sqlite:///path"
        )
    patient = max(settings.store_timeout, STORE_TIMEOUT)
    return settings.model_copy(update={"cache_memory_bytes": MEMORY_BYTES, "store_timeout": patient})


def require_store(settings: Settings) -> None:
    """Raises ConfigurationError if the store is a file that is missing or out of reach. Opening would create one."""
    if not settings.store_url.startswith(_SQLITE):
        return
    store = f"--store-url {redact(settings.store_url)}"
    try:
        Path(settings.store_url.removeprefix(_SQLITE)).stat()
    except FileNotFoundError as error:
        raise ConfigurationError(f"{store}: there is no such file (here: {Path.cwd()})") from error
    except OSError as error:
        raise ConfigurationError(
            f"{store}: cannot be opened: {error.strerror}; run the command as the user of the service"
        ) from error


@asynccontextmanager
async def opened(settings: Settings, *, read_only: bool = False) -> AsyncIterator[TieredStore]:
    """The cache while the body runs; written out at the end. Raises ConfigurationError, StoreError for what failed."""
    with _named(settings):
        cache = open_cache(for_command(settings), read_only=read_only)
    try:
        yield cache
        await cache.flush()
        await cache.check()
    finally:
        await cache.close()


@asynccontextmanager
async def asking(settings: Settings, observers: Observers = UNOBSERVED) -> AsyncIterator[Parts]:
    """A resolver that asks the upstream as a bulk job, while the body runs. Raises as `opened`, and if sealed."""
    if settings.mode == "sealed":
        raise ConfigurationError("--mode sealed: nothing is asked; run this where the upstream can be reached")
    # A stale record is no reason not to wait for the fresh one.
    patience = {"upstream_patience": _PATIENCE, "upstream_recheck": 0.0}
    with _named(settings):
        parts = assemble(
            for_command(settings).model_copy(update=patience), time.time, observers, wrap_source=BulkSource
        )
    async with _closing(parts):
        yield parts


@asynccontextmanager
async def sealed(settings: Settings, observers: Observers = UNOBSERVED) -> AsyncIterator[Parts]:
    """A resolver that knows what the store knows, while the body runs; nothing is written. Raises as `opened`."""
    # Nothing is asked, so that there is no failure to remember.
    quiet = {"mode": "sealed", "upstream_recheck": 0.0}
    with _named(settings):
        parts = assemble(for_command(settings).model_copy(update=quiet), time.time, observers, read_only=True)
    async with _closing(parts):
        yield parts


@asynccontextmanager
async def _closing(parts: Parts) -> AsyncIterator[None]:
    try:
        yield
        await parts.cache.flush()
        await parts.cache.check()
    finally:
        await parts.resolver.close()
        await parts.upstream.source.aclose()
        await parts.cache.close()


@contextmanager
def _named(settings: Settings) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise ConfigurationError(f"--store-url {redact(settings.store_url)}: {error.message}") from error
