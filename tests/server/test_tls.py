"""A connection over TLS inside this process, under uvloop."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from pathlib import Path
from typing import Any

import uvloop

from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.server.tls import Certificate, TlsLayer
from tests.certificates import self_signed
from tests.clock import Clock
from tests.server.ways import Server

#: Turns of the loop in which both sides of a connection end.
TURNS = 1_000


async def ask_once(folder: Path) -> tuple[bytes, list[weakref.ref[Any]]]:
    """The status line that one request gets, and references to what served it."""
    chain, key = self_signed(folder)
    server = Server(Clock(), ServerProtocol)
    layers: list[weakref.ref[Any]] = []

    def create_layer() -> TlsLayer:
        state = {"config": server._config, "server_state": server.state, "app_state": {}}
        layer = TlsLayer(Certificate(chain, key), **state)
        layers.extend((weakref.ref(layer), weakref.ref(layer._connection)))
        return layer

    listening = await asyncio.get_running_loop().create_server(create_layer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    context = ssl.create_default_context(cafile=chain)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    listening.close()
    for _ in range(TURNS):
        if all(layer() is None for layer in layers):
            break
        await asyncio.sleep(0)
    await server.close()
    return answer.partition(b"\r\n")[0], layers


def test_a_connection_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    # Each has 256 KiB of buffer: memory would grow until a collection.
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status, layers = runner.run(ask_once(tmp_path))
    finally:
        gc.enable()
    assert status == b"HTTP/1.1 302 Found"
    assert [layer() for layer in layers] == [None, None]
