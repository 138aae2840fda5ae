"""A source behind a circuit breaker, a pause and the budget. Every answer and every failure updates them.

A failure concerns either the upstream (no connection, no answer in time, 429, 5xx) or one name (any other refusal, an
unreadable answer). Failures of the upstream open the breaker if they concern several queries. Failures of names do so
only if several names fail without an answer in between, and the control query then fails too: an intercepting proxy
fails for every name, a damaged record for its own. The control query also decides about timeouts alone: a name whose
handle server hangs looks like an upstream that hangs.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter
from typing import Final, Literal, Protocol, TypeVar

from msgspec.structs import replace

from doi_names.name import PREFIX_RECORDS, HandleName, fold
from doi_proxy import errors
from doi_proxy.system.files import find_shortage
from doi_proxy.upstream.budget import Budget
from doi_proxy.upstream.source import (
    AgencySource,
    ClientNetwork,
    Priority,
    QueryWait,
    Refusal,
    SealedSource,
    Source,
    UpstreamQuery,
)
from doi_proxy.upstream.upstream_log import UpstreamLog
from handle_protocol.referral import Answer, ResponseCode

_SUSPECTS_SHARE: Final = 0.3


class BreakerState(enum.Enum):
    """Whether queries pass. The value is the one of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Opens after `failures` (at least 1) distinct names in a row, for `cooldown` seconds."""

    def __init__(self, failures: int, cooldown: float) -> None:
        self._most_failures = failures
        # Distinct names in a row without a usable answer after which the upstream itself is in doubt: the control query
        # then decides, so a name with a damaged record costs one query and no outage. A drill that allows more failures
        # than ten allows three tenths of them.
        self._most_suspects = min(failures, max(3, int(_SUSPECTS_SHARE * failures)))
        self._cooldown = cooldown
        # Hashes: a name may have 8 kB. At most `failures` of them are held.
        self._failed_names: set[int] = set()
        self._suspect_names: set[int] = set()
        #: Whether every failure of `_failed_names` was a timeout.
        self._only_timeouts = True
        #: When it opened, or when the probe was let through.
        self._since = 0.0
        self.state = BreakerState.CLOSED

    def allow(self, now: float) -> bool:
        """Whether a query may be sent now. If the breaker is not closed, this query is the probe."""
        if self.state is BreakerState.CLOSED:
            return True
        # A probe without a result (its caller was cancelled) is replaced after the cooldown.
        if self.retry_after(now) > 0:
            return False
        self.state, self._since = BreakerState.HALF_OPEN, now
        return True

    def retry_after(self, now: float) -> float:
        """Seconds until a query may be sent. 0.0 if one may be sent now."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        return max(0.0, self._since + self._cooldown - now)

    def record_answer(self) -> None:
        """The upstream answered. Any answer closes the breaker, also "not found" and one to an older query."""
        self.state = BreakerState.CLOSED
        self._clear()

    def record_failure(self, name: str, now: float, *, is_timeout: bool = False) -> bool:
        """Record a failure of the upstream. Returns whether it is in doubt now: there were `failures` timeouts alone.

        A failure that arrives while the breaker is open does not keep it open for longer.
        """
        if self.state is BreakerState.OPEN:
            return False
        self._only_timeouts = self._only_timeouts and is_timeout
        if len(self._failed_names) < self._most_failures:
            self._failed_names.add(hash(name))
        if self.state is not BreakerState.HALF_OPEN and len(self._failed_names) < self._most_failures:
            return False
        if self._only_timeouts:
            return True
        self.open(now)
        return False

    def suspect(self, name: str) -> bool:
        """Record a refused name or an unreadable answer. Returns whether the upstream itself is in doubt now."""
        if self.state is not BreakerState.CLOSED:
            return self.state is BreakerState.HALF_OPEN
        if len(self._suspect_names) < self._most_suspects:
            self._suspect_names.add(hash(name))
        return len(self._suspect_names) >= self._most_suspects

    def open(self, now: float) -> None:
        """Let no query pass for the cooldown."""
        self.state, self._since = BreakerState.OPEN, now
        self._clear()

    def _clear(self) -> None:
        self._failed_names.clear()
        self._suspect_names.clear()
        self._only_timeouts = True


