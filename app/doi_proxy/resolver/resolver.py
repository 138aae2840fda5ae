"""Answers names from the cache and the upstream. The module `resolution` has the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from cachetools import LRUCache

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify, NotAdmitted, NotCached, NotInBundle, PrefixDenied
from doi_proxy.resolver.fetcher import FailureMemory, Fetcher, ResolverOptions, SingleFlight, await_shielded
from doi_proxy.resolver.resolution import (
    HIT,
    ORDINARY,
    REGISTRY,
    Conditions,
    LocalAnswers,
    Origin,
    Resolution,
    ResolutionObserver,
    Step,
    is_too_stale,
    next_step,
    proves,
    read_record,
    refresh_from,
    renewal_origin,
    stale_origin,
)
from doi_proxy.upstream.guard import find_last_answer, find_refusal
from doi_proxy.upstream.source import Priority, Refusal, SealedSource, Source

#: Names whose hits are counted.
_MAX_REMEMBERED: Final = 10_000
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
        self.cache = cache
        self.peek = cache.memory.peek_with_records
        self._clock = clock
        self._timeouts = options.timeouts
        self._source = source
        self.observer = observer or ResolutionObserver()
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

    def resolve_now(self, name: HandleName, *, only_cached: bool = False) -> Resolution | None:
        """The answer of `resolve`, if it takes neither a query nor a task. `count_answer` counts it if it is used.

        It is the operator's record, a fresh record that is not due for a refresh, or any usable one of memory while no
        query is sent about it. Memory has it, or a store that is read without a task. With `only_cached` it may be a
        registry record, of which no instance can have got a newer one from the upstream.
        """
        if self.local_records is not None:
            try:
                local = self.local_records.resolve(name, self._clock())
            except PrefixDenied:
                return None  # `resolve` raises it
            if local is not None:
                return local
        entry = self.cache.peek(name.key) or self.cache.get_now(name.key)
        if entry is not None and only_cached and entry.agency is not None:
            return Resolution(name, entry, REGISTRY, self._sealed)
        return None if entry is None else self._answer_without_query(name, entry)

    def _answer_without_query(self, name: HandleName, entry: Entry) -> Resolution | None:
        now = self._clock()
        if now < refresh_from(entry):
            return Resolution(name, entry, HIT)
        reason = self.find_recent_failure(name, now)
        if reason is None and entry.agency is not None:
            reason = self._sealed  # only an import changes a file's record, and announces that
        if reason is None or not entry.is_usable(now):
            return None
        if entry.is_fresh(now):
            return Resolution(name, entry, HIT)
        return Resolution(name, entry, stale_origin(entry), reason)

    def is_local(self, name: HandleName) -> bool:
        """Whether a local record answers or denies a name, in place of the cache."""
        try:
            return self.local_records is not None and self.local_records.resolve(name, self._clock()) is not None
        except PrefixDenied:
            return True

    def find_recent_failure(self, name: HandleName, now: float) -> CouldNotVerify | None:
        """The failure of the last query about a name, while a record is served without another query."""
        last_answer = partial(find_last_answer, self._source, name)
        return self.failures.find_recent(name.key, now, self._timeouts.recheck, last_answer)

    def count_answer(self, resolution: Resolution) -> Resolution:
        """Count an answer, and return it."""
        self.observer.record_resolution(resolution)
        return resolution

    async def resolve(self, name: HandleName, conditions: Conditions = ORDINARY) -> Resolution:
        """Answer a name. Raises CouldNotVerify if the cache has no answer and the upstream gives none.

        It raises the failure of the upstream too if the stale record is older than the caller accepts.
        """
        found = self.resolve_now(name) if conditions.are_ordinary else None
        if found is None:
            try:
                found = await self._find(name, conditions)
                if found.failure is not None and is_too_stale(found.entry, self._clock(), conditions):
                    raise found.failure.without_traceback()
            except CouldNotVerify as failure:
                self.observer.record_failure(failure.token)
                raise
        self.observer.record_resolution(found)
        if len(found.entry.answer.values) > MAX_BYTES_NOW:
            read_record(found.entry.answer.values)
            await asyncio.sleep(0)
        return found

    async def recall_absence(self, name: HandleName) -> Resolution | None:
        """The last "not found" about a name that cannot be verified now. None if the cache has none.

        It does not say that the name does not exist.
        """
        # `resolve` has just read the store, and memory has what it found.
        entry = self.cache.peek(name.key) or await self.cache.get(name.key)
        if entry is not None and entry.is_negative and entry.is_kept(self._clock()):
            return Resolution(name, entry, Origin.STALE)
        return None

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

    async def _find(self, name: HandleName, conditions: Conditions) -> Resolution:
        local = None if self.local_records is None else self.local_records.resolve(name, self._clock())
        if local is not None:
            return local
        if conditions.authoritative or conditions.certified:
            return await self._resolve_past_cache(name, conditions)
        entry, now = await self.cache.find(name.key), self._clock()
        if conditions.only_cached:
            return _answer_cached(name, entry, conditions.max_age, now)
        if entry is not None and conditions.max_age is None and now < refresh_from(entry):
            return Resolution(name, entry, HIT)
        failure = self.find_recent_failure(name, now) or self._sealed
        step = next_step(entry, now, conditions, has_failed=failure is not None)
        if step is Step.RENEW:
            step = Step.FETCH_WITH_FALLBACK if conditions.may_renew() else Step.ANSWER
        if entry is None or step in (Step.FETCH, Step.FETCH_WITH_FALLBACK):
            return await self._query(name, entry, step, conditions)
        if step is Step.ANSWER_STALE:
            if self._sealed is not None and failure is self._sealed:
                # Memory answers alone for a while. Another process can have changed the store after that.
                self.failures.remember(name.key, failure, now)
            return Resolution(name, entry, stale_origin(entry), failure)
        if failure is None and conditions.priority is Priority.PERSON and self._is_popular(entry, now):
            self._refresh_ahead(name, entry)
        return Resolution(name, entry, HIT)

    async def _query(self, name: HandleName, entry: Entry | None, step: Step, conditions: Conditions) -> Resolution:
        """The answer of the upstream; a stale `entry` if there is a usable one, and the upstream fails or is slow."""
        now = self._clock()
        usable = entry if step is Step.FETCH_WITH_FALLBACK else None
        if (refusal := self.failures.find_refusal(name.key, now)) is not None:
            if usable is None:
                raise refusal
            return Resolution(name, usable, stale_origin(usable), refusal)
        urgent = conditions.priority is Priority.PERSON
        task, is_new = self._flights.join(
            name.key, partial(self._fetcher.fetch, name, conditions, entry), urgent=urgent, client=conditions.client
        )
        if usable is None:
            try:
                fetched = await self._flights.wait(name.key, task, conditions.due)
            except NotAdmitted:
                # The query waited in the line of the client that asked first. Another client has a line of its own.
                if is_new or not task.done():
                    raise
                return await self._query(name, entry, step, conditions)
            return Resolution(name, fetched, Origin.ASKED if is_new else Origin.JOINED)
        renewed = Origin.RELOADED if usable.is_fresh(now) else renewal_origin(usable)
        return await self._await_or_answer_stale(
            name, usable, task, renewed if is_new else Origin.JOINED, conditions.due
        )

    async def _await_or_answer_stale(
        self, name: HandleName, entry: Entry, task: asyncio.Task[Entry], origin: Origin, due: float | None
    ) -> Resolution:
        until = asyncio.get_running_loop().time() + self._timeouts.upstream
        try:
            fresh = await await_shielded(task, until if due is None else min(until, due))
        except TimeoutError:
            slow = self._flights.explain_delay(name.key)
            # The next request does not wait as long. A late answer of the upstream ends this.
            self.failures.remember(name.key, slow, self._clock())
            return Resolution(name, entry, stale_origin(entry), slow)
        except CouldNotVerify as failure:
            return Resolution(name, entry, stale_origin(entry), failure.without_traceback())
        return Resolution(name, fresh, origin)

    async def _resolve_past_cache(self, name: HandleName, conditions: Conditions) -> Resolution:
        needs_signature = conditions.certified and self.options.verification != "never"
        if needs_signature and not conditions.authoritative:
            proven = await self._find_proof(name.key, conditions)
            if proven is not None:
                return Resolution(name, proven, Origin.HIT)
        if conditions.only_cached:
            raise NotCached
        conditions.admit_bypass()
        kind = f"{name.key}?auth={conditions.authoritative}&cert={conditions.certified}"
        fetch = partial(self._fetcher.fetch, name, conditions, await self.cache.find(name.key))
        task, _ = self._flights.join(kind, fetch, client=conditions.client)
        try:
            return Resolution(name, await self._flights.wait(kind, task, conditions.due), Origin.BYPASSED)
        except CouldNotVerify as failure:
            known = await self.cache.find(name.key)
            if known is None or not known.is_usable(self._clock()):
                raise
            if needs_signature and not known.answer.is_verified:
                raise  # what nobody signed is not the answer to `cert`
            return Resolution(name, known, stale_origin(known), failure.without_traceback())

    async def _find_proof(self, key: str, conditions: Conditions) -> Entry | None:
        """A fresh entry that a signature proves: of memory, or of another process."""
        entry = self.cache.peek(key)
        if not proves(entry, self._clock(), conditions.max_age):
            entry = await self.cache.get(key, newest=True)
        return entry if proves(entry, self._clock(), conditions.max_age) else None

    def _refresh_ahead(self, name: HandleName, entry: Entry) -> None:
        background = Conditions(priority=Priority.BULK)
        _, is_new = self._flights.join(name.key, partial(self._fetcher.fetch, name, background, entry), urgent=False)
        if is_new:
            self._hits.pop(name.key, None)
            self.observer.record_refresh()

    def _is_popular(self, entry: Entry, now: float) -> bool:
        if now < refresh_from(entry):
            return False
        hits = self._hits[entry.key] = self._hits.get(entry.key, 0) + 1
        return hits >= _POPULAR_HITS


def _answer_cached(name: HandleName, entry: Entry | None, max_age: float | None, now: float) -> Resolution:
    """The answer of the cache alone. Raises NotCached if it has none, or one that is older than `max_age`."""
    if entry is None or not entry.is_usable(now) or (max_age is not None and now - entry.fetched_at > max_age):
        raise NotCached
    return Resolution(name, entry, HIT if entry.is_fresh(now) else stale_origin(entry))
