"""The metrics of answers, clients, upstream queries, the store, and the state of the process. See docs/metrics.md.

Labels have values from closed sets only. A name or an address is never a label.

Numbers that every request increments are plain integers, which cost a tenth of prometheus-client's locked counters.
`flush` adds them to the counters before a scrape. One thread does both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.errors import ShareSpent, failure_tokens
from app.resolver.library_copy import Outcome
from app.resolver.resolution import Origin, Resolution
from app.resolver.verdict import Verdict

#: Histogram bounds for upstream queries, in seconds. They cross the Internet and end at a deadline.
UPSTREAM_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 20.0)
#: The label of an answer by its origin. A fresh "not found" has the label NEGATIVE.
KINDS: Final = {
    Origin.HIT: "fresh",
    Origin.STALE: "stale",
    Origin.ASKED: "asked",
    Origin.RENEWED: "renewed",
    Origin.JOINED: "joined",
    Origin.BYPASSED: "bypassed",
    Origin.RELOADED: "bypassed",
    Origin.LOCAL: "local",
}
NEGATIVE: Final = "negative"
#: The limits that can refuse a client: its share of upstream queries, its request rate, the deny list, and `auth` or
#: `cert`.
SHARE_REFUSED: Final = "share"
REFUSALS: Final = (SHARE_REFUSED, "rate", "denied", "bypass", "batches")
#: The operations of a store, as a label of its errors.
STORE_OPERATIONS: Final = (
    "get", "put", "delete", "scan", "changes",
    "lease", "renew", "release", "take", "back_off", "stats", "flush", "close",
)  # fmt: skip


class ClientMetrics:
    """Requests refused because of the client that sent them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        refusals = Counter(
            "doi_proxy_client_refusals",
            "Answers refused because their client is over a limit or on the deny list.",
            ["reason"],
            registry=registry,
        )
        self._refused = {reason: refusals.labels(reason).inc for reason in REFUSALS}

    def refused(self, reason: str) -> None:
        """Count a refusal; `reason` is one of REFUSALS."""
        self._refused[reason]()


