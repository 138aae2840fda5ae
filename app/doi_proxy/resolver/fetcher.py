"""Queries the upstream about one name and stores its answer, once for all processes that share the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify, ShareSpent, UnprovenAnswer
from doi_proxy.resolver.failure_memory import FailureMemory
from doi_proxy.resolver.observer import ResolutionObserver
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.proof import UNPROVEN, Proofs
from doi_proxy.resolver.query_lease import QueryLease
from doi_proxy.resolver.resolution import TtlPolicy, must_confirm
from doi_proxy.resolver.single_flight import explain_lease
from doi_proxy.upstream.source import Priority, Source, UpstreamQuery, WaitingClients

#: How often a query begins again because another process took its lease. Each time costs a token.
_ATTEMPTS: Final = 3
#: An answer that cannot replace a verified record.
_UNPROVEN: Final = "No handle server signed this answer, so the verified record stays."


@dataclass(frozen=True, slots=True)
class ResolverTimeouts:
    """How long the resolver waits, in seconds."""

    #: Wait for the upstream if there is a stale record to answer with. Clients time out after a few seconds.
    upstream: float
    #: Time after a failed query in which a stale record is served without another query.
    recheck: float
    #: Longest time that a query may take: the wait for the answer to another process's query.
    query: float
    #: Length of the lease on a query, which is renewed while the query lasts. If the process that has it is killed, the
    #: other processes wait this long.
    lease: float
    #: Time between two reads of the store while another process queries the upstream.
    poll: float


@dataclass(frozen=True, slots=True)
class ResolverOptions:
    """How the resolver queries and keeps answers."""

    policy: TtlPolicy
    timeouts: ResolverTimeouts
    #: Names this process in leases. None if no other process shares the store.
    owner: str | None = None
    proofs: Proofs = UNPROVEN


class _LeaseLost(Exception):
    """The lease of a query ended before the query was sent, and another process took it."""


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
        self._timeouts = options.timeouts
        self._owner = options.owner
        self._proofs = options.proofs
        self._failures = failures
        self._observer = observer
        self._releases = set[asyncio.Task[None]]()

    async def fetch(
        self, name: HandleName, conditions: Conditions, previous: Entry | None, waiters: WaitingClients
    ) -> Entry:
        """Query the upstream. If another process that shares the store does so already, wait for its answer.

        `previous` is the entry that the answer replaces. Raises CouldNotVerify.
        """
        if self._owner is None:
            return await self._fetch_and_store(name, conditions, previous, waiters)
        yields = conditions.priority is not Priority.PERSON
        lease = QueryLease(self._cache, name.key, self._owner, self._timeouts.lease, waiters, yields=yields)
        if yields:
            waiters.before_send = partial(self._take_again, lease, name, conditions, previous)
        for _ in range(_ATTEMPTS):
            with suppress(_LeaseLost):
                return await self._fetch_with_lease(lease, name, conditions, previous, waiters)
        raise explain_lease()

    async def _fetch_with_lease(
        self,
        lease: QueryLease,
        name: HandleName,
        conditions: Conditions,
        previous: Entry | None,
        waiters: WaitingClients,
    ) -> Entry:
        """Take the lease, then query the upstream. Raises _LeaseLost and CouldNotVerify."""
        timer = asyncio.get_running_loop().time
        deadline = timer() + self._timeouts.query
        while not await lease.take():
            entry = await self._cache.get(name.key, newest=True)
            if entry is not None and self._is_answer(entry, previous, conditions):
                return entry
            if timer() > deadline:
                raise explain_lease()
            await asyncio.sleep(self._timeouts.poll)
        renewal = asyncio.create_task(lease.renew())
        try:
            # Another process may have stored an answer between the last read of the store and the lease.
            entry = await self._cache.get(name.key, newest=True)
            if entry is not None and self._is_fresh_answer(entry, previous, conditions):
                return entry
            return await self._fetch_and_store(name, conditions, entry, waiters)
        finally:
            renewal.cancel()
            # The lease ends when the answer is written. The clients need not wait for that: a write can be locked out.
            release = asyncio.create_task(lease.release())
            self._releases.add(release)
            release.add_done_callback(self._releases.discard)

    async def _take_again(
        self, lease: QueryLease, name: HandleName, conditions: Conditions, previous: Entry | None
    ) -> None:
        """Take the lease again, if it ended while the query waited for its turn.

        Raises _LeaseLost if another process has it, or had it and stored an answer.
        """
        if lease.is_held:
            return
        if not await lease.take_again():
            raise _LeaseLost
        entry = await self._cache.get(name.key, newest=True)
        if entry is not None and self._is_fresh_answer(entry, previous, conditions):
            raise _LeaseLost

    async def close(self) -> None:
        """Wait until the leases are released."""
        await asyncio.gather(*self._releases)

    def _is_answer(self, entry: Entry, previous: Entry | None, conditions: Conditions) -> bool:
        """Whether another process has stored an answer, in place of `previous`, that meets the conditions."""
        # The clocks of hosts differ, so times are compared for equality only.
        is_other = previous is None or entry.fetched_at != previous.fetched_at
        # The first read may have missed a "not found" that the store keeps past its TTL.
        return is_other and entry.is_usable(self._clock()) and self._proofs.satisfy(entry, conditions)

    def _is_fresh_answer(self, entry: Entry, previous: Entry | None, conditions: Conditions) -> bool:
        return self._is_answer(entry, previous, conditions) and entry.is_fresh(self._clock())

    async def refetch(self, name: HandleName, conditions: Conditions, waiters: WaitingClients) -> Entry:
        """Query the upstream, past the cache. Raises CouldNotVerify."""
        # Another process may have a verified entry, which the answer must not replace without proof.
        known = await self._cache.get(name.key, newest=True)
        if self._proofs.can_be_cached(conditions):
            return await self.fetch(name, conditions, known, waiters)
        return await self._fetch_and_store(name, conditions, known, waiters)

    async def _fetch_and_store(
        self, name: HandleName, conditions: Conditions, known: Entry | None, waiters: WaitingClients
    ) -> Entry:
        """Query the upstream and store its answer in place of `known`."""
        try:
            entry, sent_at = await self._fetch_and_confirm(name, conditions, known, waiters)
            newest = self._cache.peek(name.key) or known
            if self._proofs.protect(newest, entry, self._clock()):
                if newest is known or conditions.authoritative:
                    raise UnprovenAnswer(_UNPROVEN)
                # The proof arrived during this query, and is as new as its answer.
                return newest
        except ShareSpent:
            # This concerns the client, not the name: another client may query the name.
            raise
        except CouldNotVerify as failure:
            # Another request may need no signature.
            if not (conditions.certified and isinstance(failure, UnprovenAnswer)):
                self._remember_failure(name.key, failure)
            raise
        self._failures.forget(name.key)
        # No process has a registry record in memory, so its confirmation is not announced.
        agrees = known is None or not known.is_confirmed or known.answer.agrees_with(entry.answer)
        await self._cache.put(entry, announce=not agrees, sent_at=sent_at)
        return entry

    async def _fetch_and_confirm(
        self, name: HandleName, conditions: Conditions, known: Entry | None, waiters: WaitingClients
    ) -> tuple[Entry, float]:
        """Query the upstream, and again if its answer contradicts `known`. For the result see `_query`."""
        certified = self._proofs.must_certify(conditions, known, self._clock())
        entry, sent_at = await self._query(name, replace(conditions, certified=certified), waiters)
        if must_confirm(known, entry, self._clock()) and not conditions.authoritative:
            confirming = replace(conditions, authoritative=True, certified=certified and self._proofs.are_checked)
            entry, sent_at = await self._query(name, confirming, waiters)
            self._observer.record_confirmation(entry.answer.code == 100)
        return entry, sent_at

    async def _query(self, name: HandleName, conditions: Conditions, waiters: WaitingClients) -> tuple[Entry, float]:
        """Query the upstream. Returns the entry, and the time at which the query was sent."""
        sent_at = self._clock()

        def record_sending() -> None:
            nonlocal sent_at
            sent_at = self._clock()
            waiters.is_sent, waiters.sent_at = True, asyncio.get_running_loop().time()

        answer = await self._source.fetch(
            UpstreamQuery(
                name, conditions.authoritative, conditions.certified, conditions.priority, record_sending, waiters
            )
        )
        return self._policy.entry(name.key, answer, self._clock()), sent_at

    def _remember_failure(self, key: str, failure: CouldNotVerify) -> None:
        now = self._clock()
        self._failures.remember(key, failure, now)
        if (refusal := self._failures.find_refusal(key, now)) is not None:
            failure.retry_after = refusal.retry_after
