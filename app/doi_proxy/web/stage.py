"""The seam around a request: what a feature does before, with and after an answer.

A feature subclasses Admission, Encoder or Stage, and overrides what it needs. `fold_stages` makes one function of the
overridden methods once, at the start, in the order of the list of features. A method that no feature overrides is None,
and never called.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from doi_names.name import HandleName
from doi_proxy.resolver.destination import Destination
from doi_proxy.resolver.options import NO_FACTS, ClientFact
from doi_proxy.web.header import Header
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Parameters
from doi_proxy.web.responses import Receive, Reply, Send
from doi_proxy.web.route import PREPARED
from doi_proxy.web.variants import Varies
from handle_protocol.record import Record

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

    def needs_thread(self, request: Request, size: int) -> bool:
        """Whether an answer with a body of `size` bytes takes too long to encode in the event loop."""
        return False

    def prepare(self, reply: Reply) -> Reply:
        """The answer as every client gets it."""
        return reply

    def encode_now(self, request: Request, reply: Reply) -> Reply:
        """The answer as this client gets it, if that is quick."""
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

    def count_path(self, address: str, path: bytes, status: int, requests: int) -> None:
        """Count requests for a path below the sub-path, as `count_client` counts clients."""


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
    count_path: Callable[[str, bytes, int, int], object] | None = None
    country: Callable[[str], str | None] | None = None
    record_headers: Callable[[Record, HandleName], Sequence[Header]] | None = None
    wrap: tuple[Callable[[Answer], Answer], ...] = ()
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
        count_path=_fold(methods("count_path")),
        country=_fold(methods("country")),
        record_headers=_fold(methods("record_headers")),
        wrap=methods("wrap"),
        loggers=overriding("log_prepared"),
    )


def _fold(methods: Sequence[Any], join: Callable[[Iterable[Any]], Any] = list) -> Any:
    if len(methods) < 2:
        return methods[0] if methods else None
    return lambda *values: join([method(*values) for method in methods])
