"""The seam around a request: what a feature does before, with and after an answer.

A feature subclasses Admission, Encoder or Stage, and overrides what it needs. `fold_stages` makes one function of the
overridden methods once, at the start, in the order of the list of features. A method that no feature overrides is None,
and never called.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import inf
from typing import Any, Final, Literal

import msgspec

from doi_names.name import HandleName
from doi_proxy.resolver.destination import Destination
from doi_proxy.resolver.resolution import NO_FACTS, ClientFact, Conditions, ResolveOptions
from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.negotiation import Varies
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import PREPARED, Header, Parameters, client_of
from doi_proxy.web.responses import Receive, Reply, Send
from handle_protocol.value import Record

#: What a section is for: the page about a name that is not registered, that about a text that is not a name, the
#: problems about both (RFC 9457), and the page of a record.
PageKind = Literal["not_found", "not_a_doi", "problem", "values"]


class Section:
    """A block of a page, with its data, or members of a problem. Reading them takes no I/O."""

    #: The file of the block's template.
    template: str
    #: Whether the block of a record comes before what is known of the record itself.
    comes_first = False

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Bring what the block needs into memory, at the cost of `client`, a network. Raises nothing."""

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """The same for the page of a record. Raises nothing."""

    async def find_in_text(self, text: str, client: str | None) -> Sequence[HandleName]:
        """The names in a text of the form. What has to be looked up is at the cost of `client`. Raises nothing."""
        return ()

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The data of the block: about a name or, without one, about a text. Empty if the page has no block.

        A page whose data have `is_pending` is not kept: a later one may say more.
        """
        return {}

    def list_watched(self, name: HandleName) -> Sequence[HandleName]:
        """The names of which `read` looks up in memory whether they exist."""
        return ()


def list_overriding(sections: Sequence[Section], method: str) -> tuple[Section, ...]:
    """The sections that override a method. A page starts a task for each that prepares something."""
    return tuple(section for section in sections if getattr(type(section), method) is not getattr(Section, method))


def read_sections(
    sections: Sequence[Section], kind: PageKind, name: HandleName | None, text: str = ""
) -> dict[str, Any]:
    """The data of all sections, and for a page the templates of their `blocks`, and of those that come first."""
    read = [(section, facts) for section in sections if (facts := section.read(kind, name, text))]
    data = {key: value for _, facts in read for key, value in facts.items()}
    if kind == "problem":
        return data
    first = [section.template for section, _ in read if section.comes_first]
    return {**data, "first_blocks": first, "blocks": [one.template for one, _ in read if not one.comes_first]}


#: Answers a request by ASGI, given its route.
Answer = Callable[[Request, str, Receive, Send], Awaitable[None]]


class PreparedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that gets a prepared answer, and the answer. `path` and `query` are raw, `size` is in bytes."""

    method: str
    path: bytes
    query: bytes
    status: int
    size: int
    cache_status: str | None
    route: str = PREPARED


@dataclass(frozen=True, slots=True)
class Detour:
    """Another location for a redirect, with the facts about the client that it depends on. See NO_DETOUR."""

    location: str | None = None
    stub: bytes = b""
    headers: tuple[Header, ...] = ()
    facts: ClientFact = NO_FACTS
    #: `detail` in Cache-Status (RFC 9211, section 2.8).
    detail: str | None = None
    #: What of a request besides its target the decision depends on. None: a fact about the client or its Host.
    varies: Varies | None = None


