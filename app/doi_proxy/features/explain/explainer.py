"""Explains the answer to a request: each decision in order, with its reason and its settings.

The functions that decide are called. This module only puts their results into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from doi_names.name import HandleName
from doi_proxy import errors
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import FAILURES, DoiProxyError, PrefixDenied, as_failure
from doi_proxy.features.feature import Context, Core
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.destination import Destination, Destinations, Kind
from doi_proxy.resolver.fetcher import FailureMemory
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import ORDINARY, Origin, Resolution, next_step
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.budget import QUEUE_TIMEOUT
from doi_proxy.upstream.guard import Guard, RoutedSource, find_last_answer, find_refusal
from doi_proxy.upstream.source import Refusal, SealedSource, Source, UpstreamQuery
from doi_proxy.web.redirect import Face
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import NO_PARAMETERS, client_of
from doi_proxy.web.responses import Message, Reply
from doi_proxy.web.stage import NO_DETOUR, Detour
from handle_protocol.referral import Answer

#: The decisions, in the order in which a request meets them.
DecisionName = Literal[
    "admitted", "local record", "cache", "back-off", "budget", "upstream", "alias", "location", "target", "rule",
    "headers",
]  # fmt: skip


class DecisionReport(BaseModel):
    """One decision."""

    decision: DecisionName
    result: str = Field(description="The decision in a few words.", examples=["answer"])
    reason: str = Field(description="What it was made from.")
    settings: dict[str, str | None] = Field(description="The settings that it depends on, with secrets masked.")


class ExplainReport(BaseModel):
    """Why a client gets its answer about a name."""

    doi: str = Field(examples=["10.1000/182"])
    client: str = Field(description="The address of the client.", examples=["192.0.2.7"])
    status: int | None = Field(description="The status that the client gets; null if the upstream decides it.")
    location: str | None = Field(description="Where the redirect leads; null without one.")
    decisions: list[DecisionReport] = Field(description="Every decision, in order.")


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


_SETTINGS: Final[dict[DecisionName, tuple[str, ...]]] = {
    "local record": ("local_records",),
    "cache": ("store_url", "cache_ttl_floor", "cache_ttl_ceiling", "cache_negative_ttl", "cache_grace"),
    "back-off": ("mode", "upstream_breaker_failures", "upstream_breaker_cooldown"),
    "budget": ("upstream_rate", "upstream_burst", "upstream_max_concurrency"),
    "upstream": ("mode", "upstream_url", "upstream_routes", "upstream_timeout"),
    "alias": (),
    "location": ("country_database",),
    "target": ("resolve",),
    "headers": ("record_headers", "privacy_level"),
}  # fmt: skip
_ORIGINS: Final = {
    Origin.ASKED: "The cache had no answer, and the upstream gave one.",
    Origin.RENEWED: "The record was past its TTL, and the upstream gave a new one.",
    Origin.HIT: "The record is fresh.",
    Origin.STALE: "The record is past its TTL, and the upstream failed or is not queried.",
    Origin.REGISTRY: "The record is from the file of a registration agency.",
    Origin.LOCAL: "A local record answers.",
}
_KINDS: Final = {
    Kind.ALIAS: "The answer is a redirect to the name that the alias stands for.",
    Kind.LOCATIONS: "The answer is the list of locations.",
    Kind.VALUES: "No value is a URL that a redirect can lead to, so the answer shows the values.",
    Kind.NO_VALUES: "The name has a record without public values.",
    Kind.NOT_FOUND: "The name is not registered.",
}
_UNKNOWN: Final = "This depends on the answer of the upstream; add --fetch to query it."


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """A request to explain. `accept` and `language` are the values of its headers."""

    name: HandleName
    client: str
    accept: str
    language: str | None = None


class Explainer:
    """Explains the answers of one process."""

    def __init__(self, context: Context, core: Core, face: Face) -> None:
        self._context = context
        self._core = core
        self._face = face
        self._stages = face.stages

    async def explain(self, explained: ExplainedRequest, *, fetch: bool = False) -> ExplainReport:
        """Every decision about a request. With `fetch`, a query is sent if one is needed, at the service's own cost."""
        destinations, rehearsed = rehearse(self._core, self._context.clock)
        admission, refused = self._admission(explained)
        decisions = [admission, self._local_record(explained.name)]
        decisions += [await self._cache(explained.name), self._back_off(explained.name), await self._budget(explained)]
        found, error = await self._find(explained, self._core.destinations if fetch else destinations)
        decisions.append(self._upstream(explained.name, rehearsed, found, error, was_fetched=fetch))
        is_open = error is not None and rehearsed.query is not None and rehearsed.refusal is None and not fetch
        if is_open:
            decisions += [self._report(name, "open", _UNKNOWN) for name in ("alias", "location", "target")]
            decisions += [self._report("rule", "open", _UNKNOWN), self._report("headers", "open", _UNKNOWN)]
            reply = None
        else:
            steps, reply = await self._answer(explained, found, error, may_query=fetch)
            decisions += steps
        location = None if reply is None else dict(reply.headers).get(b"location")
        status = None if reply is None else reply.status
        if refused is not None:
            admitted = "the upstream would decide" if status is None else f"the answer would be {status}"
            reason = f"The client gets this refusal and no record. If it were admitted, {admitted}."
            decisions[-1] = self._report("headers", str(refused), reason)
            status, location = refused, None
        return ExplainReport(
            doi=explained.name.text,
            client=explained.client,
            status=status,
            location=None if location is None else location.decode(),
            decisions=decisions,
        )

    def _report(
        self, decision: DecisionName, result: str, reason: str, settings: tuple[str, ...] | None = None
    ) -> DecisionReport:
        values, names = self._context.reloads.show_settings(), settings or _SETTINGS.get(decision, ())
        shown = {name: values[name] for name in names if name in values}
        return DecisionReport(decision=decision, result=result, reason=reason, settings=shown)

    # --- Before the records ---------------------------------------------------------------------------------------

    def _admission(self, explained: ExplainedRequest) -> tuple[DecisionReport, int | None]:
        """Whether the client is admitted, and the status of a refusal."""
        outcome = self._stages.admission.explain_admission(explained.client)
        return self._report("admitted", outcome.result, outcome.reason, outcome.settings), outcome.status

    def _local_record(self, name: HandleName) -> DecisionReport:
        records, now = self._core.resolver.local_records, self._context.clock()
        place = None if records is None else records.find_place(name, now)
        if records is None or place is None:
            return self._report("local record", "none", "No local record is about the name or its prefix.")
        try:
            found = records.resolve(name, now)
        except PrefixDenied as denied:
            return self._report("local record", "denies", f"{place} denies the prefix: {denied.message}")
        tombstone = None if found is None else found.tombstone
        if tombstone is not None:
            reason = f"{place} says that the name is gone since {tombstone.date}: {tombstone.reason}"
            return self._report("local record", "tombstone", reason)
        return self._report("local record", "answers", f"{place} answers in place of the cache and the upstream.")

    async def _cache(self, name: HandleName) -> DecisionReport:
        now, in_memory = self._context.clock(), self._core.cache.peek(name.key)
        entry = in_memory if in_memory is not None else await self._core.cache.find(name.key)
        if entry is None:
            return self._report("cache", "absent", "Neither memory nor the store has an answer about the name.")
        is_sealed = self._context.settings.mode == "sealed"
        step = next_step(entry, now, ORDINARY, has_failed=is_sealed or self._failed_recently(name) is not None)
        place = "memory" if in_memory is not None else "the store"
        return self._report("cache", step.value, f"In {place}: {_describe_entry(entry, now)}")

    def _back_off(self, name: HandleName) -> DecisionReport:
        refusal = self._core.resolver.find_refusal(name)
        recent = self._failed_recently(name)
        if refusal is not None and refusal.by not in ("budget", "local record"):
            return self._report("back-off", "yes", _describe_refusal(refusal))
        if recent is not None:
            reason = f"The last query about the name failed a moment ago ({recent.token}); a stale record is used."
            return self._report("back-off", "yes", reason)
        return self._report("back-off", "none", "Queries about the name may be sent.")

    def _failed_recently(self, name: HandleName) -> DoiProxyError | None:
        return self._core.resolver.find_recent_failure(name, self._context.clock())

    async def _budget(self, explained: ExplainedRequest) -> DecisionReport:
        budget, tokens = self._core.upstream.budget, self._core.upstream.budget.tokens
        client = client_of(explained.client)
        reason = f"{tokens:.1f} queries can be sent now, and {budget.rate:g} a second are added; {budget.in_flight} "
        reason += f"are in flight and {budget.waiting} wait, {budget.waiting_of(client)} of them for {client}."
        refusal = budget.refusal
        if refusal is None:
            return self._report("budget", "left", reason)
        return self._report("budget", "used up", f"{reason} The next one can be sent in {refusal.seconds:.1f} s.")

    # --- The records ----------------------------------------------------------------------------------------------

    async def _find(
        self, explained: ExplainedRequest, destinations: Destinations
    ) -> tuple[Destination | None, DoiProxyError | None]:
        request = _request(explained, self._context.public_url)
        try:
            query = self._face.redirects.read_query(request, explained.name, NO_PARAMETERS)
            # A query is at the service's own cost.
            return await destinations.find(query, ORDINARY), None
        except FAILURES as error:
            return None, as_failure(error)

    def _upstream(
        self,
        name: HandleName,
        rehearsed: RehearsedSource,
        found: Destination | None,
        error: DoiProxyError | None,
        *,
        was_fetched: bool,
    ) -> DecisionReport:
        label = ", ".join(self._describe_upstreams(name)) or "The proxy is sealed."
        if was_fetched:
            outcome = found.resolution.origin.value if found is not None else str(getattr(error, "token", ""))
            return self._report("upstream", outcome, f"Queried if it was needed: {label}")
        query, refusal = rehearsed.query, rehearsed.refusal
        if query is None:
            return self._report("upstream", "not queried", f"No query is needed. {label}")
        about = "" if query.name == name else f" about {query.name.text}"
        if refusal is not None:
            return self._report(
                "upstream", "refused", f"A query{about} is refused. {_describe_refusal(refusal)} {label}"
            )
        stale = "" if found is None else " Without an answer in time, the record that is shown below is the answer."
        return self._report("upstream", "queried", f"A query{about} would be sent.{stale} {label}")

    def _describe_upstreams(self, name: HandleName) -> Iterator[str]:
        source = self._core.upstream.source
        for upstream in source.sources_of(name) if isinstance(source, RoutedSource) else (source,):
            if isinstance(upstream, Guard):
                yield f"{upstream.log.label}: {upstream.state}"

    # --- The answer -----------------------------------------------------------------------------------------------

    async def _answer(
        self, explained: ExplainedRequest, found: Destination | None, error: DoiProxyError | None, *, may_query: bool
    ) -> tuple[list[DecisionReport], Reply]:
        if found is None or error is not None:
            reply = self._face.errors.answer(
                _request(explained, self._context.public_url),
                error or DoiProxyError(),
                name=explained.name,
                typed="",
            )
            reason = "" if error is None else f"{error.message} ({error.token})"
            names: tuple[DecisionName, ...] = ("alias", "location", "target", "rule")
            return [*(self._report(name, "none", reason) for name in names), self._headers(reply)], reply
        names_of = (f"{one.name.text} ({_describe_origin(one)})" for one in found.resolution.chain)
        alias = self._report("alias", "followed" if found.resolution.aliases else "none", " → ".join(names_of))
        steps = [alias, self._location(found), self._target(found)]
        rule, detour = await self._rule(explained, found, may_query=may_query)
        request = _request(explained, self._context.public_url)
        query = self._face.redirects.read_query(request, explained.name, NO_PARAMETERS)
        reply = self._face.redirects.reply(request, query.options, NO_PARAMETERS, found, detour=detour)
        return [*steps, rule, self._headers(reply)], reply

    def _location(self, found: Destination) -> DecisionReport:
        locations = found.locations
        if not locations.any:
            return self._report("location", "none", "The record has no 10320/loc value that counts.")
        facts = [str(fact.name).lower().replace("_", " ") for fact in found.facts]
        own, of_prefix = len(locations.of_name.items), len(locations.of_prefix.items)
        reason = f"{own} locations of the name and {of_prefix} of its prefix; chooseby is "
        reason += f"{locations.setting('chooseby') or 'the default'}; decided by {', '.join(facts) or 'the record'}."
        return self._report(
            "location", "chosen", "".join([reason, *(f" Left out: {problem}" for problem in locations.malformed)])
        )

    def _target(self, found: Destination) -> DecisionReport:
        target = found.target
        if target is None:
            if found.resolution.tombstone is not None:
                return self._report("target", "tombstone", "A local record says that the name is gone.")
            return self._report("target", found.kind.value, _KINDS.get(found.kind, ""))
        source = "the chosen location" if found.locations.any else "its URL value"
        return self._report("target", target.location, f"The target is {source}; status {target.status}.")

    async def _rule(
        self, explained: ExplainedRequest, found: Destination, *, may_query: bool
    ) -> tuple[DecisionReport, Detour]:
        if not found.resolution.allows_detour:
            return self._report("rule", "none", "The local record exempts the name."), NO_DETOUR
        public_url = self._context.public_url
        request = _request(explained, public_url)
        # The registration agency is then looked up in the cache alone.
        cached = request if may_query else _request(explained, public_url, (b"cache-control", b"only-if-cached"))
        detours = self._stages.detours
        fact = await detours.prepare_detour(cached, found) if detours.awaits_detours else None
        outcome = detours.explain_detour(request, NO_PARAMETERS, found, fact)
        return self._report("rule", outcome.result, outcome.reason, outcome.settings), outcome.detour

    def _headers(self, reply: Reply) -> DecisionReport:
        lines = [f"{name.decode()}: {value.decode('latin-1')}" for name, value in (*reply.headers, *reply.freshness)]
        return self._report("headers", str(reply.status), "\n".join(lines))


