"""systemd keeps the port open (sd_listen_fds(3)): a restart refuses no connection."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.commands.systemd import take_socket
from doi_proxy.errors import ConfigurationError
from tests.cluster.processes import START_DEADLINE, Process, until
from tests.cluster.raw_http import ask

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