#: The redirect leads to its target for every client.
NO_DETOUR = Detour(varies=Varies.DATA)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision of a stage, for an operator who asks why. `settings` are the names of the settings that decide."""

    result: str
    reason: str
    settings: tuple[str, ...] = ()
    detour: Detour = NO_DETOUR
    #: The status of a refusal.
    status: int | None = None


class Admission:
    """Which requests of which clients are answered. This class admits every client.

    The methods are called in the event loop.
    """

    #: Whether every client is admitted now. Then `admit` and `passes` need not be called.
    admits_all: bool = True

    def admit(self, address: str, *, is_forgeable: bool = False) -> None:
        """Count a request of the client at an address. Raises ClientDenied and TooManyRequests.

        If the address can be forged, the request is charged to the account of all such peers.
        """

    def is_exempt(self, address: str) -> bool:
        """Whether the operator lifts the limits of requests for the network of an address."""
        return False

    def explain_admission(self, address: str) -> Explanation:
        """What `admit` does with the client now. Nothing is counted."""
        return Explanation("yes", "This installation has no limits of clients.")

    def passes(self, address: str) -> bool:
        """Count a request that gets a prepared answer. If it is False, nothing is counted, and `admit` decides."""
        return True

    def charge(self, address: str, cost: float) -> None:
        """Count what an answer cost, in requests: a name of a list and a kilobyte of a text are one each."""

    def charge_bypass(self, address: str) -> None:
        """Count a request that bypasses the cache. Raises TooManyRequests."""

    def may_renew(self, address: str) -> bool:
        """Count a renewal of a fresh record. If it is False, the cached record is the answer."""
        return True


class Encoder:
    """Answers in the form that a client accepts. This class leaves them as they are.

    The methods without I/O are called in the event loop.
    """

    #: The smallest body that `prepare` and `encode` may change, in bytes. They may change every 304.
    encodes_from: int = sys.maxsize

    def prepare(self, reply: Reply) -> Reply:
        """The answer as every client gets it."""
        return reply

    async def encode(self, request: Request, reply: Reply) -> Reply:
        """The answer as this client gets it."""
        return reply

    def wrap_send(self, request: Request, send: Send) -> Send:
        """Encode the messages of an answer that FastAPI gives."""
        return send


class Stage:
    """What a feature adds around the answer to a request. The methods without I/O are called in the event loop."""

    #: Whether redirects can have a detour now. `varies` of the detour says which of them have a prepared answer.
    makes_detours: bool = False
    #: Whether `prepare_detour` has to be awaited, for a redirect that can have a detour.
    awaits_detours: bool = False
    #: Whether `log_prepared` needs the address of the client.
    shows_clients: bool = False

    def country(self, address: str) -> str | None:
        """The country of a client's address, as an ISO 3166 code. None if it is unknown."""
        return None

    def record_headers(self, record: Record, name: HandleName) -> Sequence[Header]:
        """The headers that a record adds to the redirect of its name."""
        return ()

    async def prepare_detour(self, request: Request, found: Destination) -> Any:
        """What `find_detour` has to know and memory does not have."""

    def find_detour(self, request: Request, parameters: Parameters, found: Destination, prepared: Any) -> Detour:
        """Where a redirect leads instead of its target."""
        return NO_DETOUR

    def explain_detour(
        self, request: Request, parameters: Parameters, found: Destination, prepared: Any
    ) -> Explanation:
        """What `find_detour` does with a redirect. Nothing is counted."""
        return Explanation("none", "No feature of this installation changes targets.")

    def log_now(self, request: Request, route: str, reply: Reply, seconds: float) -> bytes:
        """Log an answer that is written in one piece. Returns header lines to add to it."""
        return b""

    def log_prepared(self, answered: PreparedRequest, client: str, seconds: float) -> bytes:
        """Log a prepared answer to the client at an address. Returns header lines to add to it."""
        return b""

    def wrap(self, answer: Answer) -> Answer:
        """Wrap what answers a request by ASGI."""
        return answer

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answer that was not prepared, and the time it took."""

    def count_prepared(self, method: str, status: int) -> None:
        """Count a prepared answer."""

    def count_client(self, address: str, requests: int) -> None:
        """Count requests of a client. The client of one prepared answer stands for several of them."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What all features add. A field is named after a member of a class above. A method that no feature has is None."""

    #: At most one feature adds each of these three, and at most one adds `country` or `record_headers`.
    admission: Admission
    encoder: Encoder
    #: The stage that overrides `find_detour`.
    detours: Stage
    log_now: Callable[[Request, str, Reply, float], bytes] | None = None
    log_prepared: Callable[[PreparedRequest, str, float], bytes] | None = None
    count: Callable[[str, str, int, float], object] | None = None
    count_prepared: Callable[[str, int], object] | None = None
    count_client: Callable[[str, int], object] | None = None
    country: Callable[[str], str | None] | None = None
    record_headers: Callable[[Record, HandleName], Sequence[Header]] | None = None
    wrap: tuple[Callable[[Answer], Answer], ...] = ()
    #: Whether an answer takes a task from its beginning: a stage wraps it that does not log it, as that of spans.
    takes_task: bool = False
    #: The stages that override `log_prepared`.
    loggers: tuple[Stage, ...] = ()


