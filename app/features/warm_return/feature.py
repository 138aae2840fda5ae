"""The most requested names are kept in the store, and fetched first when their records are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from app.cache.purges import EVERYTHING, scopes_of
from app.cache.purging import POPULAR_NAMES
from app.doi.name import HandleName
from app.errors import CouldNotVerify, InvalidName
from app.features.feature import Context, Core, Feature, Opened, Service
from app.features.warm_return.popular import MOST_NAMES, PopularNames, read_names, write_names
from app.resolver.demand import Demand
from app.upstream.source import Priority
from app.web.stage import Stage

log = logging.getLogger(__name__)

#: Seconds between two writes of the note, and between two looks for a purge of everything.
_WRITE_INTERVAL: Final = 600.0
_LOOK_INTERVAL: Final = 1.0
#: Looks at a purge that has begun. A store of millions of entries takes minutes.
_MOST_LOOKS: Final = 1_800
#: Seconds to wait after a query that was refused or failed, at least and at most.
_PAUSES: Final = (1.0, 60.0)
#: The level at which nothing is kept about which names are requested.
_NOTHING_KEPT: Final = 3


class CountingStage(Stage):
    """Counts the names of prepared answers."""

    def __init__(self, popular: PopularNames) -> None:
        self._count = popular.count

    def count_name(self, key: str) -> None:
        """See Stage."""
        self._count(key)


class WarmReturn(Service):
    """Keeps the list, and fetches what is missing of it at the start and after a purge of everything."""

    def __init__(self, core: Core, popular: PopularNames, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._popular = popular
        self._last_purge = core.cache.last_purge(EVERYTHING)
        #: The names that are being fetched. A purge of everything in between ends that, and begins it again.
        self._names: list[str] = []

    async def run(self) -> None:
        """Fetch what the store lacks, then follow purges. At the end, keep the names that were counted since."""
        try:
            await self._follow()
        finally:
            # The cache is still open.
            await self._write()

    async def _follow(self) -> None:
        await self._core.cache.wait_for_store()
        self._names = read_names(await self._core.cache.read_note(POPULAR_NAMES))
        await self._fetch()
        clock = asyncio.get_running_loop().time
        written_at = clock()
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            if (last := self._core.cache.last_purge(EVERYTHING)) > self._last_purge:
                self._last_purge = last
                # A purge of everything is announced at its end too. What is left to fetch was looked at before.
                left = frozenset(self._names)
                self._names = list(dict.fromkeys((*self._popular.list(), *self._names)))[:MOST_NAMES]
                self._popular.clear()
                await self._wait_for_purge(self._names)
                # What this process deletes is missing before its announcement is written and read.
                await self._core.cache.flush()
                await self._core.cache.forget_announced()
                self._names = [key for key in self._names if key in left or not self._was_purged_before(key, last)]
                await self._fetch()
            elif clock() - written_at >= _WRITE_INTERVAL:
                written_at = clock()
                await self._write()

    async def _write(self) -> None:
        names = self._popular.list()
        # The list takes 12 ms of processor time, so what follows has a turn of its own.
        await asyncio.sleep(0)
        # A purged name is not in memory, unless it was requested again.
        await self._core.cache.forget_announced()
        peek = self._core.cache.peek
        names = [key for key in names if peek(key) is not None]
        if names:
            await self._core.cache.change_note(POPULAR_NAMES, lambda before: write_names(names, before))

    def _was_purged_before(self, key: str, last: float) -> bool:
        """Whether a name was purged, by itself or with its prefix, before a purge of everything, and not used since.

        What was used since had an entry, whose deletion is announced after the purge of everything has begun. What is
        read at once counts as of one time.
        """
        own, prefix, _ = scopes_of(key)
        return 0.0 < self._core.cache.last_purge(own, prefix) < last

    async def _wait_for_purge(self, names: Sequence[str]) -> None:
        """Wait until the last of the names is purged. Entries are deleted in the order of their keys.

        A soft purge leaves an entry that is past its TTL.
        """
        for _ in range(_MOST_LOOKS if names else 0):
            entry = await self._core.cache.get(max(names))
            if entry is None or not entry.is_fresh(self._clock()):
                return
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _fetch(self) -> None:
        """Fetch the names that the cache does not have, one after the other. People and their queries go first.

        A name that is purged meanwhile, by itself or with its prefix, is left out.
        """
        cache, fetched = self._core.cache, 0
        # Of a purge of everything, each entry is announced.
        await cache.forget_announced()
        began_at = self._clock()
        for key in self._names:
            await asyncio.sleep(0)
            if await cache.get(key) is not None:
                continue
            # Another process may have purged it.
            await cache.forget_announced()
            if cache.last_purge(EVERYTHING) > self._last_purge:
                return
            own, prefix, _ = scopes_of(key)
            if cache.last_purge(own, prefix) > began_at:
                continue
            try:
                await self._core.resolver.resolve(HandleName(key), Demand(priority=Priority.BACKGROUND))
                fetched += 1
            except InvalidName:
                continue
            except CouldNotVerify as failure:
                least, most = _PAUSES
                await asyncio.sleep(min(max(failure.retry_after or least, least), most))
        self._names = []
        if fetched:
            log.info("fetched %d of the most requested names again", fetched)


class Forgetting(Service):
    """Deletes the list of an earlier privacy level."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def run(self) -> None:
        """Delete it once, and end."""
        await self._core.cache.wait_for_store()
        if await self._core.cache.read_note(POPULAR_NAMES):
            await self._core.cache.change_note(POPULAR_NAMES, lambda _: b"")


def open_warm_return(context: Context) -> Opened:
    """The count and the service, or what deletes the list."""
    if context.facts.privacy_level == _NOTHING_KEPT:
        return Opened(services=(Forgetting(context.core),))
    if context.facts.mode == "sealed":
        return Opened()
    popular = PopularNames()
    return Opened(stages=(CountingStage(popular),), services=(WarmReturn(context.core, popular, context.clock),))


FEATURE: Final = Feature(
    "warm_return",
    "the most requested names, which are fetched first after a purge",
    open=open_warm_return,
)
