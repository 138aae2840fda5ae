"""The HTTP server of one process: its options, and a shutdown that loses no request."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import uvicorn

from doi_proxy.server.connections import Connections, Phase, Reason
from doi_proxy.server.plain_head import CLOSE
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.server.proxies import UNIX_PEER, trusted_hosts
from doi_proxy.server.proxy_header import MalformedHeader, read_proxy_header
from doi_proxy.server.tls import Certificate, TlsLayer


class ProxyProtocolLayer(asyncio.Protocol):
    """One connection until its header has arrived. See doi_proxy.server.connections.Connection.

    Every connection has a header: to guess whether there is one would let any client name another (section 2). A peer
    that is not a trusted proxy may only say that it opened the connection for itself, as health checks do.
    """

    def __init__(self, create_protocol: Callable[..., Any], connections: Connections, **options: Any) -> None:
        """`create_protocol` makes the protocol of TLS or HTTP. `options` are those of uvicorn's protocol."""
        self._create_protocol = create_protocol
        self._connections = connections
        self._options = options
        self._open: set[Any] = options["server_state"].connections
        self._data = b""
        self._reason = Reason.CLIENT
        self.since = self.body_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A front proxy, or a program on this machine, has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        # A peer that has reset its connection before it was accepted has no address.
        self._peer: str = UNIX_PEER if isinstance(own, str) else peer[0] if peer else ""
        if not self._connections.admit(self, self._peer, asyncio.get_running_loop()):
            self.expire(Reason.REFUSED)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed before the end of its header."""
        self._open.discard(self)
        self._connections.remove(self, self._reason)

    def data_received(self, data: bytes) -> None:
        """Bytes of the header, and what follows it."""
        if self._transport.is_closing():
            return
        self._data += data
        try:
            header = read_proxy_header(self._data)
            if header is not None and header.client and not self._connections.is_trusted(self._peer):
                raise MalformedHeader
        except MalformedHeader:
            self._connections.malformed.count_proxy_header()
            self.expire(Reason.PROXY_HEADER)
            return
        if header is not None:
            self._hand_over(header.client, self._data[header.length :])

    def _hand_over(self, client: tuple[str, int] | None, rest: bytes) -> None:
        """Let TLS or HTTP have the connection. From now on, it counts as one of the client."""
        self._connections.forget(self)
        self._open.discard(self)
        protocol = self._create_protocol(client=client, **self._options)
        # uvloop chooses how it reads when reading begins, and TLS reads into a buffer of its own.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)

    def disable_shortcuts(self) -> None:
        """No request has arrived that could be answered."""

    def shutdown(self) -> None:
        """End the connection."""
        self._transport.close()

    def phase(self, now: float) -> tuple[Phase, float]:
        """See doi_proxy.server.connections.Connection."""
        return Phase.CLOSING if self._transport.is_closing() else Phase.NEW, self.since

    def expire(self, reason: Reason) -> None:
        """See doi_proxy.server.connections.Connection. No request has arrived, so no answer is lost."""
        self._reason = reason
        self._transport.abort()


log = logging.getLogger(__name__)

#: Connections that may wait to be accepted.
BACKLOG: Final = 2048
#: Seconds for requests under way to finish after the port is closed: all queries of one request have 8 s together.
GRACE: Final = 8.0
#: Seconds for which idle connections are still read after the port is closed, because a request may be on its way.
LINGER: Final = 0.5
_LINGER_STEP: Final = 0.05


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The settings that the server uses."""

    trusted_proxies: tuple[str, ...]
    #: Whether every connection begins with a header of the PROXY protocol.
    proxy_protocol: bool
    certificate: Certificate
    #: See GRACE.
    grace: float


@dataclass(frozen=True, slots=True)
class FurtherListener:
    """A bound socket of its own, and the application that it serves without TLS. No proxy is trusted there.

    An application with a method `serve` serves the socket itself: it gets the socket, the state of the server and the
    maker of a protocol of HTTP, and returns an asyncio.Server.
    """

    application: Any
    socket: socket.socket


@dataclass(frozen=True, slots=True)
class Events:
    """Callbacks: `ready` when the server can answer, `draining` when it begins to drain, `alive` every second."""

    ready: Callable[[], None]
    draining: Callable[[], None]
    alive: Callable[[], None] = lambda: None


