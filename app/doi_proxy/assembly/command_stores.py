"""Opens the store for a command: with little memory and long timeouts. A failure of the store ends the command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from doi_proxy.assembly.core import describe_left_file, open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.store.url import find_store_file
from doi_proxy.system.options import redact

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core, Observers
    from doi_proxy.upstream.source import Source

#: Size of the memory tier of a command, in bytes: enough for the prefix records that names share.
MEMORY_BYTES: Final = 8 * 1024 * 1024
#: Timeout of the store, in seconds. It is long because no client waits and answers are large.
STORE_TIMEOUT: Final = 5.0
#: The share of the upstream's budget that a command takes beside a service.
_SHARE: Final = 0.5


class CommandStores:
    """See doi_proxy.features.command.Stores."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def require(self) -> None:
        """See Stores."""
        file = find_store_file(self._settings.store_url)
        if file is None:
            return
        store = f"--store-url {redact(self._settings.store_url)}"
        try:
            file.stat()
        except FileNotFoundError as error:
            left = describe_left_file(self._settings)
            problem = "this file does not exist" if left is None else f"{left}, which does not exist"
            raise ConfigurationError(f"{store}: {problem}; the current folder is {Path.cwd()}") from error
        except OSError as error:
            raise ConfigurationError(
                f"{store}: cannot be opened: {error.strerror}; run the command as the user of the service"
            ) from error

    @asynccontextmanager
    async def open(self, *, read_only: bool = False) -> AsyncIterator[TieredStore]:
        """See Stores."""
        with self._name_store_in_errors():
            cache = open_cache(self._for_command(), read_only=read_only, timeout=STORE_TIMEOUT)
        try:
            yield cache
            await cache.flush()
            await cache.check()
        finally:
            await cache.close()

    @asynccontextmanager
    async def open_online(self, observers: Observers | None = None) -> AsyncIterator[Core]:
        """See Stores."""
        if self._settings.mode == "sealed":
            raise ConfigurationError(
                "--mode sealed: a sealed proxy does not query the upstream; run this command with --mode online"
            )
        from doi_proxy.upstream.source import BulkSource  # noqa: PLC0415 - see _open

        async with self._open(self._for_command(), observers, BulkSource) as core:
            yield core

    @asynccontextmanager
    async def open_sealed(self, observers: Observers | None = None) -> AsyncIterator[Core]:
        """See Stores."""
        async with self._open(self._for_command({"mode": "sealed"}), observers, read_only=True) as core:
            yield core

    @asynccontextmanager
    async def open_for_lists(self, observers: Observers | None = None) -> AsyncIterator[Core]:
        """See Stores."""
        is_memory = self._settings.store_url.startswith("memory:")
        async with self._open(self._settings if is_memory else self._for_command(), observers) as core:
            yield core

    @asynccontextmanager
    async def open_as_service(self) -> AsyncIterator[Core]:
        """See Stores."""
        memory = min(self._settings.cache_memory_bytes, MEMORY_BYTES)
        async with self._open(
            self._settings.model_copy(update={"cache_memory_bytes": memory}), is_service=True
        ) as core:
            yield core

    def _for_command(self, changes: dict[str, Any] | None = None) -> Settings:
        """The settings of a proxy, for a command on the same store. Raises ConfigurationError for `memory:`."""
        settings = self._settings
        if settings.store_url.startswith("memory:"):
            raise ConfigurationError(
                "--store-url memory: this store ends with its process; give the store of the proxy, "
                "such as sqlite:///path, or use show, refresh and purge with --server URL"
            )
        return settings.model_copy(update={"cache_memory_bytes": MEMORY_BYTES} | (changes or {}))

    @asynccontextmanager
    async def _open(
        self,
        settings: Settings,
        observers: Observers | None = None,
        wrap_source: Callable[[Source], Source] | None = None,
        *,
        read_only: bool = False,
        is_service: bool = False,
    ) -> AsyncIterator[Core]:
        """The core with the timeouts of a command, whose store must not fail; or as it `is_service`."""
        # A command that only reads the store needs no upstream and no feature, whose import takes a second.
        from doi_proxy.assembly.core import (  # noqa: PLC0415
            UNOBSERVED,
            SuppliedParts,
            open_core,
            read_resolver_timeouts,
        )

        if not settings.store_url.startswith("memory:"):
            # A service with this store may query the upstream too, which is to see one client.
            rate, burst = settings.upstream_rate, settings.upstream_burst
            share = {"upstream_rate": rate * _SHARE, "upstream_burst": max(1.0, burst * _SHARE)}
            settings = settings.model_copy(update=share)
        observers = observers or UNOBSERVED
        parts = SuppliedParts(wrap_source=wrap_source)
        with self._name_store_in_errors():
            if not is_service:
                cache = open_cache(settings, observer=observers.store, read_only=read_only, timeout=STORE_TIMEOUT)
                # Seconds that a command waits for the fresh record even if there is a stale one.
                timeouts = replace(read_resolver_timeouts(), upstream=3_600.0, recheck=0.0)
                parts = replace(parts, cache=cache, timeouts=timeouts)
            core = open_core(settings, observers=observers, parts=parts, read_only=read_only)
        try:
            yield core
            await core.cache.flush()
            if not is_service:
                await core.cache.check()
        finally:
            await core.resolver.close()
            await core.upstream.source.aclose()
            await core.cache.close()

    @contextmanager
    def _name_store_in_errors(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise ConfigurationError(f"--store-url {redact(self._settings.store_url)}: {error.message}") from error