def fold_stages(parts: Iterable[object]) -> Stages:
    """The stages among the parts of features, each method as one function, in their order. The first is the outermost.

    Other parts are left out.
    """
    found = list(parts)
    stages = tuple(part for part in found if isinstance(part, Stage))

    def overriding(name: str) -> tuple[Stage, ...]:
        return tuple(stage for stage in stages if getattr(type(stage), name) is not getattr(Stage, name))

    def methods(name: str) -> tuple[Any, ...]:
        return tuple(getattr(stage, name) for stage in overriding(name))

    # Two of one kind do not fit: the start fails.
    (admission,) = [part for part in found if isinstance(part, Admission)] or [Admission()]
    (encoder,) = [part for part in found if isinstance(part, Encoder)] or [Encoder()]
    (detours,) = overriding("find_detour") or (Stage(),)
    return Stages(
        admission=admission,
        encoder=encoder,
        detours=detours,
        log_now=_fold(methods("log_now"), b"".join),
        log_prepared=_fold(methods("log_prepared"), b"".join),
        count=_fold(methods("count")),
        count_prepared=_fold(methods("count_prepared")),
        count_client=_fold(methods("count_client")),
        country=_fold(methods("country")),
        record_headers=_fold(methods("record_headers")),
        wrap=methods("wrap"),
        takes_task=not {*overriding("wrap")} <= {*overriding("log_now")},
        loggers=overriding("log_prepared"),
    )


def _fold(methods: Sequence[Any], join: Callable[[Iterable[Any]], Any] = list) -> Any:
    if len(methods) < 2:
        return methods[0] if methods else None
    return lambda *values: join([method(*values) for method in methods])


#: A record younger than this answers the reload of a page, in seconds: a reload must not cost a query each time.
RELOAD_AGE: Final = 10.0
#: Seconds that all queries of one request may take, with their waits. They go on for the next request.
REQUEST_SECONDS: Final = 8.0
#: Larger numbers count as this one (RFC 9111, section 1.2.2).
_MAX_SECONDS: Final = 2_147_483_648.0


class CacheDirectives(msgspec.Struct, frozen=True, gc=False):
    """Which cached records a request accepts. Times are in seconds; None where the request does not say."""

    #: The largest age of a record. `no-cache` is 0.
    max_age: float | None = None
    #: The longest time past its TTL of a record that is used without an upstream query.
    max_stale: float | None = None
    #: The longest time past its TTL of a record that is used because the upstream failed.
    stale_if_error: float | None = None
    only_if_cached: bool = False


NO_DIRECTIVES: Final = CacheDirectives()


def read_directives(cache_control: str | None) -> CacheDirectives:
    """The directives of a header. Unknown ones, and those with a bad value, are ignored."""
    # Longer headers are ignored.
    if not cache_control or len(cache_control) > 1_024:
        return NO_DIRECTIVES
    return _read(cache_control)


@lru_cache(maxsize=256)
def _read(cache_control: str) -> CacheDirectives:
    found = dict(_split(part) for part in cache_control.split(","))
    max_stale = inf if found.get("max-stale") == "" else _seconds(found.get("max-stale"))
    return CacheDirectives(
        max_age=0.0 if "no-cache" in found else _seconds(found.get("max-age")),
        max_stale=max_stale,
        stale_if_error=_seconds(found.get("stale-if-error")),
        only_if_cached="only-if-cached" in found,
    )


def _split(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _seconds(text: str | None) -> float | None:
    """A number of seconds (RFC 9111, section 1.2.2), None for anything else."""
    return min(float(text), _MAX_SECONDS) if text is not None and text.isascii() and text.isdigit() else None


def read_conditions(request: Request, options: ResolveOptions, stages: Stages) -> Conditions:
    """The conditions of a request: its options, and the client that is charged."""
    client = client_of(request.client_address)
    directives = directives_of(request)
    if directives is NO_DIRECTIVES and not options.bypasses_cache:
        return Conditions(client=client, due=due_of(request))
    address, youngest, admission = request.client_address, directives.max_age, stages.admission
    return Conditions(
        options.authoritative,
        options.certified,
        client=client,
        # A request with aliases bypasses the cache several times, and is counted once.
        admit_bypass=cache(partial(admission.charge_bypass, address)),
        only_cached=directives.only_if_cached,
        max_age=None if youngest is None else max(youngest, RELOAD_AGE),
        may_renew=partial(admission.may_renew, address),
        max_stale=directives.max_stale,
        stale_if_error=inf if directives.stale_if_error is None else directives.stale_if_error,
        due=due_of(request),
    )


def conditions_for_others(request: Request) -> Conditions:
    """The conditions for further names that the answer to a request needs, at the cost of its client."""
    only_cached = directives_of(request).only_if_cached
    return Conditions(client=client_of(request.client_address), only_cached=only_cached, due=due_of(request))


def due_of(request: Request) -> float:
    """When the answer to a request is due. The same for all queries that the request causes."""
    request.due = request.due or time.monotonic() + REQUEST_SECONDS
    return request.due


def directives_of(request: Request) -> CacheDirectives:
    """The directives of a request's Cache-Control."""
    # Most requests have none.
    sent = request.header(CACHE_CONTROL)
    return NO_DIRECTIVES if sent is None else read_directives(sent)
