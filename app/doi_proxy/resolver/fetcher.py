"""Queries the upstream about one name and stores its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify, ShareSpent, UnprovenAnswer
from doi_proxy.resolver.failure_memory import FailureMemory
from doi_proxy.resolver.resolution import UNPROVEN, Conditions, Proofs, ResolutionObserver, TtlPolicy, must_confirm
from doi_proxy.upstream.source import Source, UpstreamQuery, WaitingClients


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
    proofs: Proofs = UNPROVEN


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
        self._proofs = options.proofs
        self._failures = failures
        self._observer = observer

    async def refetch(self, name: HandleName, conditions: Conditions, waiters: WaitingClients) -> Entry:
        """Query the upstream, past the cache. Raises CouldNotVerify."""
        # Another instance may have a verified entry, which the answer must not replace without proof.
        known = await self._cache.get(name.key, newest=True)
        return await self.fetch(name, conditions, known, waiters)

    async def fetch(
        self, name: HandleName, conditions: Conditions, known: Entry | None, waiters: WaitingClients
    ) -> Entry:
        """Query the upstream and store its answer in place of `known`. Raises CouldNotVerify."""
        try:
            entry, sent_at = await self._fetch_and_confirm(name, conditions, known, waiters)
            newest = self._cache.peek(name.key) or known
            if self._proofs.protect(newest, entry, self._clock()):
                if newest is known or conditions.authoritative:
                    # An answer that cannot replace a verified record.
                    raise UnprovenAnswer("No handle server signed this answer, so the verified record stays.")
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
