"""A store that could not be opened when the process started, and is tried again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from app.cache.store import SharedStore
from app.errors import StoreError

log = logging.getLogger(__name__)


class LateStore:
    """Opens a store later. `open_store` raises StoreError while the store cannot be opened."""

    def __init__(self, open_store: Callable[[], SharedStore | None], reason: str) -> None:
        """`reason` says why the store could not be opened at the start."""
        self.reason = reason
        self._open_store = open_store
        self._began = time.monotonic()
        self._logged = ""
        #: Set when the cache uses the store.
        self.used = asyncio.Event()

    async def open(self) -> SharedStore | None:
        """The store, None if it still cannot be opened. Each new reason is logged once."""
        try:
            store = await asyncio.to_thread(self._open_store)
        except StoreError as error:
            self.reason = error.message
            if self.reason != self._logged:
                self._logged = self.reason
                log.error(
                    "%s New records are kept in memory alone; the store is tried again every second.", self.reason
                )
            return None
        log.warning("The store is open after %.0f seconds, and gets the records since.", time.monotonic() - self._began)
        return store
