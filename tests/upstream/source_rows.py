"""The sources of the contract: how a test opens one, and how the server behind it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from doi_proxy.errors import (
    CouldNotVerify,
    InvalidAnswer,
    OversizedAnswer,
    PageAnswer,
    UnprovenAnswer,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from doi_proxy.features.native.errors import ForeignAnswer, UnreadableMessage
from doi_proxy.upstream.budget import Budget, BudgetLimits
from doi_proxy.upstream.client import MAX_ANSWER_BYTES, HandleClient
from doi_proxy.upstream.guard import RoutedSource
from doi_proxy.upstream.source import SealedSource, Source
from handle_protocol.transport.udp import FIRST_WAIT, TRIES
from handle_protocol.wire.message import OpFlag
from handle_protocol.wire.site_value import TransportProtocol
from tests.fake_upstream import FakeUpstream
from tests.features.native.clients import HTTP, PROTOCOLS, TCP, UDP, client_of
from tests.handle_protocol.server import HandleServer
from tests.parts import usual_api
from tests.upstream.guards import open_guard
from tests.world.loop import WorldLoop
from tests.world.network import Wire

#: Seconds for a whole query.
TOTAL_TIMEOUT: Final = 8.0
PREFIX: Final = "10.1234"
#: What can go wrong in every protocol.
MEANINGS: Final = frozenset(
    {"silent", "reset", "wrong name", "garbage", "truncated", "too large", "wrong code", "refused"}
)


@dataclass(frozen=True)
class Failure:
    """What a server does in place of an answer, and the error that its client gets.

    `kind` is one of the server's words, and `means` one of MEANINGS. `errors` has the rows with another error.
    """

    kind: str
    error: type[CouldNotVerify]
    means: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The queries that the client sends in all.
    queries: int = 1
    errors: Mapping[str, type[CouldNotVerify]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {dict(self.options) or ''}".strip()


def _status(status: int, error: type[CouldNotVerify], **options: Any) -> Failure:
    return Failure("status", error, "refused" if error is UpstreamRefused else "", {"status": status, **options})


OF_HTTP: Final = (
    _status(500, UpstreamRefused),
    _status(502, UpstreamRefused),
    _status(599, UpstreamRefused, size=MAX_ANSWER_BYTES + 1),
    _status(503, UpstreamRefused, retry_after=7),
    _status(503, UpstreamRefused, retry_after=7, size=MAX_ANSWER_BYTES + 1),
    _status(429, UpstreamRefused, retry_after=7),
    _status(403, UpstreamRefused, retry_after=7),
    _status(403, UpstreamRefused, size=MAX_ANSWER_BYTES + 1),
    _status(404, PageAnswer),
    _status(401, UpstreamRefused),
    _status(407, UpstreamRefused),
    _status(511, PageAnswer),
    _status(300, PageAnswer),
    Failure("garbage", InvalidAnswer, "garbage"),
    Failure("html", PageAnswer),
    Failure("cookie", InvalidAnswer),
    Failure("empty", InvalidAnswer),
    Failure("wrong_name", InvalidAnswer, "wrong name"),
    Failure("values_no_list", InvalidAnswer),
    Failure("deep", InvalidAnswer),
    Failure("huge", OversizedAnswer, "too large"),
    Failure("bomb", OversizedAnswer, "too large"),
    Failure("unknown_coding", InvalidAnswer),
    Failure("bad_gzip", InvalidAnswer),
    Failure("code_2", UpstreamRefused, "wrong code"),
    Failure("redirect", UpstreamRefused, queries=4),
    Failure("redirect", UpstreamRefused, options={"location": "http://127.0.0.1:1/elsewhere"}),
    Failure("redirect", UpstreamUnreachable, options={"location": "http://host:no-port/"}),
    Failure("truncate", UpstreamUnreachable, "truncated", queries=2),
    Failure("reset", UpstreamUnreachable, "reset", queries=2),
    Failure("close", UpstreamUnreachable, queries=2),
    Failure("not_http", UpstreamUnreachable, queries=2),
    Failure("hang", UpstreamTimeout, "silent"),
    Failure("drip", UpstreamTimeout),
    Failure("delay", UpstreamTimeout, options={"seconds": TOTAL_TIMEOUT + 1}),
)
#: The client asks for signed answers. By UDP, what does not belong to its query is dropped, so it waits on.
OF_NATIVE: Final = (
    Failure("request-id", ForeignAnswer, errors={"udp": UpstreamTimeout}),
    Failure("op-code", UnreadableMessage),
    Failure("session", ForeignAnswer),
    Failure("other-name", ForeignAnswer, "wrong name"),
    Failure("cut", UnreadableMessage, "truncated", errors=dict.fromkeys(("tcp", "tunnel"), UpstreamUnreachable)),
    Failure("body-length", UnreadableMessage),
    Failure("message-length", OversizedAnswer, "too large"),
    Failure("many-packets", OversizedAnswer, "too large"),
    Failure("value-count", UnreadableMessage),
    Failure("old-version", UnprovenAnswer),
    Failure("digest", ForeignAnswer),
    Failure("no-digest", ForeignAnswer),
    Failure("garbage", UnreadableMessage, "garbage", errors={"udp": UpstreamTimeout, "tunnel": UpstreamUnreachable}),
    Failure("empty", UpstreamTimeout, "reset", errors=dict.fromkeys(("tcp", "tunnel"), UpstreamUnreachable)),
    Failure("silent", UpstreamTimeout, "silent"),
    Failure("server-error", UpstreamRefused, "wrong code"),
    Failure("protocol-error", UpstreamRefused),
    Failure("not-responsible", UpstreamRefused, "refused"),
    Failure("signature", UnprovenAnswer),
    Failure("other-key", UnprovenAnswer),
    Failure("unsigned", UnprovenAnswer),
)


class Row:
    """A source, the server that it queries, and its ends of the connections."""

    server: Any
    source: Source
    failures: Sequence[Failure]

    def __init__(self, name: str) -> None:
        self.name = name
        self._opened = AsyncExitStack()
        self._network = cast("WorldLoop", asyncio.get_running_loop()).network
        self._connect, self._wires = self._network.connect, list[Wire]()

    async def open(self) -> None:
        """Start the server, and open the source."""
        self._network.connect = self._note_wire  # type: ignore[method-assign, assignment]
        await self._open()
        self._sockets = set(self._network.sockets)
        self._opened.push_async_callback(self.source.aclose)

    async def close(self) -> None:
        """Close the source, and stop the server."""
        await self._opened.aclose()
        self._network.connect = self._connect  # type: ignore[method-assign]

    def count_open(self) -> int:
        """The connections and the sockets that the source has open."""
        opened = sum(not wire.is_closing() for wire in self._wires)
        return opened + len(set(self._network.sockets) - self._sockets)

    def fail(self, name: str, failure: Failure) -> None:
        """Let the server fail in all queries for a name."""
        raise NotImplementedError

    def read_flags(self) -> set[str]:
        """The flags of the last query."""
        raise NotImplementedError

    def most_queries(self, failure: Failure) -> int:
        """How often the server may be queried for a name that fails."""
        return failure.queries

    async def _open(self) -> None:
        raise NotImplementedError

    def _note_wire(self, *details: Any) -> Wire:
        self._wires.append(self._connect(*details))
        return self._wires[-1]


class HttpRow(Row):
    """The client of an HTTP API, alone, and among several."""

    failures = OF_HTTP

    async def _open(self) -> None:
        self.server = await self._opened.enter_async_context(FakeUpstream())
        self.source = self._open_source()

    def _open_client(self, **options: Any) -> HandleClient:
        return usual_api(self.server.url, total_timeout=TOTAL_TIMEOUT, **options)

    def _open_source(self) -> Source:
        client = self._open_client()
        match self.name:
            case "routed":
                return RoutedSource({PREFIX: client}, [SealedSource()])
            case "second":
                return RoutedSource({}, [SealedSource(), client])
            case _:
                return client

    def fail(self, name: str, failure: Failure) -> None:
        self.server.fault(name, failure.kind, **failure.options)

    def read_flags(self) -> set[str]:
        return set(parse_qs(urlsplit(self.server.targets[-1]).query))


class GuardedRow(HttpRow):
    """The client behind a breaker and the budget."""

    def _open_source(self) -> Source:
        clock = asyncio.get_running_loop().time
        limits = BudgetLimits(rate=100, burst=100, max_concurrency=100)
        self.budget = Budget(limits, clock)
        return open_guard(self._open_client(may_ask_again=self.budget.admit_retry), self.budget, clock)

    def count_open(self) -> int:
        # A place of the budget is opened and returned too.
        return super().count_open() + self.budget.in_flight


class NativeRow(Row):
    """A source that speaks the native protocol, by one transport or by all, to a named server or from the root."""

    failures = OF_NATIVE

    async def _open(self) -> None:
        first = self.server = await self._opened.enter_async_context(HandleServer())
        if self.name == "root":
            first = await self._opened.enter_async_context(HandleServer(serial=2))
            first.put_values(f"0.NA/{PREFIX}", self.server.site_value())
        opened = client_of(
            first,
            from_root=self.name == "root",
            protocols=self._protocols,
            head_start=2.0,
            udp_wait=FIRST_WAIT,
            total_timeout=TOTAL_TIMEOUT,
            monotonic=asyncio.get_running_loop().time,
        )
        self.source = await self._opened.enter_async_context(opened)

    @property
    def _protocols(self) -> tuple[TransportProtocol, ...]:
        return {"udp": (UDP,), "tcp": (TCP,), "tunnel": (HTTP,)}.get(self.name, PROTOCOLS)

    def fail(self, name: str, failure: Failure) -> None:
        self.server.lie(name, failure.kind)

    def read_flags(self) -> set[str]:
        flags = {OpFlag.AUTHORITATIVE: "auth", OpFlag.CERTIFIED: "cert"}
        return {name for flag, name in flags.items() if self.server.flags[-1] & flag}

    def most_queries(self, failure: Failure) -> int:
        # By UDP a query is sent again, and by the others on a new connection if the kept one ends.
        return sum(TRIES if protocol is UDP else 2 for protocol in self._protocols)


ROWS: Final[Mapping[str, type[Row]]] = {
    **dict.fromkeys(("http", "routed", "second"), HttpRow),
    "guarded": GuardedRow,
    **dict.fromkeys(("udp", "tcp", "tunnel", "native", "root"), NativeRow),
}
