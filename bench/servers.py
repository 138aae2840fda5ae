"""Starts servers on a free port of 127.0.0.1, pins them to cores, and ends them by their process id."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

import psutil

from bench.machine import pinned
from bench.tools import NotMeasured

HOST: Final = "127.0.0.1"
#: Seconds until the first answer of a server, and until its end. On a busy machine, a start has taken 30 s.
PATIENCE: Final = 120.0
_ENDING: Final = 15.0
_ASK_EVERY: Final = 0.002


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    process: subprocess.Popen[bytes]
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{self.scheme}://{HOST}:{self.port}"

    def resident(self) -> int:
        """The resident memory of the process and its children, in bytes."""
        return sum(int(one.memory_info().rss) for one in self._processes())

    def cpu(self) -> float:
        """The processor time that the process and its children have used, in seconds."""
        return sum(sum(one.cpu_times()[:2]) for one in self._processes())

    def _processes(self) -> list[psutil.Process]:
        mine = psutil.Process(self.process.pid)
        return [mine, *mine.children(recursive=True)]


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@contextmanager
def served(
    command: Callable[[int], Sequence[str]],
    *,
    cores: tuple[int, ...] = (),
    environment: Mapping[str, str] | None = None,
    path: str = "/",
    scheme: str = "http",
) -> Iterator[Server]:
    """Start a server by `command(port)`, and wait until it answers a GET of `path`. Raises NotMeasured."""
    port = free_port()
    line = list(command(port))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            pinned(line, cores) if cores else line,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**plain_environment(), **(environment or {})},
            cwd=Path(__file__).parent.parent,
        )
        try:
            if not answers(port, path, process, scheme):
                log.seek(0)
                said = log.read()[-1000:].decode(errors="replace").strip()
                raise NotMeasured(f"not measured: {Path(line[0]).name} did not start: {said}")
            yield Server(process, port, scheme)
        finally:
            end(process)


def answers(port: int, path: str, process: subprocess.Popen[bytes], scheme: str = "http") -> bool:
    """Wait for the first answer of a server. Returns False after a deadline, or if the process has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if get(port, path, scheme):
            return True
        time.sleep(_ASK_EVERY)
    return False


def get(port: int, path: str, scheme: str = "http") -> bytes:
    """The body of the answer to one GET, or the status line if the body is empty; b"" without an answer."""
    if scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # a certificate of the measurement
        connection: HTTPConnection = HTTPSConnection(HOST, port, timeout=PATIENCE, context=context)
    else:
        connection = HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() or str(answer.status).encode()
    except (OSError, HTTPException):
        return b""
    finally:
        connection.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by its id, and wait for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_ENDING)


def python(*arguments: str) -> list[str]:
    """A command of the interpreter that runs the benchmarks."""
    return [sys.executable, *arguments]


def program(name: str) -> str:
    """A program of the environment that runs the benchmarks."""
    return str(Path(sys.executable).with_name(name))


def plain_environment() -> dict[str, str]:
    """The environment of a server, without the user's settings of doi-proxy and of HTTP proxies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    return {**kept, "no_proxy": "*", "NO_PROXY": "*", "PYTHONUNBUFFERED": "1"}
