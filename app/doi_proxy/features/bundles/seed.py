"""Loads the seed: records that are served while the upstream cannot be reached."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.bundles.bundle import Refused, read_bundle
from doi_proxy.system.background import Service
from doi_proxy.system.files import open_regular

log = logging.getLogger(__name__)

#: Refused lines that are logged. Further ones are only counted.
MAX_NAMED: Final = 10
#: Records that are put before the store writes them.
_BATCH: Final = 1_000


class Seed(Service):
    """Puts the records of a bundle into the cache at the start, except names that the cache already has.

    A seed record is expired from the start. It is served only while the upstream cannot be reached. A "not found" is
    served until its own end.
    """

    def __init__(
        self, path: Path, cache: TieredStore, clock: Callable[[], float], grace: float, negative_ttl: float
    ) -> None:
        """For `grace` seconds, a record can be served, and for `negative_ttl` seconds at most, a "not found"."""
        self._path = path
        self._cache = cache
        self._clock = clock
        self._grace = grace
        self._negative_ttl = negative_ttl

    async def start(self) -> None:
        """Load the records."""
        loaded = known = refused = 0
        with open_regular(self._path) as file:
            # Of a record without times, it is not known whether an upstream ever confirmed it.
            for item in read_bundle(file):
                now = self._clock()
                if isinstance(item, Refused):
                    refused += 1
                    if refused <= MAX_NAMED:
                        log.warning("%s, line %s is left out: %s", self._path, item.number, item.reason)
                elif isinstance(item, Entry):
                    entry = await self._cache.get(item.key, newest=True)
                    if entry is not None and entry.is_usable(now) and entry.is_confirmed:
                        known += 1
                        continue
                    await self._cache.put(self._expire(item, now))
                    loaded += 1
                    if loaded % _BATCH == 0:
                        # A store has a bounded queue of writes, and refuses those that come faster than it writes.
                        await self._cache.flush()
        if refused > MAX_NAMED:
            log.warning("%s: %s lines are left out", self._path, refused)
        log.info("%s: %s records loaded, %s were in the cache already", self._path, loaded, known)

    def _expire(self, entry: Entry, now: float) -> Entry:
        fetched_at, ends = min(entry.fetched_at, now), now + self._grace
        if not entry.is_negative:
            return replace(entry, fetched_at=fetched_at, fresh_until=now, stale_until=ends)
        fresh_until = min(entry.fresh_until, now + self._negative_ttl)
        # Of what is missing, only a prefix is kept for longer than it is served; see TtlPolicy.
        stale_until = fresh_until if "/" in entry.key else ends
        return replace(entry, fetched_at=fetched_at, fresh_until=fresh_until, stale_until=stale_until)