class Pause:
    """The pauses of one upstream. Times are arguments, in seconds of one monotonic clock."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._limit = min(first, most)
        #: Whether the next pause may last longer than the first.
        self.is_raised = False
        #: When the last pause ends.
        self.until = 0.0

    def begin(self, now: float, seconds: float) -> float:
        """Begin a pause that the upstream requested, in seconds. Returns how long it lasts.

        A refusal during a pause belongs to a query that was sent before it, and changes nothing.
        """
        if self.until <= now:
            self.until = now + min(seconds, self._limit)
            self._limit, self.is_raised = min(2 * self._limit, self._most), True
        return self.until - now

    def reset(self) -> None:
        """The upstream answers again: its next pause lasts at most `first` seconds."""
        self._limit, self.is_raised = min(self._first, self._most), False


T = TypeVar("T")

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

    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        source: UpstreamApi,
        health: UpstreamHealth,
        budget: Budget,
        clock: Callable[[], float],
        *,
        record_query: RecordQuery | None = None,
        server: str = "",
    ) -> None:
        """`server` is set if one server has all names of the source: they share its places as those of a prefix do."""
        self.budget = budget
        self._server = server
        self.breaker, self.pause, self.log = health.breaker, health.pause, health.log
        self._source = source
        self._clock = clock
        self._record_query = record_query
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
        fetch = partial(self._source.fetch, query)
        return await self.run(query.name.key, query.priority, fetch, query.client, query.wait)

    async def aclose(self) -> None:
        """Close the source."""
        await self._source.aclose()

    async def run(
        self,
        name: str,
        priority: Priority,
        fetch: Callable[[], Awaitable[T]],
        client: ClientNetwork = None,
        wait: QueryWait | None = None,
    ) -> T:
        """Query `name` if the breaker, the pause and the budget admit it.

        Raises BreakerOpen, UpstreamPaused, NotAdmitted, ResourcesShort, and what `fetch` raises.
        """
        began, admitted = self._clock(), False
        # The names of a query about agencies have one prefix, "ra".
        prefix = self._server or name.partition("/")[0]
        try:
            await self._refuse()
            async with self.budget.admit(priority, prefix, client, wait, self._find_error):
                # The breaker may have opened, or a pause begun, while this query waited for its place.
                await self._refuse()
                if self.breaker.state is not BreakerState.CLOSED:
                    self.breaker.allow(self._clock())
                admitted = True
                if priority is Priority.PERSON and self.budget.log.refusals.under_way is not None:
                    self.budget.log.notice_quiet()
                answer = await self._fetch(fetch)
                self.record_answer()
                return answer
        except (errors.BreakerOpen, errors.UpstreamPaused, errors.NotAdmitted) as error:
            if not admitted:
                self._count(error.token, began)
            # The full share of one client does not concern the others.
            is_own = isinstance(error, errors.ShareSpent) or priority is not Priority.PERSON
            if isinstance(error, errors.NotAdmitted) and not is_own:
                self.budget.log.refusal(error, self.budget.describe(error))
            raise
        except errors.CouldNotVerify as error:
            await self._record_failure(name, error)
            raise

    async def _refuse(self) -> None:
        refusal = self.refusal
        is_paused = refusal is not None and refusal.by == "pause"
        was_paused, self._is_paused = self._is_paused, is_paused
        if was_paused and not is_paused:
            # The bucket starts empty: an upstream that was just overloaded must not get a burst.
            await self.budget.start_empty()
        error = self._find_error()
        if isinstance(error, errors.UpstreamPaused):
            self.log.pause(error.retry_after or 0.0, error)
        if error is not None:
            raise error

    def _find_error(self) -> errors.UpstreamPaused | errors.BreakerOpen | None:
        """The error of a query that this upstream gets none of now. None if one may be sent."""
        refusal = self.refusal
        if refusal is None:
            return None
        return (errors.UpstreamPaused if refusal.by == "pause" else errors.BreakerOpen)(retry_after=refusal.seconds)

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
                # The pause after a 429 without Retry-After, in seconds.
                await self._begin_pause(1.0, error)

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
            client,
        )


class RoutedSource:
    """Queries the upstream whose prefix is the longest match, else the default upstreams in order.

    `routes` maps prefixes to sources: "10.5072" also takes its sub-divisions ("10.5072.1"). A name
    under a routed prefix is queried at that upstream only: the others do not know it, and their "not found" would be
    wrong. There is at least one default upstream. If it could not verify a name, the next one is queried. "Not found"
    is an answer and ends the search. So does a wrong signature, if the query needs one. If all fail, the error is the
    first of a query that was sent, else the first.
    """

    def __init__(self, routes: Mapping[str, Source], default: Sequence[Source]) -> None:
        self._routes = {fold(prefix).rstrip("/"): source for prefix, source in routes.items()}
        self._default = tuple(default)
        self._local_routes: Mapping[str, Source] = {}
        #: Every source that got a query. A route can end before its queries.
        self._sources = dict.fromkeys((*self._routes.values(), *self._default))

    def use_local_routes(self, routes: Mapping[str, Source]) -> None:
        """Put the routes of the local records in force, in place of the previous ones. They win over `routes`."""
        self._local_routes = {fold(prefix): source for prefix, source in routes.items()}
        self._sources |= dict.fromkeys(routes.values())

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The first answer. Raises CouldNotVerify."""
        failures: list[errors.CouldNotVerify] = []
        for number, source in enumerate(self.sources_of(query.name), 1):
            try:
                answer = await source.fetch(query)
            except errors.CouldNotVerify as error:
                if query.certified and isinstance(error, errors.UnprovenAnswer):
                    # The next upstream could not prove its answer either, and a forger could choose it.
                    raise
                failures.append(error)
            else:
                return answer if number == 1 else replace(answer, detail=f"upstream-{number}")
        raise _choose_failure(failures)

    async def aclose(self) -> None:
        """Close every source, each once."""
        for source in self._sources:
            await source.aclose()

    def find_refusal(self, name: HandleName) -> Refusal | None:
        """The refusal that ends first, if every upstream refuses a query about a name now."""
        refusals = [find_refusal(source, name) for source in self.sources_of(name)]
        if None in refusals:
            return None
        return min(filter(None, refusals), key=attrgetter("seconds"))

    def sources_of(self, name: HandleName) -> Sequence[Source]:
        """The sources that a query about a name goes to, in order."""
        routed = self._route(name.key)
        return self._default if routed is None else (routed,)

    def _route(self, key: str) -> Source | None:
        # The record of a prefix lives where the names under the prefix live.
        prefix = key.removeprefix(PREFIX_RECORDS).partition("/")[0]
        while prefix:
            source = self._local_routes.get(prefix) or self._routes.get(prefix)
            if source is not None:
                return source
            prefix = prefix.rpartition(".")[0]
        return None


