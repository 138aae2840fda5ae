"""The most requested names are kept in the store, and fetched first when their records are gone."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from app.cache.purges import EVERYTHING, UNKNOWN, scopes_of
from app.cache.purging import POPULAR_NAMES
from app.doi.name import HandleName
from app.errors import BreakerOpen, BudgetSpent, CouldNotVerify, InvalidName, PrefixDenied, UpstreamPaused
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
#: Seconds to wait after a query that was refused or failed, and after a round in which nothing was fetched.
_PAUSE: Final = 1.0
_ROUND_INTERVAL: Final = 60.0
#: How often queries about a name may fail. One that is not sent does not count: during a drill, while the upstream is
#: down or has asked for a pause, and while the budget has no token.
_MOST_TRIES: Final = 3
_NOT_SENT: Final = frozenset((CouldNotVerify, BreakerOpen, UpstreamPaused, BudgetSpent))
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
        #: The names that are left to fetch, since when, and how often each failed. A purge of everything begins again.
        self._names: list[str] = []
        self._began_at = 0.0
        self._tries = Counter[str]()

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
        # Of a purge of everything, each entry is announced.
        await self._core.cache.forget_announced()
        self._began_at = self._clock()
        clock = asyncio.get_running_loop().time
        written_at = due = clock()
        while True:
            if self._names and clock() >= due:
                due = clock() + (0.0 if await self._fetch() else _ROUND_INTERVAL)
            await asyncio.sleep(_LOOK_INTERVAL)
            if (last := self._core.cache.last_purge(EVERYTHING)) > self._last_purge:
                await self._begin_again(last)
                due = clock()
            elif clock() - written_at >= _WRITE_INTERVAL:
                written_at = clock()
                await self._write()

    async def _begin_again(self, last: float) -> None:
        """Make the list of the names that a purge of everything deletes, and wait for its end."""
        self._last_purge = last
        # A purge of everything is announced at its end too. What is left to fetch was looked at before.
        left = frozenset(key for key in self._names if not self._began_at < self._find_purge(key) < last)
        names = list(dict.fromkeys((*self._popular.list(), *self._names)))[:MOST_NAMES]
        self._popular.clear()
        await self._wait_for_purge(names)
        # What this process deletes is missing before its announcement is written and read.
        await self._core.cache.flush()
        await self._core.cache.forget_announced()
        # What was used since it was purged had an entry, whose deletion is announced after the purge of everything has
        # begun. What is read at once counts as of one time.
        self._names = [key for key in names if key in left or not 0.0 < self._find_purge(key) < last]
        self._tries.clear()
        self._began_at = self._clock()

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

    def _find_purge(self, key: str) -> float:
        """When a name was purged, by itself or with its prefix; see TieredStore.last_purge."""
        own, prefix, _ = scopes_of(key)
        return self._core.cache.last_purge(own, prefix)

    async def _wait_for_purge(self, names: Sequence[str]) -> None:
        """Wait until the last of the names is purged. Entries are deleted in the order of their keys.

        A soft purge leaves an entry that is past its TTL.
        """
        for _ in range(_MOST_LOOKS if names else 0):
            entry = await self._core.cache.get(max(names))
            if entry is None or not entry.is_fresh(self._clock()):
                return
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _fetch(self) -> int:
        """Fetch the names that the cache does not have, one after the other. People and their queries go first.

        A name that is purged meanwhile, by itself or with its prefix, is left out. After a failure, the names of its
        prefix are left for the next round: 300 names that hang would hold up the names after them for 45 minutes.
        Returns how many were fetched.
        """
        later, again = list[str](), list[str]()
        failing, fetched = set[str](), 0
        for key in self._names:
            if (prefix := scopes_of(key)[1]) in failing:
                later.append(key)
                continue
            await asyncio.sleep(0)
            match await self._fetch_one(key):
                case "ended":
                    return fetched
                case "fetched":
                    fetched += 1
                case "failed":
                    failing.add(prefix)
                    if self._tries[key] < _MOST_TRIES:
                        again.append(key)
        # A name that failed comes after the other names of its prefix.
        self._names = [*later, *again]
        if fetched:
            log.info("fetched %d of the most requested names again", fetched)
        return fetched

    async def _fetch_one(self, key: str) -> Literal["fetched", "unneeded", "failed", "ended"]:
        """Fetch a name that is missing, and wait after a failure. "ended": a purge of everything has begun."""
        cache = self._core.cache
        if await cache.get(key) is not None:
            return "unneeded"
        # Another process may have purged it.
        await cache.forget_announced()
        if cache.last_purge(EVERYTHING) > self._last_purge:
            return "ended"
        # After the clock was set back, a purge has an earlier time than the beginning. Of more than MAX_PURGES purges,
        # the names are no longer known.
        self._began_at = min(self._began_at, self._clock())
        if max(self._find_purge(key), cache.last_purge(UNKNOWN)) > self._began_at:
            return "unneeded"
        try:
            await self._core.resolver.resolve(HandleName(key), Demand(priority=Priority.BACKGROUND))
        except (InvalidName, PrefixDenied):
            return "unneeded"
        except CouldNotVerify as failure:
            if type(failure) not in _NOT_SENT:
                self._tries[key] += 1
            await asyncio.sleep(_PAUSE)
            return "failed"
        return "fetched"


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
