"""The native listener on real sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import pytest

from handle_protocol.wire.message import Filters, Query, decode_response, encode_query
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.features.native_listener.listening import post
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.process]

NAME: Final = "10.5072/native"
REQUEST: Final = encode_query(Query(Filters(NAME.encode()), 7, 1_900_000_000))
PATIENCE: Final = 30.0


def send(port: int, data: bytes) -> bytes:
    """All that TCP brings until the service closes its side."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


async def test_the_port_answers_tcp_http_and_udp_and_is_not_taken(
    store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream, port = start_upstream({NAME: "https://www.example.org/target"}), free_port()
    proxy = start_proxy(upstream.url, store_file, native_listen=f"127.0.0.1:{port}")
    await asyncio.gather(upstream.ready(), proxy.ready())
    for _ in range(10):
        for data in (REQUEST, post(REQUEST)):
            answer = (await asyncio.to_thread(send, port, data)).rpartition(b"\r\n\r\n")[2]
            assert decode_response(answer, digest_requested=False).code == 1

    def send_packet() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.settimeout(PATIENCE)
            sender.sendto(REQUEST, ("127.0.0.1", port))
            return decode_response(sender.recv(65_536), digest_requested=False).code

    assert await asyncio.to_thread(send_packet) == 1
    second = start_proxy(upstream.url, store_file, native_listen=f"127.0.0.1:{port}")
    assert second.process.ended() == 1
    assert f"cannot listen on 127.0.0.1 port {port}: the port is in use" in second.process.log