def _choose_failure(failures: Sequence[errors.CouldNotVerify]) -> errors.CouldNotVerify:
    unsent = (errors.BreakerOpen, errors.UpstreamPaused, errors.NotAdmitted, errors.NotInBundle)
    sent = (error for error in failures if not isinstance(error, unsent))
    return next(sent, failures[0])


def find_refusal(source: Source, name: HandleName) -> Refusal | None:
    """Who refuses a query about a name to this source now. None if one would be sent."""
    match source:
        case Guard():
            return source.find_refusal()
        case RoutedSource():
            return source.find_refusal(name)
        case SealedSource():
            return Refusal("sealed", errors.NotInBundle.token, inf)
    return None


def find_last_answer(source: Source, name: HandleName) -> float:
    """Seconds since an upstream that a query about a name goes to has answered about any name. Infinity without one."""
    match source:
        case Guard():
            return source.seconds_since_answer
        case RoutedSource():
            return min(find_last_answer(one, name) for one in source.sources_of(name))
    return inf


@dataclass(frozen=True, slots=True)
class Upstream:
    """The two services of the upstreams, with a breaker for each upstream and one budget."""

    source: Source
    agencies: AgencySource | None
    #: The guard of each upstream by its base URL; all of them share one budget.
    guards: dict[str, Guard]
    budget: Budget
    #: Opens an upstream, or returns the one that is open. None if nothing is queried.
    open_source: Callable[[str], Source] | None = None

    def use_routes(self, routes: Mapping[str, str]) -> None:
        """Put the routes of local records in force: an upstream's URL by prefix. Raises ConfigurationError."""
        if self.open_source is not None and isinstance(self.source, RoutedSource):
            self.source.use_local_routes({prefix: self.open_source(url) for prefix, url in routes.items()})