class HttpServer(uvicorn.Server):
    """Serves one application. A subclass overrides `capture_signals` to decide when it drains."""

    def __init__(
        self, application: Any, options: ServerOptions, events: Events, further: Sequence[FurtherListener] = ()
    ) -> None:
        self._certificate = options.certificate
        config = _configure(application, options)
        config.load()
        super().__init__(config)
        self.set_trusted_proxies(options.trusted_proxies)
        self._events = events
        self._further = further
        self._draining = asyncio.Event()

    def load_certificate(self, certificate: Path | None, key: Path | None) -> None:
        """Use this certificate for new connections. Raises ConfigurationError and keeps the previous certificate."""
        self._certificate.replace(certificate, key)
        if certificate is not None:
            log.info("new connections get the certificate in %s", certificate)

    def set_trusted_proxies(self, proxies: tuple[str, ...]) -> None:
        """Accept forwarding headers from these addresses only."""
        middleware: Any = self.config.loaded_app
        middleware.trusted_hosts = trusted_hosts(proxies)

    def drain(self) -> None:
        """Answer 503 at `/readyz`, and shut down. Later calls do nothing."""
        if self._draining.is_set():
            return
        log.info("draining: /readyz answers 503, and the port closes")
        self._events.draining()
        self.should_exit = True
        self._draining.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        for listener in self._further:
            self.servers.append(await self._serve_further(listener))
        self._events.ready()

    async def _serve_further(self, listener: FurtherListener) -> asyncio.Server:
        """Serve a further listener with the connections, the limits and the shutdown of this server."""
        application = listener.application
        config = uvicorn.Config(
            application, http=ServerProtocol, log_config=None, access_log=False, proxy_headers=False, ws="none"
        )
        config.load()
        create_protocol = partial(ServerProtocol, config, self.server_state, self.lifespan.state)
        serve = getattr(application, "serve", None)
        if serve is not None:
            served: asyncio.Server = await serve(listener.socket, self.server_state, create_protocol)
            return served
        loop = asyncio.get_running_loop()
        return await loop.create_server(create_protocol, sock=listener.socket, backlog=BACKLOG)

    async def main_loop(self) -> None:
        """Renew the line `Date` and report every second that the process does not hang, until it drains.

        uvicorn's own loop wakes ten times a second.
        """
        while not await self.on_tick(0):
            self._events.alive()
            with suppress(TimeoutError):
                # Seconds between two lines `Date`, and two reports that the process does not hang.
                async with asyncio.timeout(1.0):
                    await self._draining.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, answer the requests that have arrived, and end the application."""
        await self._close_port([*(sockets or []), *(listener.socket for listener in self._further)])
        await self._linger()
        await super().shutdown(sockets)

    async def _close_port(self, sockets: Sequence[socket.socket]) -> None:
        # The kernel resets connections that it has established and this process has not accepted.
        waiting = select.poll()
        for listening in sockets:
            waiting.register(listening, select.POLLIN)
        # Turns of the event loop in which connections that the kernel has established are accepted before the port
        # closes.
        for _ in range(100):
            if not waiting.poll(0):
                break
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for listening in sockets:
            listening.close()

    async def _linger(self) -> None:
        """Answer requests that are on their way on open connections, and close each connection after its answer."""
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        deadline = asyncio.get_running_loop().time() + LINGER
        while asyncio.get_running_loop().time() < deadline:
            for connection in self.server_state.connections:
                connection.disable_shortcuts()  # type: ignore[union-attr]
            await asyncio.sleep(_LINGER_STEP)
            if not self.server_state.connections:
                return


def _configure(application: Any, options: ServerOptions) -> uvicorn.Config:
    protocol: Any = ServerProtocol if options.certificate.context is None else partial(TlsLayer, options.certificate)
    if options.proxy_protocol:
        protocol = partial(ProxyProtocolLayer, protocol, application.connections)
    return uvicorn.Config(
        application,
        http=protocol,
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=True,
        timeout_graceful_shutdown=options.grace,  # type: ignore[arg-type] # asyncio.wait_for takes fractions
        ws="none",
        backlog=BACKLOG,
        lifespan="on",
    )
