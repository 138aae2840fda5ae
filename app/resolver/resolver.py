"""The driver: takes a name to its answer by the decisions of `resolution`, the cache and the upstream."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from app.cache.entry import Entry
from app.cache.tiered import TieredStore
from app.doi.name import HandleName
from app.errors import CouldNotVerify, ShareSpent, UpstreamTimeout
from app.resolver.failure_memory import FailureMemory
from app.resolver.observer import NoResolutionObserver, ResolutionObserver
from app.resolver.resolution import Origin, Resolution, Step, in_refresh_window, must_confirm, next_step, refresh_from
from app.resolver.single_flight import Overtaken, SingleFlight, shielded
from app.resolver.ttl_policy import TtlPolicy
from app.upstream.source import ClientNetwork, Priority, Question, Source, Waiters

log = logging.getLogger(__name__)

#: Names whose popularity is remembered.
_MOST_REMEMBERED: Final = 10_000
#: Hits inside the refresh window after which a record counts as popular.
_POPULAR_HITS: Final = 3


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things are waited for, in seconds."""

    #: For the upstream, where a stale record could be answered instead (client timeouts are a few seconds).
    upstream: float
    #: Until a name whose question failed is asked again, where a stale record is served meanwhile.
    recheck: float
    #: A lease on one question; as long as a question may take.
    lease: float
    #: Between looks for the answer to a question that another process is asking.
    poll: float


@dataclass(frozen=True, slots=True)
class Demand:
    """How an answer is wanted."""

    authoritative: bool = False
    certified: bool = False
    priority: Priority = Priority.PERSON
    #: The client that upstream questions are charged to.
    client: ClientNetwork = None

    @property
    def bypasses_cache(self) -> bool:
        """Whether what is cached must not be used (it is refreshed on the way back)."""
        return self.authoritative or self.certified


ORDINARY: Final = Demand()


