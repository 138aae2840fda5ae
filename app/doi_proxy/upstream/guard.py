"""A source behind a circuit breaker, a pause and the budget. Every answer and every failure updates them.

A failure concerns either the upstream (no connection, no answer in time, 429, 5xx) or one name (any other refusal, an
unreadable answer). Failures of the upstream open the breaker if they concern several queries. Failures of names do so
only if several names fail without an answer in between, and the control query then fails too: an intercepting proxy
fails for every name, a damaged record for its own. The control query also decides about timeouts alone: a name whose
handle server hangs looks like an upstream that hangs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, Literal, Protocol, TypeVar

from doi_proxy import errors
from doi_proxy.system.shortage import find_shortage
from doi_proxy.upstream.breaker import Breaker, BreakerState
from doi_proxy.upstream.budget import Budget
from doi_proxy.upstream.pause import Pause
from doi_proxy.upstream.source import (
    AgencySource,
    ClientNetwork,
    Priority,
    Refusal,
    Source,
    UpstreamQuery,
    WaitingClients,
)
from doi_proxy.upstream.upstream_log import UpstreamLog
from handle_protocol.answer import Answer, ResponseCode

T = TypeVar("T")

#: The pause after a 429 without Retry-After, in seconds.
_PAUSE_AFTER_TOO_MANY: Final = 1.0
_TOO_MANY_REQUESTS: Final = 429
#: The Retry-After while this process is short of memory or of open files, in seconds.
_SHORTAGE_RETRY: Final = 5.0

_ANSWERS: Final = {
    ResponseCode.SUCCESS: "found",
    ResponseCode.HANDLE_NOT_FOUND: "not_found",
    ResponseCode.VALUES_NOT_FOUND: "no_values",
}
_AGENCIES: Final = "agencies"
#: Before the names of a query about agencies, which is not a query about a handle.
_AGENCIES_OF: Final = "ra/"
_CANCELLED: Final = "cancelled"
#: The state of an upstream as one word, for readiness. "unknown" before the first query.
UpstreamState = Literal["unknown", "ok", "failing", "backing-off"]
#: Records the end of a query: its outcome, one of `list_outcomes`, and the seconds that the upstream took, or the wait
#: for the budget. Must be quick and must not raise.
RecordQuery = Callable[[str, float], None]
#: The outcomes of queries that were not sent.
UNSENT_OUTCOMES: Final = frozenset(
    error.token
    for error in (
        errors.BreakerOpen,
        errors.UpstreamPaused,
        errors.BudgetSpent,
        errors.PlacesFull,
        errors.UpstreamSlow,
        errors.ShareSpent,
        errors.NotInBundle,
    )
)


def list_outcomes() -> frozenset[str]:
    """Every outcome that an observer can get, once the features with their errors are loaded."""
    answered = frozenset({*_ANSWERS.values(), _AGENCIES, _CANCELLED})
    return answered | errors.failure_tokens() - {errors.PrefixDenied.token, errors.NotCached.token}


class UpstreamApi(Source, Protocol):
    """One upstream."""

    async def probe(self) -> Answer:
        """The answer to the control query. Any answer shows that the upstream works. Raises CouldNotVerify."""


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """What is known about one upstream from the results of its queries."""

    breaker: Breaker
    pause: Pause
    log: UpstreamLog


class Guard:
    """A source that gets only the queries that its breaker, its pause and the budget admit.

    `clock` is monotonic, in seconds. `timeouts` is how long a query waits for the budget, in seconds, by who waits for
    the answer.
    """

    def __init__(
        self,
        source: UpstreamApi,
        health: UpstreamHealth,
        budget: Budget,
        clock: Callable[[], float],
        *,
        timeouts: Mapping[Priority, float],
        record_query: RecordQuery | None = None,
        server: str = "",
    ) -> None:
        """`server` is set if one server has all names of the source: if one query is slow, the next ones are."""
        self.budget = budget
        self._server = server
        self.breaker, self.pause, self.log = health.breaker, health.pause, health.log
        self._source = source
        self._clock = clock
        self._record_query = record_query
        self._timeouts = timeouts
        self._has_answered = False
        #: When the upstream answered last.
        self._answered_at = -inf
        self._is_controlling = False
        #: Whether the last query met a pause.
        self._is_paused = False

    @property
    def state(self) -> UpstreamState:
        """The state of the upstream, from the results of its queries."""
        if self.pause_seconds > 0:
            return "backing-off"
        if self.log.is_down or self.breaker.state is not BreakerState.CLOSED:
            return "failing"
        if self._has_answered:
            return "ok"
        return "unknown" if self.log.first_failure is None else "failing"

    @property
    def seconds_since_answer(self) -> float:
        """Seconds since the last answer. Infinity without one."""
        return self._clock() - self._answered_at

    @property
    def pause_seconds(self) -> float:
        """Seconds that are left of the pause that the upstream requested."""
        refusal = self.refusal
        return refusal.seconds if refusal is not None and refusal.by == "pause" else 0.0

    @property
    def refusal(self) -> Refusal | None:
        """Why no query is sent now, as far as this upstream decides. None if one may be sent."""
        now = self._clock()
        if now < self.pause.until:
            return Refusal("pause", errors.UpstreamPaused.token, self.pause.until - now)
        if self.breaker.state is not BreakerState.CLOSED and (seconds := self.breaker.retry_after(now)) > 0:
            return Refusal("breaker", errors.BreakerOpen.token, seconds)
        return None

    def find_refusal(self) -> Refusal | None:
        """Why a query would not be sent now: because of this upstream, or of the budget. None if it would be."""
        return self.refusal or self.budget.refusal

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The source's answer. Raises CouldNotVerify: see `run`."""
        return await self.run(query.name.key, query.priority, partial(self._source.fetch, query), query.waiters)

    async def aclose(self) -> None:
        """Close the source."""
        await self._source.aclose()

    async def run(self, name: str, priority: Priority, fetch: Callable[[], Awaitable[T]], waiters: WaitingClients) -> T:
        """Query `name` if the breaker, the pause and the budget admit it.

        Raises BreakerOpen, UpstreamPaused, NotAdmitted, ResourcesShort, and what `fetch` raises.
        """
        began, admitted = self._clock(), False
        prefix = "" if name.startswith(_AGENCIES_OF) else self._server or name.partition("/")[0]
        try:
            await self._refuse()
            async with self.budget.admit(priority, self._timeouts[priority], waiters, prefix):
                # The breaker may have opened, or a pause begun, while this query waited for its place.
                await self._refuse()
                if self.breaker.state is not BreakerState.CLOSED:
                    self.breaker.allow(self._clock())
                admitted = True
                if priority is Priority.PERSON and self.budget.log.refusals.under_way is not None:
                    self.budget.log.notice_quiet()
                return await self._query(name, fetch)
        except (errors.BreakerOpen, errors.UpstreamPaused, errors.NotAdmitted) as error:
            if not admitted:
                self._count(error.token, began)
            # The full share of one client does not concern the others.
            if isinstance(error, errors.NotAdmitted) and not isinstance(error, errors.ShareSpent):
                # The queries that waited while an outage or a pause began took the tokens, and none was sent.
                await self._refuse()
                if priority is Priority.PERSON:
                    self.budget.log.refusal(error, self.budget.describe(error))
            raise

    async def _refuse(self) -> None:
        refusal = self.refusal
        is_paused = refusal is not None and refusal.by == "pause"
        was_paused, self._is_paused = self._is_paused, is_paused
        if was_paused and not is_paused:
            # The bucket starts empty: an upstream that was just overloaded must not get a burst.
            await self.budget.start_empty()
        if refusal is None:
            return
        if is_paused:
            error = errors.UpstreamPaused(retry_after=refusal.seconds)
            self.log.pause(refusal.seconds, error)
            raise error
        raise errors.BreakerOpen(retry_after=refusal.seconds)

    async def _query(self, name: str, fetch: Callable[[], Awaitable[T]]) -> T:
        """Query, and update breaker, pause and log by the answer or the failure."""
        try:
            answer = await self._fetch(fetch)
        except errors.CouldNotVerify as error:
            await self._record_failure(name, error)
            raise
        self.record_answer()
        return answer

    async def _fetch(self, fetch: Callable[[], Awaitable[T]]) -> T:
        began, outcome = self._clock(), _CANCELLED
        try:
            answer = await fetch()
            outcome = _ANSWERS[answer.code] if isinstance(answer, Answer) else _AGENCIES
            return answer
        except errors.CouldNotVerify as error:
            if shortage := find_shortage(error):
                outcome = errors.ResourcesShort.token
                raise errors.ResourcesShort(retry_after=_SHORTAGE_RETRY, detail=shortage) from error
            outcome = error.token
            raise
        except MemoryError as error:
            outcome = errors.ResourcesShort.token
            raise errors.ResourcesShort(retry_after=_SHORTAGE_RETRY, detail=find_shortage(error)) from error
        finally:
            self._count(outcome, began)

    def _count(self, outcome: str, began: float) -> None:
        if self._record_query is not None:
            self._record_query(outcome, self._clock() - began)

    def record_answer(self) -> None:
        """The upstream answered."""
        self._has_answered, self._answered_at = True, self._clock()
        self.breaker.record_answer()
        if self.pause.is_raised:
            self.pause.reset()
        self._end_pause()
        if self.log.awaits_answer:
            self.log.answer()

    async def _record_failure(self, name: str, error: errors.CouldNotVerify) -> None:
        if isinstance(error, (errors.BreakerOpen, errors.UpstreamPaused, errors.NotAdmitted, errors.NotInBundle)):
            return
        if isinstance(error, errors.ResourcesShort):
            # It says nothing about the upstream.
            self.budget.log.refusal(error, error.detail)
            return
        if error.concerns_name:
            self._end_pause()
            self.log.unreadable(name, error)
            if self.breaker.suspect(name):
                await self._send_control_query()
        elif isinstance(error, errors.UpstreamRefused) and error.requests_pause and error.retry_after:
            # An upstream that says when to come back is obeyed. The breaker is not needed.
            await self._begin_pause(error.retry_after, error)
        else:
            self._end_pause()
            is_timeout = isinstance(error, errors.UpstreamTimeout)
            in_doubt = self.breaker.record_failure(name, self._clock(), is_timeout=is_timeout)
            self._log_failure(error)
            if in_doubt:
                await self._send_control_query()
            if isinstance(error, errors.UpstreamRefused) and error.upstream_status == _TOO_MANY_REQUESTS:
                await self._begin_pause(_PAUSE_AFTER_TOO_MANY, error)

    async def _begin_pause(self, seconds: float, error: errors.CouldNotVerify) -> None:
        error.retry_after = self.pause.begin(self._clock(), seconds)
        self._is_paused = True
        self.log.pause(error.retry_after, error)

    def _end_pause(self) -> None:
        """A query was answered or failed. If it was sent after the pause, the pause is over.

        Its time alone does not end it: an upstream that requests the next pause at once would be two lines each time.
        """
        if self.log.pauses.under_way is not None and self._clock() >= self.pause.until:
            self.log.pause_end()

    async def _send_control_query(self) -> None:
        """Find out whether the upstream fails or only names. One control query at a time, if the budget has a token."""
        if self._is_controlling:
            return
        # Before the wait for the token: many queries can fail at once.
        self._is_controlling = True
        try:
            if not await self.budget.admit_retry():
                return
            await self._fetch(self._source.probe)
        except errors.ResourcesShort:
            pass
        except errors.CouldNotVerify as error:
            self.breaker.open(self._clock())
            self._log_failure(error)
        else:
            self.record_answer()
        finally:
            self._is_controlling = False

    def _log_failure(self, error: errors.CouldNotVerify) -> None:
        self.log.failure(error, is_open=self.breaker.state is BreakerState.OPEN)


class GuardedAgencies:
    """The Which RA service of an upstream, behind the same guard as its handles."""

    def __init__(self, source: AgencySource, guard: Guard) -> None:
        self._source = source
        self._guard = guard

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """See AgencySource."""
        return await self._guard.run(
            _AGENCIES_OF + ",".join(names),
            Priority.PERSON,
            partial(self._source.registration_agencies, names, client),
            WaitingClients({client: None}),
        )
