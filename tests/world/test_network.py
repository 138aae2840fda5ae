"""The network in memory does what sockets of the system do: each story is told over both, and must end alike."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from tests.handle_protocol.certificates import new_key, serve_tls
from tests.world.loop import WorldLoop, run_virtually
from tests.world.network import BUFFER

HOST: Final = "127.0.0.1"
#: More than the sockets of a connection hold.
MUCH: Final = 32 * 1024 * 1024
Story = Callable[[], Coroutine[Any, Any, object]]
Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def connect(serve: Server) -> tuple[Any, asyncio.StreamReader, asyncio.StreamWriter]:
    """A server of one connection, and the client's end of it."""
    server = await asyncio.start_server(serve, HOST, 0)
    return server, *await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])


async def half_closed() -> bytes:
    """A client that has ended its side reads the answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"read " + await reader.read())
        writer.close()

    server, reader, writer = await connect(answer)
    writer.write(b"all")
    writer.write_eof()
    got = await reader.read()
    writer.close()
    server.close()
    return got


async def aborted() -> bytes:
    """What a server has sent before it aborts its connection arrives."""

    async def abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"sent")
        writer.transport.abort()

    server, reader, writer = await connect(abort)
    got = await reader.read()
    writer.close()
    server.close()
    return got


async def closed_with_unread_bytes() -> str:
    """A server that closes without reading resets the connection."""
    arrived = asyncio.Event()

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined] # every transport of a stream can
        await arrived.wait()
        writer.close()

    server, reader, writer = await connect(close)
    writer.write(b"unread")
    await asyncio.sleep(0)
    arrived.set()
    try:
        return repr(await reader.read())
    except ConnectionResetError:
        return "reset"
    finally:
        writer.close()
        server.close()


async def unread() -> tuple[bool, int]:
    """A sender is paused while its peer does not read, and goes on when it does."""
    go = asyncio.Event()
    got = bytearray()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        while piece := await reader.read(65_536):
            got.extend(piece)
        writer.close()

    server, reader, writer = await connect(wait)
    writer.write(bytes(MUCH))
    draining = asyncio.ensure_future(writer.drain())
    for _ in range(100):
        await asyncio.sleep(0)
    is_paused = not draining.done()
    go.set()
    await draining
    writer.write_eof()
    await reader.read()
    writer.close()
    server.close()
    return is_paused, len(got)


class Received(asyncio.DatagramProtocol):
    """Keeps what happens to a socket for datagrams."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[object] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.events.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        self.events.put_nowait(type(exc))


async def datagrams() -> list[object]:
    """A connected socket gets what its peer sends, and learns that nothing listens there any more."""
    loop = asyncio.get_running_loop()
    there, server = await loop.create_datagram_endpoint(Received, local_addr=(HOST, 0))
    address = there.get_extra_info("sockname")
    here, client = await loop.create_datagram_endpoint(Received, remote_addr=address)
    other, _ = await loop.create_datagram_endpoint(Received, local_addr=(HOST, 0))
    here.sendto(b"query")
    events = [await server.events.get()]
    other.sendto(b"forged", here.get_extra_info("sockname"))
    there.sendto(b"answer", here.get_extra_info("sockname"))
    events.append(await client.events.get())
    there.close()
    await asyncio.sleep(0)
    here.sendto(b"query")
    events.append(await client.events.get())
    here.close()
    other.close()
    return events


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (half_closed, b"read all"),
        (aborted, b"sent"),
        (closed_with_unread_bytes, "reset"),
        (unread, (True, MUCH)),
        (datagrams, [b"query", b"answer", ConnectionRefusedError]),
    ],
)
@pytest.mark.parametrize("run", [asyncio.run, run_virtually])
def test_a_story_ends_alike_over_sockets_and_in_memory(run: Callable[..., object], story: Story, expected: Any) -> None:
    assert run(story()) == expected


def test_a_datagram_can_be_lost_delayed_and_repeated() -> None:
    async def send() -> list[tuple[object, float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        fates = iter([(), (3.0,), (0.5, 1.0)])
        loop.network.fate_of_datagrams = lambda *_: next(fates)
        there, server = await loop.create_datagram_endpoint(Received, local_addr=(HOST, 0))
        here, _ = await loop.create_datagram_endpoint(Received, remote_addr=there.get_extra_info("sockname"))
        for data in (b"lost", b"late", b"twice"):
            here.sendto(data)
        return [(await server.events.get(), loop.time()) for _ in range(3)]

    assert run_virtually(send()) == [(b"twice", 0.5), (b"twice", 1.0), (b"late", 3.0)]


def test_a_peer_that_does_not_read_holds_no_more_than_the_buffer_and_the_rest_is_unsent() -> None:
    async def send() -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, HOST, 0)
        wire, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        wire.other.pause_reading()  # type: ignore[attr-defined] # a Wire
        wire.write(bytes(BUFFER + 7))
        return wire.get_write_buffer_size()

    assert run_virtually(send()) == 7


def test_tls_runs_over_the_network_in_memory(tmp_path: Path) -> None:
    server_tls, client_tls = serve_tls(tmp_path, new_key()), ssl.create_default_context()
    client_tls.check_hostname, client_tls.verify_mode = False, ssl.CERT_NONE

    async def ask() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"read " + await reader.readline())
            writer.close()

        server = await asyncio.start_server(answer, HOST, 0, ssl=server_tls)
        reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1], ssl=client_tls)
        writer.write(b"this\n")
        got = await reader.read()
        writer.close()
        return got

    assert run_virtually(ask()) == b"read this\n"
