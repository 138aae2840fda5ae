"""Connections over TLS, which are counted from `accept`.

With `ssl=` of `create_server`, a protocol would not know of a connection before the end of its handshake. Only this
module relies on uvloop internals, the class SSLProtocol, to which `ssl=` leads as well.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from doi_proxy.server.certificate import Certificate
from doi_proxy.server.connections import Reason
from doi_proxy.server.protocol import ServerProtocol

#: Seconds until uvloop ends a handshake. The sweep of doi_proxy.server.connections does so much earlier.
_HANDSHAKE_LIMIT: Final = 86_400.0


class TlsProtocol(ServerProtocol):
    """One connection over TLS. During the handshake, `scheme` is "http" and `transport` is the one below TLS."""

    def accept(self, transport: Any) -> bool:
        """A client has connected. Returns whether its handshake may begin."""
        super().connection_made(transport)
        return not self._ended

    def connection_made(self, transport: Any) -> None:
        """The handshake is complete."""
        self._use(transport, "https")

    def lose_handshake(self, exc: Exception | None) -> None:
        """The connection is closed before the end of its handshake."""
        if isinstance(exc, ssl.SSLError):
            self._reason = Reason.HANDSHAKE
        self.connection_lost(exc)

    def _refuse(self, status: int, text: str, reason: Reason) -> None:
        """Refuse a request. Before the end of the handshake, no answer can be sent."""
        if self.scheme == "https":
            super()._refuse(status, text, reason)
        else:
            self._end(reason)


class TlsLayer(SSLProtocol):  # type: ignore[misc]
    """The TLS of one connection: the protocol of its socket."""

    def __init__(self, certificate: Certificate, **options: Any) -> None:
        """`options` are those of ServerProtocol."""
        protocol = self._connection = TlsProtocol(**options)
        super().__init__(
            protocol.loop, protocol, certificate.context, None, server_side=True, ssl_handshake_timeout=_HANDSHAKE_LIMIT
        )

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        if self._connection.accept(transport):
            super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes that the layer before this one has read. uvloop itself reads into the buffer."""
        unread = memoryview(data)
        while unread:
            buffer = self.get_buffer(len(unread))
            size = min(len(buffer), len(unread))
            buffer[:size] = unread[:size]
            unread = unread[size:]
            self.buffer_updated(size)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed. uvloop calls this only after a complete handshake."""
        super().connection_lost(exc)
        connection = self._connection
        # It refers to this object. Both, with 256 KiB of buffer, would stay until the next garbage collection.
        del self._connection
        if connection.scheme != "https":
            connection.lose_handshake(exc)
