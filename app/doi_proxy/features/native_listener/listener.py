"""The listener: TCP and the HTTP tunnel in each worker, UDP in one of them."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from doi_proxy.features.native_listener.datagrams import NativeDatagrams
from doi_proxy.features.native_listener.responder import Responder
from doi_proxy.features.native_listener.stream import NativeStream, ServerState
from doi_proxy.features.native_listener.tunnel import Tunnel
from doi_proxy.server.connections import Connections
from doi_proxy.system.background import Service
from doi_proxy.system.files import open_beside

log = logging.getLogger(__name__)

#: Connections that may wait to be accepted.
_BACKLOG: Final = 2048
#: Seconds between two attempts to serve UDP. Another worker does until it ends.
_INTERVAL: Final = 1.0


class NativeListener(Service):
    """Serves the socket of `native_listen`. `lock` is a file that the workers share, None for a process alone."""

    def __init__(self, lock: Path | None, *, allows_udp: bool) -> None:
        self._lock = lock
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
        """Serve UDP as long as this process has the lock. One limit counts the answers of all workers."""
        await self._bound.wait()
        if not self._responder.has_udp:
            return
        lock = None if self._lock is None else open_beside(self._lock)
        try:
            while lock is not None and not _try_lock(lock):  # noqa: ASYNC110 - other processes have the lock
                await asyncio.sleep(_INTERVAL)
            await self._serve_datagrams()
        finally:
            if lock is not None:
                os.close(lock)

    async def _serve_datagrams(self) -> None:
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


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
