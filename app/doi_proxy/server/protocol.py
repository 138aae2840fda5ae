"""uvicorn's HTTP protocol with prepared answers, answers without a task, and limits on what a client can do.

A connection parses one request, answers it, and only then parses the next. Reading pauses meanwhile, so one read of the
socket is buffered at most. Only this module and doi_proxy.server.plain_head rely on internals of uvicorn. A test finds
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Literal, Protocol, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from doi_proxy.server import plain_head, proxies
from doi_proxy.server.connections import BODY_RATE, Connections, Phase, Reason
from doi_proxy.server.listening import is_host, split_absolute
from doi_proxy.server.plain_head import ORIGIN_FORM, ReadingFlow, RequestStream, keep_alive_after_body, refusal
from doi_proxy.web.application import BEGUN, Begun, Preparation
from doi_proxy.web.request import Fields


class ServedApplication(Protocol):
    """An ASGI application with two shortcuts."""

    @property
    def prepared(self) -> Preparation | None:
        """The prepared answers. None if they are switched off."""

    @property
    def connections(self) -> Connections:
        """The connections of the process; the application carries them to the server and does not use them."""

    @property
    def base(self) -> str:
        """The path of this resolver without a slash at its end, for the links of a refusal."""

    def begin(self, scope: Any, default_headers: bytes, fields: Fields | None) -> bytes | Begun | None:
        """The whole answer to a request, or what is left of it, or None. `fields` are its headers, if read."""


def application_of(app: Any) -> ServedApplication | None:
    """The application, which the server may have wrapped in middleware; None if there is none with Connections."""
    # Middlewares that a server puts around an application.
    for _ in range(5):
        if isinstance(getattr(app, "connections", None), Connections):
            return cast(ServedApplication, app)
        app = getattr(app, "app", None)
    return None


#: The methods of uvicorn's protocol that this module overrides.
USED: Final = ("on_headers_complete", "on_message_complete", "on_body", "_start_asgi_task")
# To look up a member of an Enum is slow (doi_proxy.resolver.resolution), and most connections need these.
_IDLE: Final = Phase.IDLE
_CLIENT: Final = Reason.CLIENT
_FINISHED: Final = Reason.FINISHED
_MALFORMED: Final = "The request is malformed."
_WRONG_URL: Final = "The path or the query has a character that a URL cannot have; percent-encode it (RFC 3986)."
_WRONG_TARGET: Final = "The request target's host is not a host name with an optional port; correct it."
_NO_ROOM: Final = "Too many connections are open; try again."
_UPGRADE_WITH_BODY: Final = "A request with an Upgrade header or the method CONNECT cannot have a body here."


class ServerProtocol(HttpToolsProtocol):
    """One connection."""

    # uvicorn has 28 attributes. With more than 30 in one dictionary, its keys are not shared, and each look-up is slow.
    __slots__ = (
        "_application _base _connections _dates _ended _eof _is_advancing _is_last _is_new _is_scheduled "
        "_prepared _reason _refusal _stream _trusted _unsent _unsent_since body_since since"
    ).split()

    def __init__(self, *args: Any, client: tuple[str, int] | None = None, **options: Any) -> None:
        """`client` is the one that a header of the PROXY protocol names. By default it is the peer."""
        super().__init__(*args, **options)
        self.client = client
        application = application_of(self.app)
        if application is None:
            raise TypeError("the application has no attribute `connections` with the server's Connections")
        self._application: ServedApplication | None = application
        self._prepared = application.prepared
        self._connections, self._base = application.connections, application.base
        #: See doi_proxy.server.connections.Connection.
        self.since = self.body_since = 0.0
        self._stream = RequestStream()
        #: Whether this connection has not had a complete head yet.
        self._is_new = True
        #: Whether the request that is being read has been answered, and is the last one.
        self._is_last = False
        self._is_advancing = self._is_scheduled = False
        #: Whether the client has closed its sending side, and whether this server has.
        self._eof = self._ended = False
        self._reason = _CLIENT
        self._refusal = _MALFORMED
        #: Written bytes that were unsent at the last sweep, and the last time their number fell.
        self._unsent, self._unsent_since = 0, 0.0
        self._dates: tuple[Any, bytes] = (None, b"")
        #: The trusted front proxies of the last request with X-Forwarded-For, and whether the peer was one of them.
        self._trusted: tuple[object, bool] = (None, False)

    # --- The connection -----------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        self.connections.add(self)
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        # uvicorn takes the addresses from new objects of sockets. A TCP peer that has reset its connection has no
        # address, and must not pass as a local one.
        self.server = (own, None) if isinstance(own, str) else own[:2] if own else None
        if self.client is None:
            self.client = (proxies.UNIX_PEER, 0) if isinstance(own, str) else peer[:2] if peer else None
        self._use(transport, "http")
        if not self._connections.admit(self, self.client[0] if self.client else "", self.loop):
            self._refuse(503, _NO_ROOM, Reason.REFUSED)

    def _use(self, transport: Any, scheme: Literal["http", "https"]) -> None:
        self.transport, self.scheme = transport, scheme
        self.flow: ReadingFlow = ReadingFlow(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        super().connection_lost(exc)
        self._ended = True
        self._stream.discard()
        self._connections.remove(self, self._reason)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._ended:
            return  # answered already: what remains of the request is discarded, and is not progress
        stream = self._stream
        if stream.body_left or not (stream.head_bytes or self._is_new):
            self.since = self._connections.now
        if stream.is_one_head(data) and self._can_parse():
            self._take(data, is_head=True)
            return
        stream.push(data)
        self._advance()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client has closed its sending side. Over plain TCP, it still gets the answer that is due.

        asyncio cannot keep one side of a TLS connection open (asyncio.Protocol.eof_received).
        """
        self._eof = True
        is_due = self._stream.has_unread or not (self._stream.body_left or self._is_answered())
        return is_due and self.scheme == "http" and not self._ended

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        # The next sweep may find nothing unsent: the connection is idle from now, not from its request.
        self._unsent, self.since = 0, self._connections.now
        self._advance()

    def _settle(self) -> None:
        """The first head has arrived."""
        self._is_new = False
        self._connections.settle(self)

    # --- Parsing ------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Parse and answer the unread requests, one after the other, as far as possible now."""
        if self._is_advancing:
            return
        self._is_advancing = True
        # Parts of a stream (heads, pieces of bodies) that one connection parses in one turn of the event loop.
        for _ in range(16):
            if not self._stream.has_unread or not self._can_parse():
                break
            part = self._stream.cut()
            is_outside = not (self._stream.head_bytes or self._stream.body_left)
            self._take(part, is_head=is_outside and part.endswith(plain_head.END))
        self._is_advancing = False
        if self._stream.has_unread:
            self.flow.hold()
            if self._can_parse():
                self._schedule()
        elif self.flow.read_paused and not self.transport.is_closing():
            self.flow.release()
        if self._eof and not self._stream.has_unread and not self._ended and self._is_answered():
            self._end(Reason.CLIENT)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._advance_again)

    def _advance_again(self) -> None:
        self._is_scheduled = False
        self._advance()

    def _can_parse(self) -> bool:
        if self._stream.body_left:
            return not self._ended and not self.transport.is_closing()
        is_open = not (self._ended or self.flow.write_paused or self.transport.is_closing())
        cycle: RequestResponseCycle | None = self.cycle  # most connections have none
        return is_open and (cycle is None or self._is_answered())

    def _is_answered(self) -> bool:
        """Whether no answer is due."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or (cycle.response_complete and not self.pipeline)

    def _take(self, part: bytes, *, is_head: bool) -> None:
        """Answer a complete head with a prepared answer, or feed a part of the stream to the parser."""
        if is_head and self._prepared is not None and part.startswith((b"GET /", b"HEAD /")):
            # A last request that is not the first one too is rare, and takes the full path.
            is_only = self._is_new and plain_head.CLOSE_LINE in part
            head = part.replace(plain_head.CLOSE_LINE, b"\r\n", 1) if is_only else part
            answer = self._prepared.answer(head, self._default_headers(), self._client_of)
            if answer is not None:
                self.transport.write(plain_head.add_close(answer) if is_only else answer)
                self.server_state.total_requests += 1
                if self._is_new:
                    self._settle()
                if is_only:
                    self._end(_FINISHED)
                return
        self._stream.count(part)
        self._feed(part)

    def _feed(self, part: bytes) -> None:
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade:
            # The parser pauses after such a request. The request gets a normal answer (RFC 9110, section 7.8).
            self._connections.malformed.count_upgrade()
        except httptools.HttpParserInvalidURLError:
            self._refuse(400, _WRONG_URL, Reason.MALFORMED)
            return
        except httptools.HttpParserError:
            self._refuse(400, self._refusal, Reason.MALFORMED)
            return
        if self._stream.is_head_too_large:
            self._refuse(431, "The head of the request is larger than 64 KiB.", Reason.MALFORMED)

    def on_headers_complete(self) -> None:
        """A head has arrived: answer it without a task if the application can; else uvicorn starts one."""
        fields, version = dict(self.headers), self.parser.get_http_version()
        fault = _MALFORMED if version == "0.9" else plain_head.host_fault(self.headers, fields, version)
        if not self.url.startswith(b"/"):
            fault = fault or self._use_target_host()
            fields = dict(self.headers)
        if fault is not None:
            # The parser turns this exception into an HttpParserError; `_feed` answers 400.
            self._refusal = fault
            raise ValueError(fault)
        if self._is_new:
            self._settle()
        self._stream.end_head(plain_head.body_length(fields))
        if self._stream.body_left and self.parser.should_upgrade():
            # The parser would parse the body as the next request.
            self._refusal = _UPGRADE_WITH_BODY
            raise ValueError(_UPGRADE_WITH_BODY)
        self.since = self.body_since = self._connections.now
        try:
            answer = self._answer_now(fields, version)
        except Exception:
            # The parser would take it for a fault of the client. The full path answers 500 if it fails too.
            self.logger.exception("No answer could be given without a task.")
            answer = None
        if answer is None:
            super().on_headers_complete()
            return
        if not self.parser.should_keep_alive():
            answer, self._is_last = plain_head.add_close(answer), True
        self.transport.write(answer)
        self.server_state.total_requests += 1

    def _use_target_host(self) -> str | None:
        """Put the host that an absolute target names in the place of the Host header. Returns the fault of the target.

        RFC 9112, section 3.2.2.
        """
        absolute = split_absolute(self.url)
        if absolute is None:
            return None
        host, self.url = absolute
        self.headers[:] = [(b"host", host), *(header for header in self.headers if header[0] != b"host")]
        return None if is_host(host) else _WRONG_TARGET

    def on_message_complete(self) -> None:
        """A request has arrived completely."""
        self._stream.end_message()
        if self._is_last:
            self._end(_FINISHED)
        elif not self._is_answered():
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        """Data of a body has arrived."""
        self._stream.note_data()
        self.body_since = min(self._connections.now, self.body_since + len(body) / BODY_RATE)
        super().on_body(body)

    # --- Answering ----------------------------------------------------------------------------------------------

    def _answer_now(self, fields: Mapping[bytes, bytes], version: str) -> bytes | None:
        """The answer to a request that has no body, if it waits for nothing. A task does what is left of another."""
        application, parser = self._application, self.parser
        is_odd = self._stream.body_left or version != "1.1" or parser.should_upgrade()
        if application is None or is_odd or not (self._is_answered() and ORIGIN_FORM.fullmatch(self.url)):
            return None
        # uvicorn's answers have `connection: close` if the request has exactly that.
        if not parser.should_keep_alive() and plain_head.CLOSE not in self.headers:
            return None
        scope: Any = self.scope
        scope["method"] = parser.get_method().decode("ascii")
        scope["raw_path"], _, scope["query_string"] = self.url.partition(b"?")
        forwarded = proxies.forwarded_scope(self.app, scope) if proxies.is_forwarded(fields) else scope
        # The application joins the lines of one name (RFC 9110, section 5.3).
        is_whole = len(fields) == len(self.headers)
        begun = application.begin(forwarded, self._default_headers(), fields if is_whole else None)
        if isinstance(begun, Begun):
            scope[BEGUN] = begun
            return None
        return begun

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the task of a request."""
        # The scope of a forwarded request has the client in place of the peer. The application needs both.
        cycle.scope["doi_proxy.peer"] = self.client[0] if self.client else ""  # type: ignore[typeddict-unknown-key]
        own = cycle.scope
        cycle.scope, app = proxies.forwarded_scope(app, own), proxies.unwrap(app)  # type: ignore[arg-type,assignment]
        if cycle.scope is not own:
            client = cycle.scope["client"]
            self._connections.charge(self, None if client is None or client == self.client else client[0])
        cycle.scope["doi_proxy.abort"] = partial(self.expire, Reason.WRITE_TIMEOUT)  # type: ignore[typeddict-unknown-key]
        if self._stream.body_left:
            cycle.scope["doi_proxy.is_gone"] = lambda: cycle.disconnected  # type: ignore[typeddict-unknown-key]
            # What a cycle uses of a transport. Its `close` ends the connection after the answer.
            cycle.transport = SimpleNamespace(  # type: ignore[assignment]
                write=self.transport.write, is_closing=self.transport.is_closing, close=partial(self._end, _FINISHED)
            )
            app = keep_alive_after_body(cycle, app)
        super()._start_asgi_task(cycle, app)

    def disable_shortcuts(self) -> None:
        """Answer every request with a task from now on. Only a task obeys the `connection: close` of an answer."""
        self._application = self._prepared = None

    def on_response_complete(self) -> None:
        """An answer is written; the next request may be parsed."""
        self.server_state.total_requests += 1
        self.since = self._connections.now
        if self.transport.is_closing():
            if self._reason is Reason.CLIENT:
                self._reason = _FINISHED
            return
        if self._ended:
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        if self._stream.has_unread or self._eof:
            # Not now: the task that wrote this answer has yet to log and count it.
            self._schedule()

    def _client_of(self, forwarded_for: bytes | None) -> str:
        """The address of the client of a request with this X-Forwarded-For, None without it."""
        peer = self.client[0] if self.client else ""
        if forwarded_for is None:
            return peer
        hosts = getattr(self.app, "trusted_hosts", None)  # a reload replaces it
        if self._trusted[0] is not hosts:
            self._trusted = hosts, hosts is not None and peer in hosts
        return proxies.read_client(hosts, forwarded_for)[0] or peer if self._trusted[1] else peer

    def _default_headers(self) -> bytes:
        headers = self.server_state.default_headers
        if self._dates[0] is not headers:
            self._dates = headers, b"".join([name + b": " + value + b"\r\n" for name, value in headers])
        return self._dates[1]

    # --- The end ------------------------------------------------------------------------------------------------

    def _refuse(self, status: int, text: str, reason: Reason) -> None:
        """Refuse a request, unless its answer has begun, and end the connection."""
        if self._ended:
            return
        if reason is Reason.MALFORMED:
            self._connections.malformed.count_malformed()
        if not self._is_answered():
            cycle = self.cycle
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self._end(reason)
                return
        self.transport.write(refusal(status, text, self._default_headers(), self._base))
        self._end(reason)

    def _end(self, reason: Reason) -> None:
        """End the connection after the bytes that are already written.

        If a connection is closed with unread bytes, TCP resets it, and the client can lose the answer. So this server
        closes only its sending side, and discards what arrives until the client closes too (RFC 9112, section 9.6).
        """
        is_partial = self._stream.is_in_request
        self._ended, self._reason = True, reason
        self.since = self._connections.now
        self._stream.discard()
        if is_partial and not self._eof and self.transport.can_write_eof():
            self.flow.release()
            self.flow.resume_reading()
            self.transport.write_eof()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """End the connection after the answer that is due."""
        if self._ended:
            self.transport.close()
        else:
            super().shutdown()

    def phase(self, now: float) -> tuple[Phase, float]:
        """See doi_proxy.server.connections.Connection."""
        unsent, before = self.transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent:
            if not before or unsent < before:
                self._unsent_since = now
            return Phase.WRITE, self._unsent_since
        if before:
            self.since = now
        phase = self._phase()
        if self._stream.body_left and phase is Phase.ANSWER:
            # Reading is paused: the client waits for this service. A row that is sent while it reads is not progress.
            self.since = self.body_since = now
        return phase, self.since

    def _phase(self) -> Phase:
        if self._ended or self.transport.is_closing():
            return Phase.CLOSING
        if not self._is_answered():
            if self._stream.body_left and not self.flow.read_paused:
                return Phase.BODY
            return Phase.LEFT if self._eof else Phase.ANSWER
        if self._is_new:
            return Phase.NEW
        return Phase.HEAD if self._stream.head_bytes else _IDLE

    def expire(self, reason: Reason) -> None:
        """See doi_proxy.server.connections.Connection."""
        is_slow_to_close = self._unsent or self.scheme == "https"
        if reason in (Reason.WRITE_TIMEOUT, _FINISHED) or (reason is Reason.CAP and is_slow_to_close):
            # What is written is lost: the client does not read it, or does not end its side. TLS would wait for the
            # client's close_notify, and the descriptor would stay open.
            self._reason = self._reason if reason is _FINISHED else reason
            self.transport.abort()
        elif reason is Reason.CAP and not self._is_answered():
            # A front proxy would take a connection that ends without an answer for a failure of this server.
            self._refuse(503, _NO_ROOM, reason)
            # Another connection has its place. If its client did not end its side, the descriptor would stay open.
            self.transport.close()
        elif reason is Reason.BODY_TIMEOUT or (reason is Reason.HEAD_TIMEOUT and self._stream.head_bytes):
            self._refuse(408, "The request did not arrive in time.", reason)
        else:
            self._reason = reason
            self.transport.close()