class Resolver:
    """Answers names: from the cache where that is fresh, else from the upstream, else stale, and never with a guess."""

    def __init__(
        self,
        *,
        cache: TieredStore,
        source: Source,
        policy: TtlPolicy,
        clock: Callable[[], float],
        failures: FailureMemory,
        patience: Patience,
        owner: str | None = None,
        observer: ResolutionObserver | None = None,
    ) -> None:
        """`owner` names this process in leases; None where no other process shares the store."""
        self._cache = cache
        self._peek = cache.peek
        self._source = source
        self._policy = policy
        self._clock = clock
        self._patience = patience
        self._owner = owner
        self._observer = observer or NoResolutionObserver()
        self._flights: SingleFlight[Entry] = SingleFlight()
        self._failures = failures
        self._hits: OrderedDict[str, int] = OrderedDict()

    def at_hand(self, name: HandleName) -> Resolution | None:
        """The answer if it is fresh, in memory and not due to be refreshed; to be given by `give`."""
        entry = self._peek(name.key)
        if entry is None or self._clock() >= refresh_from(entry):
            return None
        return Resolution(name, entry, Origin.HIT)

    def give(self, resolution: Resolution) -> Resolution:
        """Count an answer."""
        self._observer.resolved(resolution)
        return resolution

    def peek(self, name: HandleName) -> Resolution | None:
        """The answer if it is at hand, counted; without any waiting."""
        found = self.at_hand(name)
        return None if found is None else self.give(found)

    async def resolve(self, name: HandleName, demand: Demand = ORDINARY) -> Resolution:
        """Answer a name. Raises CouldNotVerify where nothing is known and the upstream could not be asked."""
        try:
            if demand.bypasses_cache:
                return self.give(await self._bypass(name, demand))
            try:
                return self.give(await self._ordinary(name, demand))
            except Overtaken:
                # What overtook is urgent, so that nothing overtakes it.
                return self.give(await self._ordinary(name, demand))
        except CouldNotVerify as failure:
            self._observer.failed(failure.token)
            raise

    async def close(self) -> None:
        """End the questions that are in flight."""
        await self._flights.close()

    async def _ordinary(self, name: HandleName, demand: Demand) -> Resolution:
        entry = await self._cache.get(name.key)
        now = self._clock()
        failure = self._failures.recent(name.key, now, self._patience.recheck)
        popular = demand.priority is Priority.PERSON and entry is not None and self._is_popular(entry, now)
        step = next_step(entry, now, failed_recently=failure is not None, popular=popular)
        if entry is not None and step in (Step.ANSWER, Step.ANSWER_AND_REFRESH):
            if step is Step.ANSWER_AND_REFRESH and failure is None:
                self._refresh_ahead(name, entry)
            return Resolution(name, entry, Origin.HIT)
        if entry is not None and step is Step.ANSWER_STALE:
            return Resolution(name, entry, Origin.STALE, failure)
        if (refusal := self._failures.refusal(name.key, now)) is not None:
            if entry is None or not entry.is_usable(now):
                raise refusal
            return Resolution(name, entry, Origin.STALE, refusal)
        urgent = demand.priority is Priority.PERSON
        task, begun = self._flights.join(
            name.key, lambda waiters: self._ask(name, demand, entry, waiters), urgent=urgent, client=demand.client
        )
        if entry is None or step is Step.ASK:
            return Resolution(name, await shielded(task), Origin.ASKED if begun else Origin.JOINED)
        return await self._ask_with_fallback(name, entry, task, begun)

    async def _ask_with_fallback(
        self, name: HandleName, entry: Entry, task: asyncio.Task[Entry], begun: bool
    ) -> Resolution:
        try:
            fresh = await shielded(task, self._patience.upstream)
        except TimeoutError:
            slow = UpstreamTimeout("The upstream is slow; the question goes on in the background.")
            # Whoever asks next need not wait as long; an answer that comes after all ends this.
            self._failures.remember(name.key, slow, self._clock())
            return Resolution(name, entry, Origin.STALE, slow)
        except CouldNotVerify as failure:
            return Resolution(name, entry, Origin.STALE, failure)
        return Resolution(name, fresh, Origin.RENEWED if begun else Origin.JOINED)

    async def _bypass(self, name: HandleName, demand: Demand) -> Resolution:
        kind = f"{name.key}?auth={demand.authoritative}&cert={demand.certified}"
        task, _ = self._flights.join(kind, lambda waiters: self._refetch(name, demand, waiters), client=demand.client)
        try:
            return Resolution(name, await shielded(task), Origin.BYPASSED)
        except CouldNotVerify as failure:
            known = await self._cache.get(name.key)
            if known is None or not known.is_usable(self._clock()):
                raise
            return Resolution(name, known, Origin.STALE, failure)

    def _refresh_ahead(self, name: HandleName, entry: Entry) -> None:
        background = Demand(priority=Priority.BACKGROUND)
        _, begun = self._flights.join(
            name.key, lambda waiters: self._ask(name, background, entry, waiters), urgent=False
        )
        if begun:
            self._hits.pop(name.key, None)
            self._observer.refreshed_ahead()

    async def _ask(self, name: HandleName, demand: Demand, seen: Entry | None, waiters: Waiters) -> Entry:
        """Ask the upstream, unless another process that shares the store is asking: then take its answer."""
        if self._owner is None:
            return await self._question(name, demand, seen, waiters)
        gives_up = self._clock() + self._patience.lease
        while not await self._cache.lease(name.key, self._owner, self._patience.lease):
            entry = await self._cache.reread(name.key)
            if entry is not None and _is_news(entry, seen):
                return entry
            if self._clock() > gives_up:
                break
            await asyncio.sleep(self._patience.poll)
        try:
            # Between the look into the store and the lease, another process may have asked and released.
            entry = await self._cache.reread(name.key)
            if entry is not None and _is_news(entry, seen) and entry.is_fresh(self._clock()):
                return entry
            return await self._question(name, demand, entry, waiters)
        finally:
            await self._cache.release(name.key, self._owner)

    async def _refetch(self, name: HandleName, demand: Demand, waiters: Waiters) -> Entry:
        return await self._question(name, demand, await self._cache.get(name.key), waiters)

    async def _question(self, name: HandleName, demand: Demand, known: Entry | None, waiters: Waiters) -> Entry:
        """Query the upstream and keep its answer, which replaces the `known` one."""
        try:
            entry = await self._asked(name, demand, waiters)
            if must_confirm(known, entry, self._clock()) and not demand.authoritative:
                entry = await self._asked(name, replace(demand, authoritative=True, certified=False), waiters)
                self._observer.not_found_confirmed(entry.answer.code == 100)
        except ShareSpent:
            # Of the client, not of the name: another client may ask.
            raise
        except CouldNotVerify as failure:
            self._remember_failure(name.key, failure)
            raise
        self._failures.forget(name.key)
        changed = known is not None and known.answer != entry.answer
        await self._cache.put(entry, announce=changed)
        return entry

    async def _asked(self, name: HandleName, demand: Demand, waiters: Waiters) -> Entry:
        leaves = partial(self._flights.asking, name.key)
        answer = await self._source.ask(
            Question(name, demand.authoritative, demand.certified, demand.priority, leaves, waiters)
        )
        return self._policy.entry(name.key, answer, self._clock())

    def _remember_failure(self, key: str, failure: CouldNotVerify) -> None:
        now = self._clock()
        self._failures.remember(key, failure, now)
        if (refusal := self._failures.refusal(key, now)) is not None:
            failure.retry_after = refusal.retry_after

    def _is_popular(self, entry: Entry, now: float) -> bool:
        if not in_refresh_window(entry, now):
            return False
        hits = self._hits[entry.key] = self._hits.get(entry.key, 0) + 1
        while len(self._hits) > _MOST_REMEMBERED:
            self._hits.popitem(last=False)
        return hits >= _POPULAR_HITS


def _is_news(entry: Entry, seen: Entry | None) -> bool:
    # Clocks of several hosts differ, so times are compared for equality only.
    return seen is None or entry.fetched_at != seen.fetched_at
