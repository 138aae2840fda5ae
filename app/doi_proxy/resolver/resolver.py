"""Answers names from the cache and the upstream. The module `resolution` has the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from cachetools import LRUCache

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify, NotCached, NotInBundle, PrefixDenied, UpstreamTimeout
from doi_proxy.resolver.demand import ORDINARY, Demand
from doi_proxy.resolver.failure_memory import FailureMemory
from doi_proxy.resolver.fetcher import Fetcher, ResolverOptions
from doi_proxy.resolver.local_answers import LocalAnswers
from doi_proxy.resolver.observer import ResolutionObserver
from doi_proxy.resolver.proof import proves
from doi_proxy.resolver.resolution import (
    HIT,
    REGISTRY,
    Origin,
    Resolution,
    Step,
    next_step,
    refresh_from,
    renewal_origin,
    stale_origin,
)
from doi_proxy.resolver.single_flight import Replaced, SingleFlight, await_shielded
from doi_proxy.upstream.local import SealedSource
from doi_proxy.upstream.routed import find_refusal
from doi_proxy.upstream.source import Priority, Refusal, Source
from handle_protocol.record import parse_record

#: Names whose hits are counted.
_MAX_REMEMBERED: Final = 10_000
#: Seconds for which a copy of a registry record is used without reading the store, while the upstream fails. Clients
#: keep such an answer as long.
REGISTRY_SECONDS: Final = 30.0
#: Hits inside the refresh window after which a record counts as popular.
_POPULAR_HITS: Final = 3
#: JSON of the values of a record, in bytes. A larger record is parsed in a turn of the event loop of its own.
MAX_BYTES_NOW: Final = 16_384


class Resolver:
    """Answers names with a fresh record of the cache, else from the upstream, else with a stale record."""

    def __init__(
        self,
        cache: TieredStore,
        source: Source,
        clock: Callable[[], float],
        *,
        options: ResolverOptions,
        failures: FailureMemory,
        observer: ResolutionObserver | None = None,
    ) -> None:
        self._cache = cache
        self.peek = cache.peek
        self._clock = clock
        self._timeouts = options.timeouts
        self._source = source
        self.observer = observer or ResolutionObserver()
        self._verification = options.verification
        self._flights: SingleFlight[Entry] = SingleFlight()
        #: The queries that failed. They are not repeated for a time.
        self.failures = failures
        self.options = options
        self._fetcher = Fetcher(cache, source, clock, options=options, failures=failures, observer=self.observer)
        #: Why no query is sent, if none ever is.
        self._sealed = NotInBundle() if isinstance(source, SealedSource) else None
        self._hits: LRUCache[str, int] = LRUCache(_MAX_REMEMBERED)
        #: The operator's records, which win over the cache and the upstream. None if there are none.
        self.local_records: LocalAnswers | None = None

    def find_fresh(self, name: HandleName) -> Resolution | None:
        """The answer of `resolve` if memory has it: a fresh one that is not due for a refresh, or a registry record.

        `count_answer` counts it if it is used.
        """
        if self.local_records is not None:
            try:
                local = self.local_records.resolve(name, self._clock())
            except PrefixDenied:
                return None  # `resolve` raises it
            if local is not None:
                return local
        entry = self.peek(name.key)
        return None if entry is None else self._answer_with(name, entry)

    def find_stored(self, name: HandleName) -> Resolution | None:
        """Like `find_fresh`, with what the store has, if reading it takes no task."""
        found = self.find_fresh(name)
        if found is not None or (entry := self._cache.load(name.key)) is None or self.is_local(name):
            return found
        return self._answer_with(name, entry)

    def is_local(self, name: HandleName) -> bool:
        """Whether a local record answers or denies a name, in place of the cache."""
        try:
            return self.local_records is not None and self.local_records.resolve(name, self._clock()) is not None
        except PrefixDenied:
            return True

    def _answer_with(self, name: HandleName, entry: Entry) -> Resolution | None:
        """The answer with an entry of the cache, if no query is needed."""
        now = self._clock()
        if now >= refresh_from(entry):
            return None if entry.is_confirmed else self._find_registry(name, entry, now)
        return Resolution(name, entry, HIT)

    def _find_registry(self, name: HandleName, copy: Entry, now: float) -> Resolution | None:
        """A registry record of memory, while no upstream would be queried about its name."""
        if not self.is_current_copy(copy):
            return None
        if self._sealed is not None:
            return Resolution(name, copy, REGISTRY, self._sealed)
        failure = self.find_recent_failure(name, now)
        # Another process may have an answer of the upstream, and its announcement may be lost.
        if failure is None or not copy.was_read_within(REGISTRY_SECONDS, now):
            return None
        return Resolution(name, copy, REGISTRY, failure)

    def find_recent_failure(self, name: HandleName, now: float) -> CouldNotVerify | None:
        """The failure of the last query about a name, while a record is served without another query."""
        return self.failures.find_recent(name.key, now, self._timeouts.recheck)

    def is_current_copy(self, entry: Entry) -> bool:
        """Whether an entry of memory is a copy of a registry record, and none has changed since it was read."""
        return entry.is_copy_of(self._cache.edition)

    def count_answer(self, resolution: Resolution) -> Resolution:
        """Count an answer, and return it."""
        self.observer.record_resolution(resolution)
        return resolution

    async def recall(self, name: HandleName) -> Resolution | None:
        """Like `find_fresh`, and look in the store too. The answer is not counted."""
        entry = await self._cache.get(name.key)
        if entry is not None and entry.is_fresh(self._clock()):
            self._cache.memory.keep(entry)  # the caller looks there again
        return self.find_fresh(name)

    async def resolve(self, name: HandleName, demand: Demand = ORDINARY) -> Resolution:
        """Answer a name. Raises CouldNotVerify if the cache has no answer and the upstream gives none."""
        found = await self._resolve(name, demand)
        if len(found.entry.answer.values) > MAX_BYTES_NOW:
            parse_record(found.entry.answer.values)
            await asyncio.sleep(0)
        return found

    async def _resolve(self, name: HandleName, demand: Demand, *, is_repeated: bool = False) -> Resolution:
        try:
            if self.local_records is not None:
                local = self.local_records.resolve(name, self._clock())
                if local is not None:
                    return self.count_answer(local)
            if demand.authoritative or demand.certified:
                past = await self._resolve_past_cache(name, demand)
                _refuse_too_stale(past, demand, self._clock())
                return self.count_answer(past)
            if demand.only_cached:
                return self.count_answer(await self._resolve_from_cache(name, demand))
            try:
                found = await self._resolve_with_cache(name, demand)
            except Replaced:
                # The replacement is urgent and cannot be replaced itself, so one retry is enough.
                found = await self._resolve_with_cache(name, demand)
            _refuse_too_stale(found, demand, self._clock())
            return self.count_answer(found)
        except CouldNotVerify as failure:
            if self._cache.is_patient and not is_repeated and await self._cache.read_late(name.key):
                # A bypass was charged before its query failed.
                return await self._resolve(name, replace(demand, admit_bypass=ORDINARY.admit_bypass), is_repeated=True)
            self.observer.record_failure(failure.token)
            raise

    def find_refusal(self, name: HandleName) -> Refusal | None:
        """Who refuses a query about a name now, why, and for how long. None if one would be sent."""
        now = self._clock()
        try:
            if self.local_records is not None:
                self.local_records.resolve(name, now)
        except PrefixDenied as denied:
            return Refusal("local record", denied.token, inf)
        if (failure := self.failures.find_refusal(name.key, now)) is not None:
            return Refusal("failure", failure.token, failure.retry_after or 0.0)
        return find_refusal(self._source, name)

    async def close(self) -> None:
        """Cancel the queries in flight."""
        await self._flights.close()
        await self._fetcher.close()

    async def _resolve_from_cache(self, name: HandleName, demand: Demand) -> Resolution:
        entry, now = await self._cache.get(name.key), self._clock()
        if entry is None or not entry.is_usable(now):
            raise NotCached
        if demand.max_age is not None and now - entry.fetched_at > demand.max_age:
            raise NotCached
        return Resolution(name, entry, Origin.HIT if entry.is_fresh(now) else stale_origin(entry))

    async def _resolve_with_cache(self, name: HandleName, demand: Demand) -> Resolution:
        entry = await self._cache.get(name.key)
        now = self._clock()
        if entry is not None and demand.max_age is None and now < refresh_from(entry):
            return Resolution(name, entry, HIT)
        failure = self.find_recent_failure(name, now)
        popular = demand.priority is Priority.PERSON and entry is not None and self._is_popular(entry, now)
        no_query = failure or self._sealed
        step = next_step(entry, now, failed_recently=no_query is not None, popular=popular)
        must_renew = entry is not None and failure is None and self._must_renew(entry, now, step, demand)
        if entry is not None and step in (Step.ANSWER, Step.ANSWER_AND_REFRESH) and not must_renew:
            if step is Step.ANSWER_AND_REFRESH and failure is None:
                self._refresh_ahead(name, entry)
            return Resolution(name, entry, HIT)
        if entry is not None and (step is Step.ANSWER_STALE or _is_stale_enough(entry, now, demand)):
            return Resolution(name, entry, stale_origin(entry), no_query)
        if (refusal := self.failures.find_refusal(name.key, now)) is not None:
            if entry is None or not entry.is_usable(now):
                raise refusal
            return Resolution(name, entry, stale_origin(entry), refusal)
        urgent = demand.priority is Priority.PERSON
        task, is_new = self._flights.join(
            name.key, partial(self._fetcher.fetch, name, demand, entry), urgent=urgent, client=demand.client
        )
        if entry is None or step is Step.FETCH:
            fetched = await self._flights.wait(name.key, task, demand.due)
            return Resolution(name, fetched, Origin.ASKED if is_new else Origin.JOINED)
        renewed = Origin.RELOADED if must_renew else renewal_origin(entry)
        return await self._await_or_answer_stale(name, entry, task, renewed if is_new else Origin.JOINED, demand.due)

    def _must_renew(self, entry: Entry, now: float, step: Step, demand: Demand) -> bool:
        """Whether a fresh record is too old for the caller, and may be fetched again."""
        if demand.max_age is None or step not in (Step.ANSWER, Step.ANSWER_AND_REFRESH):
            return False
        return now - entry.fetched_at > demand.max_age and demand.may_renew()

    async def _await_or_answer_stale(
        self, name: HandleName, entry: Entry, task: asyncio.Task[Entry], origin: Origin, due: float | None
    ) -> Resolution:
        until = asyncio.get_running_loop().time() + self._timeouts.upstream
        try:
            fresh = await await_shielded(task, until if due is None else min(until, due))
        except TimeoutError:
            slow = UpstreamTimeout("The upstream is slow. The query continues in the background.")
            # The next request does not wait as long. A late answer of the upstream ends this.
            self.failures.remember(name.key, slow, self._clock())
            return Resolution(name, entry, stale_origin(entry), slow)
        except CouldNotVerify as failure:
            return Resolution(name, entry, stale_origin(entry), failure)
        return Resolution(name, fresh, origin)

    async def _resolve_past_cache(self, name: HandleName, demand: Demand) -> Resolution:
        if demand.certified and not demand.authoritative and self._verification != "never":
            proven = await self._find_proof(name.key, demand)
            if proven is not None:
                return Resolution(name, proven, Origin.HIT)
        if demand.only_cached:
            raise NotCached
        demand.admit_bypass()
        kind = f"{name.key}?auth={demand.authoritative}&cert={demand.certified}"
        task, _ = self._flights.join(kind, partial(self._fetcher.refetch, name, demand), client=demand.client)
        try:
            return Resolution(name, await self._flights.wait(kind, task, demand.due), Origin.BYPASSED)
        except CouldNotVerify as failure:
            known = await self._cache.get(name.key)
            if known is None or not known.is_usable(self._clock()):
                raise
            return Resolution(name, known, stale_origin(known), failure)

    async def _find_proof(self, key: str, demand: Demand) -> Entry | None:
        """A fresh entry that a signature proves: of memory, or of another process."""
        entry = self.peek(key)
        if not proves(entry, self._clock(), demand.max_age):
            entry = await self._cache.reread(key)
        return entry if proves(entry, self._clock(), demand.max_age) else None

    def _refresh_ahead(self, name: HandleName, entry: Entry) -> None:
        background = Demand(priority=Priority.BACKGROUND)
        _, is_new = self._flights.join(name.key, partial(self._fetcher.fetch, name, background, entry), urgent=False)
        if is_new:
            self._hits.pop(name.key, None)
            self.observer.record_refresh()

    def _is_popular(self, entry: Entry, now: float) -> bool:
        if now < refresh_from(entry):
            return False
        hits = self._hits[entry.key] = self._hits.get(entry.key, 0) + 1
        return hits >= _POPULAR_HITS


def _is_stale_enough(entry: Entry, now: float, demand: Demand) -> bool:
    """Whether the caller accepts a stale record without a query."""
    if demand.max_stale is None or entry.is_fresh(now) or not entry.is_usable(now):
        return False
    return now - entry.fresh_until <= demand.max_stale


def _refuse_too_stale(found: Resolution, demand: Demand, now: float) -> None:
    """Raise the failure of the upstream if the stale record is older than the caller accepts."""
    past = now - found.entry.fresh_until
    if found.failure is not None and past > max(demand.stale_if_error, demand.max_stale or 0.0):
        raise found.failure
