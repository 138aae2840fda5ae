"""The listener: UDP, TCP and the HTTP tunnel."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from doi_proxy.features.native_listener.datagrams import NativeDatagrams
from doi_proxy.features.native_listener.responder import Responder
from doi_proxy.features.native_listener.stream import NativeStream, ServerState
from doi_proxy.features.native_listener.tunnel import Tunnel
from doi_proxy.server.connections import Connections
from doi_proxy.system.background import Service

log = logging.getLogger(__name__)

#: Connections that may wait to be accepted.
_BACKLOG: Final = 2048


class NativeListener(Service):
    """Serves the socket of `native_listen`."""

    def __init__(self, *, allows_udp: bool) -> None:
        self._allows_udp = allows_udp
        self._bound = asyncio.Event()
        self._address: Any = None

    def open(self, responder: Responder, connections: Connections) -> NativeServer:
        """What the server of this process serves at the socket."""
        self._responder = responder
        return NativeServer(self, responder, connections)

    def use(self, address: Any) -> None:
        """The socket is bound, so UDP can begin, at the same port."""
        is_local = ip_address(address[0].partition("%")[0]).is_loopback
        self._responder.has_udp = is_local or self._allows_udp
        self._address = address
        self._bound.set()

    async def run(self) -> None:
        """Serve UDP until the end of the process."""
        await self._bound.wait()
        if not self._responder.has_udp:
            return
        host, port, *_ = self._address
        create = partial(NativeDatagrams, self._responder, host, port, time.monotonic)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_datagram_endpoint(create, local_addr=(host, port))
        except OSError as error:
            log.error("the native listener has no UDP: port %d cannot be opened: %s", port, error)
            return
        try:
            await loop.create_future()  # until the end of the process
        finally:
            transport.close()


class NativeServer(Tunnel):
    """The application of the tunnel, with what serves the socket around it."""

    def __init__(self, listener: NativeListener, responder: Responder, connections: Connections) -> None:
        super().__init__(responder, connections)
        self._listener = listener
        self._streams = partial(NativeStream, responder, connections)

    async def serve(self, listening: socket.socket, state: ServerState, create_http: Callable[[], Any]) -> Any:
        """Serve a bound socket. Returns the asyncio.Server."""
        server = await asyncio.get_running_loop().create_server(
            lambda: self._streams(state, create_http), sock=listening, backlog=_BACKLOG
        )
        self._listener.use(listening.getsockname())
        return server
