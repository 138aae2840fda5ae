"""Servers that answer the same requests in different ways, with records in memory and no upstream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from doi_proxy.assembly.core import open_cache, read_resolver_timeouts
from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import CouldNotVerify, UpstreamUnreachable
from doi_proxy.features.privacy.line_writer import AccessLog, LineFormat
from doi_proxy.main import SuppliedParts, create
from doi_proxy.server.prepared_answers import PreparedAnswers
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.upstream.source import SealedSource, Source, UpstreamQuery
from doi_proxy.web.application import Application
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock

NOWHERE = "http://127.0.0.1:9"  # nothing listens on the discard port
URL = b'{"index":1,"type":"URL","data":{"format":"string","value":"http://www.doi.org/hb.html"},"ttl":86400}'
#: Longer than what is compressed at least, and shorter than what is prepared at most.
LONG = b'{"index":3,"type":"DESC","data":"%s"}' % b" ".join(b"%d" % number for number in range(1_600))
RECORDS = {
    "10.1000": b'{"index":1,"type":"DESC","data":"a prefix without a service"}',
    "10.1000/LONG": URL + b"," + LONG,
    "10.1000/182": URL,
    "10.1000/Ä": b'{"index":1,"type":"URL","data":{"format":"string","value":"http://ex\xc3\xa4mple.org/\xc3\xbc"}}',
    "10.1000/MAIL": b'{"index":1,"type":"URL","data":"mailto:a@example.org"}',
    "10.1000/NONE": b'{"index":1,"type":"DESC","data":"no target"}',
    "10.1000/SCRIPT": b'{"index":1,"type":"URL","data":"javascript:alert(1)"}',
    "10.1000/ALIAS": b'{"index":1,"type":"HS_ALIAS","data":"10.1000/182"}',
    "10.1000/LINKS": URL + b',{"index":2,"type":"10320/links","data":"<links>'
    b'<location rel=\\"cite-as\\" href=\\"http://example.org/\\"/></links>"}',
    "10.1000/LOC": URL + b',{"index":2,"type":"10320/loc","data":"<locations>'
    b'<location http_role=\\"conneg\\" href=\\"http://example.org/m\\" weight=\\"0\\"/><location href=\\"http://example.org/p\\"/></locations>"}',
}  # fmt: skip
#: For the first one, 10.1000/182 is suggested.
MISSING = ("10.1000/182.", "10.1000/MISSING")


class NoUpstream:
    """A source that fails, in place of an HTTP client, whose connections a test would have to close."""

    def __init__(self, failure: CouldNotVerify) -> None:
        self._failure = failure

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """Raises a copy of the failure."""
        raise copy(self._failure)

    async def aclose(self) -> None:
        """Nothing is open."""


class Wire(asyncio.Transport):
    """A transport that keeps what is written. `details` are for `get_extra_info`."""

    def __init__(self, **details: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 80)} | details)
        self.written = b""
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None


class FullPathProtocol(ServerProtocol):
    """The protocol without any shortcut: each request takes a task, as under any ASGI server."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._application = self._prepared = None


