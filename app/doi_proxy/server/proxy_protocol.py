"""Connections that begin with a header of the PROXY protocol: it names the client before TLS and HTTP begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from doi_proxy.server.connections import Connections, Phase, Reason
from doi_proxy.server.proxies import UNIX_PEER
from doi_proxy.server.proxy_header import MalformedHeader, read_proxy_header


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
