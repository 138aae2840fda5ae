"""The answer to a request by the code that gives it, without a query, a count or a change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from doi_names.name import HandleName
from doi_proxy import errors
from doi_proxy.features.feature import Core
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.failure_memory import FailureMemory
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.budget import QUEUE_TIMEOUT
from doi_proxy.upstream.local import SealedSource
from doi_proxy.upstream.routed import find_last_answer, find_refusal
from doi_proxy.upstream.source import Refusal, Source, UpstreamQuery
from handle_protocol.answer import Answer

#: The errors of queries that are not sent, by their tokens.
_REFUSALS = {
    error.token: error for error in (errors.BreakerOpen, errors.BudgetSpent, errors.NotInBundle, errors.UpstreamPaused)
}


class RehearsedSource:
    """A source that sends nothing. It notes the first query that would be sent, and who refuses it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.query: UpstreamQuery | None = None
        #: Who refuses the query. None if it would be sent.
        self.refusal: Refusal | None = None

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """Raises the error of the refusal, or UpstreamUnreachable for a query that would be sent."""
        refusal = find_refusal(self._source, query.name)
        if refusal is not None and refusal.by == "budget" and refusal.seconds <= QUEUE_TIMEOUT:
            refusal = None
        if self.query is None:
            self.query, self.refusal = query, refusal
        if refusal is None:
            raise errors.UpstreamUnreachable("An explanation sends no query.")
        raise _REFUSALS[refusal.reason](retry_after=refusal.seconds)

    async def aclose(self) -> None:
        """There is nothing to close."""


class _ReadOnlyFailures(FailureMemory):
    """The failures that the service remembers. It remembers no other."""

    def __init__(self, failures: FailureMemory, source: Source) -> None:
        self._read, self._source = failures, source

    def remember(self, key: str, error: errors.CouldNotVerify, now: float) -> None:
        """Nothing is remembered."""

    def forget(self, key: str) -> None:
        """Nothing is forgotten."""

    def find_recent(
        self, key: str, now: float, seconds: float, _: Callable[[], float] = lambda: inf
    ) -> errors.CouldNotVerify | None:
        """See FailureMemory. The source of the rehearsal has no answers; that of the service has."""
        return self._read.find_recent(key, now, seconds, partial(find_last_answer, self._source, HandleName(key)))

    def find_refusal(self, key: str, now: float) -> errors.CouldNotVerify | None:
        """See FailureMemory."""
        return self._read.find_refusal(key, now)


def rehearse(core: Core, clock: Callable[[], float]) -> tuple[Destinations, RehearsedSource]:
    """The destinations of the service, over a source that sends nothing."""
    source = core.upstream.source
    rehearsed = RehearsedSource(source)
    resolver = Resolver(
        core.cache,
        source if isinstance(source, SealedSource) else rehearsed,
        clock,
        options=core.resolver.options,
        failures=_ReadOnlyFailures(core.resolver.failures, source),
    )
    resolver.local_records = core.resolver.local_records
    return Destinations(resolver, PrefixChain(resolver), resolves=core.destinations.resolves), rehearsed
