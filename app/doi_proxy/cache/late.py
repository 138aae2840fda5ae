"""A store that cannot be used now, and is opened again: at the start, or after its file was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from doi_proxy.cache.store import Store
from doi_proxy.errors import StoreError
from doi_proxy.system.incidents import Cause, Incidents

log = logging.getLogger(__name__)


class LateStore:
    """Opens a store later. `open_store` raises StoreError while the store cannot be opened."""

    def __init__(self, open_store: Callable[[], Store | None], clock: Callable[[], float], reason: str = "") -> None:
        """`reason` says why the store could not be opened at the start. Without one, it is open.

        `clock` gives seconds since the epoch.
        """
        self.reason = reason
        self._open_store = open_store
        self._clock = clock
        self._began = clock()
        #: The failures of the store that are logged.
        self.incidents = Incidents("store")
        #: The last reason that was logged. Empty if no failure is logged.
        self._logged = ""
        #: Set while the cache uses the store.
        self.used = asyncio.Event()
        if not reason:
            self.used.set()

    def lose(self, error: StoreError) -> None:
        """The open store cannot be used any more."""
        self.reason = self._logged = error.message
        self._began = self._clock()
        self.incidents.begin(self._began, Cause(error.cause))
        self.used.clear()
        log.error("%s", error.message)

    async def open(self) -> Store | None:
        """The store, None if it still cannot be opened. Each new reason is logged once."""
        try:
            store = await asyncio.to_thread(self._open_store)
        except StoreError as error:
            self.reason = error.message
            if self.incidents.under_way is None:
                self.incidents.begin(self._began, Cause(error.cause))
            if self.reason != self._logged:
                self._logged = self.reason
                log.error(
                    "%s New records are kept in memory alone; the store is tried again every second.", self.reason
                )
            return None
        if self._logged:
            seconds = max(0.0, self._clock() - self._began)
            log.warning("The store is open after %.0f seconds, and gets the records that were kept in memory.", seconds)
            self.incidents.end(self._clock())
        self._logged = ""
        return store

    async def replace(self, before: Store | None) -> None:
        """The cache uses the store. Close the one that it used before."""
        self.used.set()
        if before is not None:
            with suppress(StoreError):
                await before.close()
