"""The seam around a request: what a feature does before, with and after an answer.

A feature subclasses Stage and overrides what it needs. `fold_stages` puts the overridden methods into flat tuples once,
at the start, in the order of the list of features. A method that no feature overrides is never called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.resolver.destination import Destination
from app.resolver.options import NO_FACTS, ClientFact
from app.web.header import Header
from app.web.request import Request
from app.web.request_path import Parameters
from app.web.responses import Receive, Reply, Send

#: Answers a request by ASGI, given its route.
Answer = Callable[[Request, str, Receive, Send], Awaitable[None]]


class AnsweredRequest(msgspec.Struct, frozen=True, gc=False):
    """The facts about an answer that is counted: `seconds` is the time it took, `address` that of the client."""

    route: str
    method: str
    status: int
    seconds: float
    address: str


class PreparedRequest(msgspec.Struct, frozen=True, gc=False):
    """The facts about a request that a prepared answer is for, and about the answer. `path` is raw, `size` in bytes."""

    method: str
    path: bytes
    client: str
    status: int
    size: int
    cache_status: str | None


@dataclass(frozen=True, slots=True)
class Detour:
    """Another location for a redirect, with the facts about the client that it depends on. See NO_DETOUR."""

    location: str | None = None
    stub: bytes = b""
    headers: tuple[Header, ...] = ()
    facts: ClientFact = NO_FACTS
    #: `detail` in Cache-Status (RFC 9211, section 2.8).
    detail: str | None = None


#: The redirect leads to its target for every client.
NO_DETOUR = Detour()


class Stage:
    """What a feature adds to the way of a request. The methods without I/O are called in the event loop."""

    #: Whether every client is admitted now. Then `admit` and `passes` are not called.
    admits_all: bool = False
    #: Whether redirects can have a detour now. Such redirects have no prepared answer.
    makes_detours: bool = False
    #: Whether `prepare_detour` has to be awaited, for a redirect that can have a detour.
    awaits_detours: bool = False
    #: Whether `log_prepared` needs the address of the client.
    shows_clients: bool = False

    def admit(self, address: str) -> None:
        """Count a request of the client at an address. Raises ClientDenied and TooManyRequests."""

    def passes(self, address: str) -> bool:
        """Count a request that gets a prepared answer. If it is False, nothing is counted, and `admit` decides."""
        return True

    def charge_bypass(self, address: str) -> None:
        """Count a request that bypasses the cache. Raises TooManyRequests."""

    def may_renew(self, address: str) -> bool:
        """Count a renewal of a fresh record. If it is False, the cached record is the answer."""
        return True

    async def prepare_detour(self, request: Request, found: Destination) -> Any:
        """What `find_detour` has to know and memory does not have."""

    def find_detour(self, request: Request, parameters: Parameters, found: Destination, prepared: Any) -> Detour:
        """Where a redirect leads instead of its target."""
        return NO_DETOUR

    def needs_thread(self, request: Request, size: int) -> bool:
        """Whether an answer with a body of `size` bytes takes too long to encode in the event loop."""
        return False

    def concerns(self, reply: Reply) -> bool:
        """Whether `prepare` or `encode` may change an answer."""
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

    def log_now(self, request: Request, route: str, reply: Reply, seconds: float) -> bytes:
        """Log an answer that is written in one piece. Returns header lines to add to it."""
        return b""

    def log_prepared(self, answered: PreparedRequest, seconds: float) -> bytes:
        """Log a prepared answer. Returns header lines to add to it."""
        return b""

    def wrap(self, answer: Answer) -> Answer:
        """Wrap what answers a request by ASGI."""
        return answer

    def count(self, answered: AnsweredRequest) -> None:
        """Count an answer that was not prepared."""

    def count_prepared(self, method: str, status: int) -> None:
        """Count a prepared answer."""

    def sample_client(self, address: str, requests: int) -> None:
        """Count the client of one prepared answer for several of them."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of all features. The fields are named after the methods of Stage."""

    charge_bypass: tuple[Callable[[str], None], ...] = ()
    may_renew: tuple[Callable[[str], bool], ...] = ()
    needs_thread: tuple[Callable[[Request, int], bool], ...] = ()
    log_now: tuple[Callable[[Request, str, Reply, float], bytes], ...] = ()
    log_prepared: tuple[Callable[[PreparedRequest, float], bytes], ...] = ()
    wrap: tuple[Callable[[Answer], Answer], ...] = ()
    wrap_send: tuple[Callable[[Request, Send], Send], ...] = ()
    count: tuple[Callable[[AnsweredRequest], None], ...] = ()
    count_prepared: tuple[Callable[[str, int], None], ...] = ()
    sample_client: tuple[Callable[[str, int], None], ...] = ()
    #: The stages that override `admit` and `passes`.
    gates: tuple[Stage, ...] = ()
    #: The stages that override `find_detour`, and those that override `encode`.
    detours: tuple[Stage, ...] = ()
    encoders: tuple[Stage, ...] = ()
    #: The stages that override `log_prepared`.
    loggers: tuple[Stage, ...] = field(default=())

    def is_deferred(self, request: Request, size: int) -> bool:
        """Whether an answer with a body of `size` bytes is made by a task, which can use a thread."""
        return any(needs_thread(request, size) for needs_thread in self.needs_thread)


def fold_stages(stages: Sequence[Stage]) -> Stages:
    """The stages as flat tuples, in their order. The first one is the outermost."""

    def overriding(name: str) -> tuple[Stage, ...]:
        return tuple(stage for stage in stages if getattr(type(stage), name) is not getattr(Stage, name))

    def methods(name: str) -> tuple[Any, ...]:
        return tuple(getattr(stage, name) for stage in overriding(name))

    return Stages(
        charge_bypass=methods("charge_bypass"),
        may_renew=methods("may_renew"),
        needs_thread=methods("needs_thread"),
        log_now=methods("log_now"),
        log_prepared=methods("log_prepared"),
        wrap=methods("wrap"),
        wrap_send=methods("wrap_send"),
        count=methods("count"),
        count_prepared=methods("count_prepared"),
        sample_client=methods("sample_client"),
        gates=overriding("admit"),
        detours=overriding("find_detour"),
        encoders=overriding("encode"),
        loggers=overriding("log_prepared"),
    )
