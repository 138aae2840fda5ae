"""Queries the upstream about one name at a time, stores its answer, and remembers its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from cachetools import FIFOCache
from msgspec import structs

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import (
    BreakerOpen,
    CouldNotVerify,
    NotAdmitted,
    ResourcesShort,
    ShareSpent,
    UnprovenAnswer,
    UpstreamPaused,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from doi_proxy.resolver.resolution import Conditions, ResolutionObserver, TtlPolicy, must_confirm
from doi_proxy.upstream.budget import SLOW_AFTER
from doi_proxy.upstream.source import ClientNetwork, QueryWait, Source, UpstreamQuery, Verification

#: The failures that say nothing about the name: its query reached no server, or was not sent.
_GENERAL: Final = (UpstreamUnreachable, BreakerOpen, UpstreamPaused)
#: The failures of this process: the next query may be sent, and another process may have the answer.
_OWN: Final = (NotAdmitted, ResourcesShort)
#: Bytes of an entry without its key: the slot of the map, the entry, its times and the copy of the error.
ENTRY_BYTES: Final = 700


@dataclass(frozen=True, slots=True)
class _Failure:
    at: float
    until: float
    error: CouldNotVerify
    #: Bytes of the entry and its key.
    size: int


class FailureMemory:
    """Failures by key, at most `max_bytes` of them. The oldest are evicted first. Times are in seconds.

    A failure that concerns only its name is answered for `ttl` seconds. If the upstream refuses one name with
    `Retry-After`, that refusal is answered for the requested time, at most `most` seconds.
    """

    def __init__(self, *, ttl: float, most: float, max_bytes: int) -> None:
        self._ttl, self._most = ttl, most
        self._failures: FIFOCache[str, _Failure] = FIFOCache(max_bytes, getsizeof=attrgetter("size"))

    @property
    def bytes(self) -> int:
        """The approximate size of the failures."""
        return int(self._failures.currsize)

    def __len__(self) -> int:
        return len(self._failures)

    def remember(self, key: str, error: CouldNotVerify, now: float) -> None:
        """Store the last failure of a name."""
        is_about_name = isinstance(error, UpstreamRefused) and not error.requests_pause
        pause = min((is_about_name and error.retry_after) or 0.0, self._most)
        seconds = max(self._ttl if error.concerns_name else 0.0, pause)
        # Non-ASCII strings take at most four bytes per character. str.isascii() reads a flag, so it is cheap.
        size = ENTRY_BYTES + len(key) * (1 if key.isascii() else 4)
        with suppress(ValueError):  # it would need more than all of the memory
            self._failures[key] = _Failure(now, now + seconds, error.without_traceback(), size)

    def forget(self, key: str) -> None:
        """Drop the failure of a name that the upstream has answered."""
        self._failures.pop(key, None)

    def find_recent(
        self, key: str, now: float, seconds: float, find_last_answer: Callable[[], float] = lambda: inf
    ) -> CouldNotVerify | None:
        """The failure of a name, if it happened within the last `seconds`.

        If its query reached no server or was not sent, it counts until the upstream answers about any name:
        `find_last_answer` returns the seconds since then. Another failure may be that of the name.
        """
        failure = self._failures.get(key)
        if failure is None or not 0 <= now - failure.at < seconds:
            return None
        is_general = isinstance(failure.error, _GENERAL)
        return None if is_general and find_last_answer() < now - failure.at else failure.error

    def find_current(self, key: str, now: float) -> CouldNotVerify | None:
        """The failure of a name within its second, or until the next query. `retry_after` is the time from now.

        A failure of this process does not last: a request that waits for its turn can be answered.
        """
        failure = self._failures.get(key)
        if failure is None or isinstance(failure.error, _OWN):
            return None
        if not failure.at <= now < max(failure.until, int(failure.at) + 1):
            return None
        error = failure.error.without_traceback()
        if now < failure.until:
            error.retry_after = failure.until - now
        elif error.retry_after is not None:
            error.retry_after = max(0.0, error.retry_after - (now - failure.at))
        return error

    def find_refusal(self, key: str, now: float) -> CouldNotVerify | None:
        """The failure to answer with instead of a query. Its `retry_after` is the time until the next query."""
        failure = self._failures.get(key)
        # If the clock was set back, the failure must not last longer.
        if failure is None or not failure.at <= now < failure.until:
            return None
        error = failure.error.without_traceback()
        error.retry_after = failure.until - now
        return error


Result = TypeVar("Result")
_SLOW_UPSTREAM: Final = "The upstream is too slow for this request. Its answer will be cached; try again later."


@dataclass(slots=True)
class _Flight(Generic[Result]):
    task: asyncio.Task[Result]
    urgent: bool
    wait: QueryWait


class SingleFlight(Generic[Result]):
    """Work in flight by key. Callers share the work. The cancellation of a caller does not cancel it."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[Result]] = {}
        self._tasks = set[asyncio.Task[Result]]()
        self._closed = False

    def join(
        self,
        key: str,
        work: Callable[[QueryWait], Coroutine[Any, Any, Result]],
        *,
        urgent: bool = True,
        client: ClientNetwork = None,
    ) -> tuple[asyncio.Task[Result], bool]:
        """Return the task for this key, and whether it is new. Await it with `await_shielded`.

        Urgent work does not wait with other work whose query was not sent yet: it sends its own. With urgent work that
        waits for its turn, a `client` waits in its own line too.
        """
        if self._closed:
            raise asyncio.CancelledError
        known = self._flights.get(key)
        if known is not None and (known.urgent or not urgent or known.wait.sent_at is not None):
            if urgent and known.wait.sent_at is None and known.wait.join is not None:
                known.wait.join(client)
            return known.task, False
        wait = QueryWait()
        task = asyncio.create_task(work(wait))
        self._tasks.add(task)
        self._flights[key] = _Flight(task, urgent, wait)
        task.add_done_callback(lambda done: self._land(key, done))
        return task, True

    async def wait(self, key: str, task: asyncio.Task[Result], due: float | None) -> Result:
        """Await a query until `due`, a time of the loop's clock. Raises CouldNotVerify, which says what was slow.

        The query continues: other requests wait for it, or will find its answer.
        """
        try:
            return await await_shielded(task, due)
        except TimeoutError:
            raise self.explain_delay(key) from None

    def explain_delay(self, key: str) -> CouldNotVerify:
        """Why the query of a key has no answer yet: the upstream is slow, or what the query lacks to be sent."""
        flight = self._flights.get(key)
        if flight is None:
            return UpstreamTimeout(_SLOW_UPSTREAM)
        wait, now = flight.wait, asyncio.get_running_loop().time()
        # A query that has just got its turn spent the request's time in waiting for it.
        is_slow = wait.sent_at is not None and now - wait.sent_at >= SLOW_AFTER
        return UpstreamTimeout(_SLOW_UPSTREAM) if is_slow or wait.find_lack is None else wait.find_lack()

    def _land(self, key: str, task: asyncio.Task[Result]) -> None:
        self._tasks.remove(task)
        if (flight := self._flights.get(key)) is not None and flight.task is task:
            del self._flights[key]
        if not task.cancelled():
            # asyncio reports an exception that is never retrieved, and all callers may have left.
            task.exception()

    async def close(self) -> None:
        """Cancel all work in flight, wait for its end, and accept no more work."""
        self._closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def await_shielded(task: asyncio.Task[Result], until: float | None = None) -> Result:
    """Await the task without passing the caller's own cancellation on to it.

    Raises TimeoutError at `until`, a time of the loop's clock.
    """
    # asyncio.shield would log the failure of a task whose caller has left (Python 3.14).
    if not task.done():
        seconds = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait((task,), timeout=seconds)
    if not task.done():
        raise TimeoutError
    return task.result()