def _request(explained: ExplainedRequest, public_url: str | None, *headers: tuple[bytes, bytes]) -> Request:
    """The request, as the server would pass it on."""
    sent = [(b"accept", explained.accept.encode("latin-1", "replace")), *headers]
    if explained.language:
        sent.append((b"accept-language", explained.language.encode("latin-1", "replace")))
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "http_version": "1.1",
        "scheme": "http",
        "path": "/" + explained.name.text,
        "raw_path": b"/",
        "query_string": b"",
        "headers": sent,
        "client": (explained.client, 0),
    }
    return Request(scope, _no_body, public_url=public_url, sub_path=b"")


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _describe_entry(entry: Entry, now: float) -> str:
    kind = {1: "a record", 100: "“not found”", 200: "“no values”"}.get(int(entry.answer.code), "an answer")
    if entry.agency is not None:
        agency = entry.agency or "a registration agency"
        return f"a record from the file of {agency}, dated {_time(claims.dated_at(entry))}."
    fetched, fresh_until = _time(claims.dated_at(entry)), _time(claims.fresh_until(entry))
    times = f"fetched {fetched}, fresh until {fresh_until}, usable in an outage until {_time(entry.usable_until)}"
    return f"{kind}, {claims.find_currency(entry, now).value}, {times}."


def _describe_origin(resolution: Resolution) -> str:
    reason = _ORIGINS.get(resolution.origin, f"It is from the upstream ({resolution.origin.value}).")
    return reason if resolution.failure is None else f"{reason[:-1]}: {resolution.failure.token}."


def _describe_refusal(refusal: Refusal) -> str:
    if refusal.by == "sealed":
        return "In sealed mode no query is sent."
    until = "" if refusal.seconds == inf else f" The next one can be sent in {refusal.seconds:.1f} s."
    return f"No query is sent because of the {refusal.by} ({refusal.reason}).{until}"


def _time(seconds: float | None) -> str:
    """A time as ISO 8601 in UTC; "always" for that of a local record."""
    if seconds is None:
        return "at an unknown time"
    return "always" if seconds == inf else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