class Server:
    """An application with records in memory, behind one of the protocols; `lines` is its access log."""

    def __init__(
        self,
        clock: Clock,
        kind: type[ServerProtocol],
        ttl: float = 86_400.0,
        *,
        privacy: int | None = None,
        failure: CouldNotVerify | None = None,
        **more: Any,
    ) -> None:
        """With a level of `privacy` it writes an access log; `more` are settings.

        The `failure` of each query is by default that of a client that finds nothing at its port.
        """
        self.lines: list[bytes] = []
        self._failure = failure or UpstreamUnreachable()
        self._sources: list[Source] = []
        form = LineFormat("json", privacy or 0)
        log = AccessLog(
            privacy_level=privacy or 0,
            clock=clock,
            timer=lambda: 0.0,
            new_id=lambda: "made",
            write=lambda line: self.lines.append(form(line)),
        )
        # Neither budget, breaker nor patience, which run on a clock of their own.
        unbound = {"upstream_rate": 1e6, "upstream_burst": 1e6, "upstream_breaker_failures": 10**6}
        told = {"store_url": "memory:", "upstream_url": NOWHERE, "upstream_contact": "mailto:a@example.org"}
        # The page of a record would wait for its agency.
        quiet = {"access_log": "off", "metadata": False}
        self.settings = chosen = Settings(**(told | unbound | quiet | more))
        self.cache = cache = open_cache(chosen, clock)
        self.memory = cache.memory
        timeouts = replace(read_resolver_timeouts(), upstream=60.0)
        access_log = None if privacy is None else log
        parts = SuppliedParts(cache, self._without_connections, access_log=access_log, timeouts=timeouts)
        self.lifecycle = Lifecycle(chosen)
        self.application = create(chosen, parts=parts, clock=clock, chance=lambda: 0.5, lifecycle=self.lifecycle)
        self.clock, self._kind = clock, kind
        self.put_all(ttl)
        self._config = Config(self.application, log_config=None, lifespan="off")
        self._config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"Sat, 21 Nov 2026 12:00:00 GMT")]

    def _without_connections(self, source: Source) -> Source:
        self._sources.append(source)
        return source if isinstance(source, SealedSource) else NoUpstream(self._failure)

    async def close(self) -> None:
        """Close the connections of requests to Which RA. Other requests open none."""
        for source in self._sources:
            await source.aclose()

    def put_all(self, ttl: float) -> None:
        now = self.clock()
        for key, value in RECORDS.items():
            self.memory.keep(Entry(key, Answer(ResponseCode.SUCCESS, b"[" + value + b"]"), now, now + ttl, now + 10**6))
        for key in MISSING:
            self.memory.keep(Entry(key, Answer(ResponseCode.HANDLE_NOT_FOUND), now, now + ttl, now + ttl))

    async def answers(self, *chunks: bytes) -> tuple[bytes, bool]:
        """What one connection is sent for `chunks`, and whether it was closed."""
        protocol, wire = self._kind(self._config, self.state, {}), Wire()
        protocol.connection_made(wire)
        for chunk in chunks:
            if not wire.closed:
                protocol.data_received(chunk)
            while self.state.tasks or protocol._is_scheduled:
                await asyncio.gather(*self.state.tasks)
                await asyncio.sleep(0)  # lets the callbacks of the tasks run
        protocol.connection_lost(None)
        return wire.written, wire.closed


def lane_uses(application: Application) -> list[tuple[str, int]]:
    """Every prepared answer of an application from now on."""
    uses: list[tuple[str, int]] = []
    assert isinstance(application.prepared, PreparedAnswers)
    application.prepared._count_prepared = lambda method, status: uses.append((method, status))
    return uses


class Ways:
    """Servers that know the same at the same time, each of which answers in its own way."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        #: By ASGI alone, as any server would have it answered.
        self.full = Server(self.clock, FullPathProtocol, **options)
        self.now = Server(self.clock, ServerProtocol, express_lane=False, **options)
        self.express = Server(self.clock, ServerProtocol, **options)

    async def close(self) -> None:
        """See Server."""
        for server in (self.full, self.now, self.express):
            await server.close()

    async def compare(self, asked: Sequence[tuple[Sequence[bytes], float]]) -> None:
        """Send the chunks of each step to all. What is prepared in one round is used in the next."""
        self.clock.advance(10**6)
        for server in (self.full, self.now, self.express):
            server.put_all(86_400.0)
        for chunks, step in asked:
            answers = await self.full.answers(*chunks)
            lines = self._lines(self.full)
            for _ in range(3):
                for server in (self.now, self.express):
                    assert await server.answers(*chunks) == answers, chunks
                    assert self._lines(server) == lines, chunks
            self.clock.advance(step)

    def _lines(self, server: Server) -> list[dict[str, Any]]:
        """What its log says since the last time, but for the time taken and the route."""
        found = [json.loads(line) for line in server.lines]
        server.lines.clear()
        return [{word: value for word, value in line.items() if word not in ("route", "ms")} for line in found]