@dataclass(frozen=True, slots=True)
class ResolverTimeouts:
    """How long the resolver waits, in seconds."""

    #: Wait for the upstream if there is a stale record to answer with. Clients time out after a few seconds.
    upstream: float
    #: Time after a failed query in which a stale record is served without another query.
    recheck: float


@dataclass(frozen=True, slots=True)
class ResolverOptions:
    """How the resolver queries and keeps answers."""

    policy: TtlPolicy
    timeouts: ResolverTimeouts
    #: Which answers of the source are verified. It is "never" for a source of HTTP APIs.
    verification: Verification = "never"


class Fetcher:
    """Fetches entries for the resolver, which has at most one query of a kind under way for a name."""

    def __init__(
        self,
        cache: TieredStore,
        source: Source,
        clock: Callable[[], float],
        *,
        options: ResolverOptions,
        failures: FailureMemory,
        observer: ResolutionObserver,
    ) -> None:
        self._cache = cache
        self._source = source
        self._clock = clock
        self._policy = options.policy
        self._failures = failures
        self._observer = observer

    async def fetch(self, name: HandleName, conditions: Conditions, known: Entry | None, wait: QueryWait) -> Entry:
        """Query the upstream and store its answer in place of `known`. Raises CouldNotVerify.

        A "not found" that contradicts `known` is confirmed by an authoritative query.
        """
        try:
            entry, sent_at = await self._ask(name, conditions, wait)
            if must_confirm(known, entry, self._clock()) and not conditions.authoritative:
                entry, sent_at = await self._ask(name, structs.replace(conditions, authoritative=True), wait)
                self._observer.record_confirmation(entry.answer.code == 100)
        except ShareSpent:
            # This concerns the client, not the name: another client may query the name.
            raise
        except CouldNotVerify as failure:
            # Another request may need no signature.
            if not (conditions.certified and isinstance(failure, UnprovenAnswer)):
                self._remember_failure(name.key, failure)
            raise
        self._failures.forget(name.key)
        # The other processes look for an entry before a registry record, so its confirmation is not announced.
        agrees = known is None or known.agency is not None or known.answer.agrees_with(entry.answer)
        await self._cache.put(entry, announce=not agrees, sent_at=sent_at)
        return entry

    async def _ask(self, name: HandleName, conditions: Conditions, wait: QueryWait) -> tuple[Entry, float]:
        """Query the upstream. Returns the entry, and the time at which the query was sent."""
        sent_at, wait.sent_at = self._clock(), None

        def record_sending() -> None:
            nonlocal sent_at
            sent_at, wait.sent_at = self._clock(), asyncio.get_running_loop().time()

        answer = await self._source.fetch(
            UpstreamQuery(
                name,
                conditions.authoritative,
                conditions.certified,
                conditions.priority,
                record_sending,
                conditions.client,
                wait,
            )
        )
        return self._policy.entry(name.key, answer, self._clock()), sent_at

    def _remember_failure(self, key: str, failure: CouldNotVerify) -> None:
        now = self._clock()
        self._failures.remember(key, failure, now)
        if (refusal := self._failures.find_refusal(key, now)) is not None:
            failure.retry_after = refusal.retry_after
