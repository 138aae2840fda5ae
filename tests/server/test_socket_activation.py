"""systemd keeps the port open (sd_listen_fds(3)): a restart refuses no connection."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import subprocess
import sys
import weakref
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.serve import ACCEPTED_A_TURN, handles_of, server_options
from doi_proxy.commands.systemd import take_socket
from doi_proxy.errors import ConfigurationError
from doi_proxy.main import create
from doi_proxy.server.http_server import Events, HttpServer
from doi_proxy.server.listening import listen
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.server.tls import Certificate, TlsLayer
from tests.certificates import self_signed
from tests.clock import Clock
from tests.cluster.processes import START_DEADLINE, Process, until
from tests.cluster.raw_http import ask
from tests.server.ways import Server

#: What systemd does for a service: the socket is descriptor 3, and the process knows that it is meant.
SYSTEMD: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "doi-proxy.socket"}
os.execv(sys.argv[2], sys.argv[2:])
"""
#: Prints why a descriptor that systemd passes is refused.
TAKE: Final = """
import os, sys
from doi_proxy.commands.systemd import take_socket
from doi_proxy.errors import ConfigurationError
os.dup2(int(sys.argv[1]), 3)
try:
    print(take_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}).getsockname()[1])
except ConfigurationError as error:
    print(error.message)
"""


@pytest.mark.process
@pytest.mark.anyio
async def test_a_restart_refuses_no_connection(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        port, descriptor = listening.getsockname()[1], listening.fileno()
        settings = {"MODE": "sealed", "STORE_URL": f"sqlite:///{tmp_path}/store.sqlite3", "HOST": "::1", "PORT": "1"}
        variables = {f"DOI_PROXY_{name}": value for name, value in settings.items()}
        serve = [sys.executable, "-m", "doi_proxy", "serve"]
        command = [sys.executable, "-c", SYSTEMD, str(descriptor), *serve]

        def start() -> Process:
            return Process(command, tmp_path / "log", variables, descriptors=[descriptor])

        statuses: list[int] = []
        ended = asyncio.Event()

        async def request() -> None:
            while not ended.is_set():
                statuses.append((await ask(port, "/healthz")).status)

        async def answers_after(count: int) -> None:
            async def found() -> bool:
                assert process.runs, process.log
                return len(statuses) >= count

            await until(found, START_DEADLINE, "answers")

        process = start()
        clients = [asyncio.create_task(request()) for _ in range(4)]
        try:
            await answers_after(20)
            await asyncio.to_thread(process.terminate)
            process = start()
            await answers_after(len(statuses) + 20)
            # The address of the socket, and not that of the settings.
            assert process.count(f"starting on http://127.0.0.1:{port}\n") == 2
            ended.set()
            # A connection that was refused or reset raises here.
            await asyncio.gather(*clients)
            assert set(statuses) == {200}
        finally:
            ended.set()
            process.kill()


@pytest.mark.parametrize("environment", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": str(os.getpid())}])
def test_sockets_of_another_process_are_not_taken(environment: dict[str, str]) -> None:
    assert take_socket(environment) is None
    assert environment == {}


def test_a_unit_with_two_sockets_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="keep one ListenStream="):
        take_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})


def take(descriptor: int) -> str:
    """What a process finds in a descriptor that systemd passes to it."""
    command = [sys.executable, "-c", TAKE, str(descriptor)]
    return subprocess.run(command, pass_fds=[descriptor], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.process
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_that_does_not_listen_is_refused(kind: socket.SocketKind) -> None:
    with socket.socket(type=kind) as bound:
        bound.bind(("127.0.0.1", 0))
        assert take(bound.fileno()) == "the socket unit passes a socket that does not listen; name it in ListenStream="
        if kind == socket.SOCK_STREAM:
            bound.listen()
            assert take(bound.fileno()) == str(bound.getsockname()[1])
            # Other instances have the same socket: none of them may wait in accept.
            assert not os.get_blocking(bound.fileno())


@pytest.mark.process
def test_a_descriptor_that_is_not_a_socket_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert take(file.fileno()).startswith("the descriptor of the socket unit cannot be used: ")


@pytest.mark.process
def test_an_abstract_socket_is_refused() -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(b"\0doi-proxy-%d" % os.getpid())
        listening.listen()
        assert take(listening.fileno()).startswith("the socket unit passes neither a port nor a path; ")


# --- Connections that wait are accepted several at a time: in a crowd, a turn of the event loop is long --------------


_WAITING: Final = 40


def test_a_crowd_that_waits_is_accepted_in_a_few_turns(tmp_path: Path) -> None:
    settings = Settings(store_url=f"sqlite:///{tmp_path}/store.sqlite3", upstream_url="http://127.0.0.1:9")

    async def count_turns() -> int:
        events = Events(ready=lambda: None, draining=lambda: None)
        server = HttpServer(create(settings), server_options(settings, Certificate(None, None)), events)
        with ExitStack() as stack, closing(listen("127.0.0.1", 0)) as listening:
            listening.listen(_WAITING)
            for _ in range(_WAITING):
                stack.enter_context(closing(socket.create_connection(listening.getsockname())))
            server.lifespan = server.config.lifespan_class(server.config)
            handles = handles_of(listening)
            await server.startup(handles)
            turns = 0
            while len(server.server_state.connections) < _WAITING and turns < 10 * _WAITING:
                await asyncio.sleep(0)
                turns += 1
            await server.shutdown(handles)
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(count_turns()) < 2 * _WAITING / ACCEPTED_A_TURN


# --- A connection over TLS inside this process, under uvloop ---------------------------------------------------------


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
