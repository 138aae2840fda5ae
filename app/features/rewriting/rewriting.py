"""Rewrites the entries of a store of an earlier release, beside the requests.

An entry is read in every format that was released, so nothing waits for this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

from app.errors import StoreError
from app.features.store_format import STORE_FORMAT, Rewritable

log = logging.getLogger(__name__)

#: The lease of the process that rewrites. A name has no control characters.
_LEASE: Final = "\trewrite"
#: Seconds for which the lease is taken. If the process is killed, another one continues after them.
_LEASE_SECONDS: Final = 30.0
#: Seconds until the next attempt if another process rewrites, or the store failed.
_RETRY: Final = 10.0
#: Pause between two steps, in times of the step before: the rewriting takes at most a fifth of one processor.
_REST: Final = 4.0
#: Seconds between two lines of progress in the log.
_LOG_INTERVAL: Final = 60.0


async def rewrite_entries(
    find_store: Callable[[], Awaitable[object]], *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> None:
    """Rewrite the entries of earlier releases. Of all processes that share the store, one works at a time."""
    owner = uuid4().hex
    # After a failure it can be another store: one whose file was lost is opened again.
    while isinstance(store := await find_store(), Rewritable):
        try:
            if await store.lease(_LEASE, owner, _LEASE_SECONDS):
                try:
                    await _rewrite_all(store, owner, sleep)
                    return
                finally:
                    await store.release(_LEASE, owner)
        except StoreError as error:
            # The cache reports that the store fails.
            log.debug("The rewriting of entries pauses: %s", error.message)
        await sleep(_RETRY)


async def _rewrite_all(store: Rewritable, owner: str, sleep: Callable[[float], Awaitable[object]]) -> None:
    began_at = renewed_at = logged_at = before = time.monotonic()
    is_first = True
    while (progress := await store.rewrite()) is not None:
        now = time.monotonic()
        if is_first and (progress.rewritten or not progress.is_done):
            log.info("The store has entries of an earlier release. Rewriting them to format %s.", STORE_FORMAT)
            is_first = False
        if progress.is_done:
            if not is_first:
                log.info("The store has format %s: %s, in %.1f seconds.", STORE_FORMAT, progress, now - began_at)
            return
        if now - logged_at >= _LOG_INTERVAL:
            log.info("Rewriting the store to format %s: %s.", STORE_FORMAT, progress)
            logged_at = now
        if now - renewed_at >= _LEASE_SECONDS / 3:
            await store.renew(_LEASE, owner, _LEASE_SECONDS)
            renewed_at = now
        await sleep(_REST * (now - before))
        before = time.monotonic()