class LibraryMetrics:
    """Redirects that the library's rules concern."""

    def __init__(self, registry: CollectorRegistry) -> None:
        copies = Counter(
            "doi_proxy_library_copies",
            "Redirects that a library rule concerns, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        self._counted = {one.value: copies.labels(one.value).inc for one in Outcome if one is not Outcome.NOT_CONCERNED}

    def count(self, outcome: str) -> None:
        """Count a redirect; `outcome` is the value of an Outcome."""
        self._counted[outcome]()


class BatchMetrics:
    """The rows of lists."""

    def __init__(self, registry: CollectorRegistry) -> None:
        rows = Counter(
            "doi_proxy_batch_rows",
            "Rows of lists (POST /api/resolve), by verdict.",
            ["verdict"],
            registry=registry,
        )
        self._counted = {one: rows.labels(one.value).inc for one in Verdict}

    def count(self, verdict: Verdict) -> None:
        """Count a row."""
        self._counted[verdict]()


class AnswerMetrics:
    """The answers of a resolver. Implements app.resolver.observer.ResolutionObserver."""

    def __init__(self, registry: CollectorRegistry, refused: Callable[[str], None]) -> None:
        """`refused` counts names without an answer because their client had used its share of the upstream."""
        self._refused = refused
        answers = Counter(
            "doi_proxy_cache_answers",
            "Names answered, by where the answer came from.",
            ["kind"],
            registry=registry,
        )
        failures = Counter(
            "doi_proxy_could_not_verify",
            "Names that could not be answered: no record in the cache, and the upstream could not be queried.",
            ["reason"],
            registry=registry,
        )
        refreshes = Counter(
            "doi_proxy_refreshes_ahead",
            "Records refreshed in the background before their TTL ended.",
            registry=registry,
        )
        malformed = Counter(
            "doi_proxy_locations_malformed",
            "10320/loc values that could not be read and were left out of an answer.",
            registry=registry,
        )
        confirmations = Counter(
            "doi_proxy_not_found_confirmations",
            "Second queries about a known name, because the first answer was that it does not exist.",
            ["result"],
            registry=registry,
        )
        self._answered = {origin: answers.labels(kind).inc for origin, kind in KINDS.items()}
        self._negative = answers.labels(NEGATIVE).inc
        #: Fresh answers since the last flush. Nearly all answers are fresh.
        self._hits = 0
        self._local = 0
        self._failed = {token: failures.labels(token).inc for token in failure_tokens()}
        self.record_refresh = refreshes.inc
        self.record_malformed_locations = malformed.inc
        self._confirmed = confirmations.labels("confirmed").inc
        self._refuted = confirmations.labels("refuted").inc

    def record_resolution(self, resolution: Resolution) -> None:
        """See ResolutionObserver."""
        if resolution.origin is Origin.LOCAL:
            self._local += 1
        elif resolution.origin is not Origin.HIT:
            self._answered[resolution.origin]()
        elif resolution.is_registered:
            self._hits += 1
        else:
            self._negative()

    def record_failure(self, token: str) -> None:
        """See ResolutionObserver."""
        if token == ShareSpent.token:
            self._refused(SHARE_REFUSED)
        self._failed[token]()

    def record_confirmation(self, confirmed: bool) -> None:
        """See ResolutionObserver."""
        (self._confirmed if confirmed else self._refuted)()

    def flush(self) -> None:
        """Add the numbers since the last flush to the counters."""
        self._answered[Origin.HIT](self._hits)
        self._answered[Origin.LOCAL](self._local)
        self._hits = self._local = 0


class UpstreamMetrics:
    """Queries to upstreams. An upstream's label is its number in the settings, from 1; its address is not a label."""

    def __init__(self, registry: CollectorRegistry, outcomes: Collection[str], unsent: Collection[str]) -> None:
        """`outcomes` are all outcomes that an observer accepts; `unsent` are those of queries that were not sent."""
        self._outcomes = outcomes
        self._unsent = frozenset(unsent)
        self._queries = Counter(
            "doi_proxy_upstream_questions",
            "Queries to an upstream, by outcome.",
            ["upstream", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "doi_proxy_upstream_question_duration_seconds",
            "Time that an upstream took to answer a query or to fail.",
            ["upstream"],
            buckets=UPSTREAM_SECONDS,
            registry=registry,
        )

    def observer(self, number: int) -> QueryObserver:
        """The observer of one upstream."""
        label = str(number)
        return QueryObserver(
            counters={outcome: self._queries.labels(label, outcome).inc for outcome in sorted(self._outcomes)},
            observe_seconds=self._seconds.labels(label).observe,
            unsent=self._unsent,
        )


@dataclass(frozen=True, slots=True)
class QueryObserver:
    """Counts the queries to one upstream."""

    counters: dict[str, Callable[[], None]]
    observe_seconds: Callable[[float], None]
    unsent: frozenset[str]

    def record_query(self, outcome: str, seconds: float) -> None:
        """Count a query that ended. `seconds` is the time the upstream took, or the wait for the budget."""
        self.counters[outcome]()
        if outcome not in self.unsent:
            self.observe_seconds(seconds)


class StoreMetrics:
    """The failures of the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        errors = Counter(
            "doi_proxy_store_errors", "Failures of the store, by operation.", ["operation"], registry=registry
        )
        self._failed = {operation: errors.labels(operation).inc for operation in STORE_OPERATIONS}

    def store_failed(self, operation: str) -> None:
        """Count a failure of `operation`, one of STORE_OPERATIONS."""
        self._failed[operation]()


@dataclass(frozen=True, slots=True)
class UpstreamGauges:
    """The state of one upstream: `breaker` is 0 closed, 1 half-open, 2 open; the other fields are in seconds."""

    breaker: int
    retry_after: float
    down: float


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of one process at a moment; `upstreams` are in the order of their numbers."""

    in_flight: int
    waiting: int
    clients_waiting: int
    upstreams: tuple[UpstreamGauges, ...]
    memory_entries: int
    memory_bytes: int
    memory_evictions: int
    lease_fallbacks: int
    budget_fallbacks: int
    local_records: int
    local_record_problems: int


@dataclass(frozen=True, slots=True)
class SharedState:
    """The state that all processes share, at a moment."""

    tokens: float
    store_entries: int
    store_bytes: int
    store_up: bool


class StateMetrics:
    """Gauges, and counters that other parts of the program keep. They are set before a scrape, not by requests."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        def gauge(name: str, about: str, *labels: str, newest: bool = False) -> Gauge:
            mode: Literal["livemostrecent", "livesum"] = "livemostrecent" if newest else "livesum"
            return Gauge(f"doi_proxy_{name}", about, labels, registry=registry, multiprocess_mode=mode)

        self._in_flight = gauge("upstream_in_flight", "Upstream queries under way.")
        self._waiting = gauge("upstream_waiting", "Upstream queries that wait for the budget.")
        self._clients_waiting = gauge(
            "upstream_clients_waiting", "Clients with an interactive query that waits for the budget."
        )

        def worst(name: str, about: str) -> Gauge:
            return Gauge(
                f"doi_proxy_upstream_{name}", about, ["upstream"], registry=registry, multiprocess_mode="livemax"
            )

        self._breaker = worst("breaker_state", "Circuit breaker of an upstream: 0 closed, 1 half-open, 2 open.")
        self._retry_after = worst("retry_after_seconds", "Seconds left of the pause that an upstream has requested.")
        self._down = worst("down_seconds", "Seconds since the first failure of an outage; 0 without one.")
        self._memory_entries = gauge("memory_entries", "Entries in the memory tier.")
        self._memory_bytes = gauge("memory_bytes", "Bytes of the entries in the memory tier.")
        self._evictions = _ExternalCounter(
            Counter(
                "doi_proxy_memory_evictions",
                "Entries that were evicted from the memory tier for lack of room.",
                registry=registry,
            )
        )
        fallbacks = Counter(
            "doi_proxy_store_fallbacks",
            "Decisions that one process made alone because the store failed.",
            ["kind"],
            registry=registry,
        )
        self._lease_fallbacks = _ExternalCounter(fallbacks.labels("lease"))
        self._budget_fallbacks = _ExternalCounter(fallbacks.labels("budget"))
        self._local_records = gauge("local_records", "Local records in force.", newest=True)
        self._local_problems = gauge(
            "local_record_problems", "Problems found in the files of local records by the last reading.", newest=True
        )
        self._tokens = gauge("upstream_budget_tokens", "Upstream queries that the budget allows now.", newest=True)
        self._store_entries = gauge("store_entries", "Entries in the store.", newest=True)
        self._store_bytes = gauge("store_bytes", "Bytes of the store.", newest=True)
        self._store_up = gauge("store_up", "1 while the store works, 0 while it fails.", newest=True)
        gauge("workers", "Worker processes that run.").set(1)
        gauge("build_info", "1, with the version of this program.", "version", newest=True).labels(version).set(1)

    def set_process_state(self, state: ProcessState) -> None:
        """Set the gauges of this process."""
        self._in_flight.set(state.in_flight)
        self._waiting.set(state.waiting)
        self._clients_waiting.set(state.clients_waiting)
        for number, upstream in enumerate(state.upstreams, 1):
            self._breaker.labels(str(number)).set(upstream.breaker)
            self._retry_after.labels(str(number)).set(upstream.retry_after)
            self._down.labels(str(number)).set(upstream.down)
        self._memory_entries.set(state.memory_entries)
        self._memory_bytes.set(state.memory_bytes)
        self._evictions.set_total(state.memory_evictions)
        self._lease_fallbacks.set_total(state.lease_fallbacks)
        self._budget_fallbacks.set_total(state.budget_fallbacks)
        self._local_records.set(state.local_records)
        self._local_problems.set(state.local_record_problems)

    def set_shared_state(self, state: SharedState) -> None:
        """Set the gauges of the state that all processes share."""
        self._tokens.set(state.tokens)
        self._store_entries.set(state.store_entries)
        self._store_bytes.set(state.store_bytes)
        self._store_up.set(state.store_up)


class _ExternalCounter:
    """A counter whose total is kept elsewhere in the process."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._last = 0

    def set_total(self, total: int) -> None:
        self._counter.inc(max(0, total - self._last))
        self._last = max(total, self._last)
