"""The processes of an attack: the proxy of a checkout, the hostile upstream, nginx with the shipped configuration."""

from __future__ import annotations

import functools
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final, Self

import psutil

from bench.servers import HOST, end, free_port, plain_environment
from tests.certificates import self_signed
from tests.cluster.front_proxy import Apache, Caddy, FrontProxy, Nginx
from tests.constants import command, split
from tests.hostile.clients import connect as connect_plain
from tests.hostile.clients import head, read, send, statuses

ROOT: Final = Path(__file__).resolve().parents[2]
#: The settings of every proxy, unless an attack has its own. Neither budget nor breaker may interfere.
_SETTINGS: Final = {"upstream_rate": "100000", "upstream_burst": "100000"}
_PROBE_EVERY: Final = 0.02
_SAMPLE_EVERY: Final = 0.05
#: Seconds until a proxy has started, on a busy machine.
_START: Final = 90.0
#: The certificate is one of this run, and nothing leaves the machine.
_UNVERIFIED: Final = ssl._create_unverified_context()
#: Front proxies with the shipped configuration, and how clients reach them.
FRONTS: Final = ("nginx", "apache", "caddy", "nginx-tls", "apache-tls", "caddy-tls")
#: The ports of fronts whose clients use TLS.
_SECURED: Final[set[int]] = set()


@dataclass(frozen=True, slots=True)
class Row:
    """The effect of one attack, and whether it is acceptable."""

    attack: str
    figure: str
    holds: bool


@dataclass(frozen=True)
class Checkout:
    """A checkout of doi-proxy, after `make setup`. `front` is one of FRONTS, or "" for none."""

    folder: Path
    front: str = ""

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / ".venv/bin/python")

    def run(self, script: str, *arguments: str) -> str:
        """Run a script that imports this checkout's program. Returns its output."""
        command = [self.python, "-c", script, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=plain_environment(), check=True, capture_output=True, text=True
        ).stdout.strip()

    @property
    def doors(self) -> tuple[Door, ...]:
        """The ways to its proxies that an attack tries one after the other."""
        return (Door.PLAIN,) if self.front else tuple(Door)

    @functools.cached_property
    def settings(self) -> frozenset[str]:
        """The names of its settings."""
        return frozenset(
            self.run("from doi_proxy.assembly.settings import Settings; print(*Settings.model_fields)").split()
        )


class Door(Enum):
    """How clients reach a proxy."""

    PLAIN = "plain HTTP"
    TLS = "TLS"
    UNIX = "a Unix socket"


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    process: subprocess.Popen[bytes]
    port: int
    log_file: Path
    door: Door = Door.PLAIN

    @property
    def socket_path(self) -> str:
        """The path of its Unix socket."""
        return str(self.log_file.with_name("socket"))

    def connect(self, source: str = "", timeout: float = 20.0) -> socket.socket:
        """A connection to it, from the loopback address `source` if it has addresses; no TLS handshake begins."""
        if self.door is not Door.UNIX:
            return socket.create_connection((HOST, self.port), timeout, (source, 0) if source else None)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout)
        try:
            connection.connect(self.socket_path)
        except OSError:
            connection.close()
            raise
        return connection

    def status(self, target: str, source: str = "", timeout: float = 2.0, pause: float = 0.0) -> int:
        """The status of the answer to one GET on a new connection, 0 without one. See `open` for `pause`."""
        try:
            with self.open(source, timeout, pause) as connection:
                return _status(connection, target, timeout)
        except OSError:
            return 0

    def open(self, source: str = "", timeout: float = 20.0, pause: float = 0.0) -> socket.socket:
        """A connection to it, after the TLS handshake if it has TLS. The first byte comes after `pause` seconds."""
        connection = self.connect(source, timeout)
        time.sleep(pause)
        return _UNVERIFIED.wrap_socket(connection) if self.door is Door.TLS else connection

    @property
    def log(self) -> list[str]:
        """The lines of its log."""
        return self.log_file.read_text("utf-8", "replace").splitlines()

    def resident(self) -> int:
        """The resident memory of its processes, in bytes."""
        return sum(int(process.memory_info().rss) for process in self._processes())

    def descriptors(self) -> int:
        """The open descriptors of its processes."""
        return sum(int(process.num_fds()) for process in self._processes())

    def spent(self) -> float:
        """The processor time of its processes, in seconds."""
        times = [process.cpu_times() for process in self._processes()]
        return float(sum(used.user + used.system for used in times))

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]


def _status(connection: socket.socket, target: str, timeout: float) -> int:
    send(connection, head(target, "Connection: close"))
    return next(iter(statuses(read(connection, timeout))), 0)


@contextmanager
def upstream(port: int = 0) -> Iterator[str]:
    """Run the hostile upstream. Yields its URL."""
    command = [sys.executable, "-m", "tests.hostile.upstream", "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        end(process)  # type: ignore[arg-type]


@contextmanager
def proxy(
    checkout: Checkout,
    upstream_url: str,
    *,
    descriptors: int = 0,
    store: str = "",
    start: Sequence[str] = ("-m", "doi_proxy"),
    door: Door = Door.PLAIN,
    **settings: object,
) -> Iterator[Proxy]:
    """The checkout's proxy with these settings, of which it gets those that it has, and a limit on descriptors.

    `settings` can have constants; see tests/constants.py. `start` are the arguments of Python that start the program.
    """
    constants, settings = split(settings)
    if constants:
        start = command(constants)[1:]
    with tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as folder:
        given = {
            **_SETTINGS,
            "upstream_url": upstream_url,
            "store_url": store or f"sqlite:///{folder}/store.sqlite3",
            **{name: str(value) for name, value in settings.items()},
        }
        if door is Door.TLS:
            given |= dict(zip(("tls_cert", "tls_key"), map(str, self_signed(Path(folder))), strict=True))
        known = {f"DOI_PROXY_{name.upper()}": value for name, value in given.items() if name in checkout.settings}
        limits = ["prlimit", f"--nofile={descriptors}:{descriptors}"] if descriptors else []
        port = free_port()
        log = Path(folder, "log")
        host = f"unix:{log.with_name('socket')}" if door is Door.UNIX else HOST
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*limits, checkout.python, *start, "serve", "--host", host, "--port", str(port)],
                cwd=checkout.folder,
                env={**plain_environment(), **known},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        started = Proxy(process, port, log, door)
        try:
            until(lambda: process.poll() is not None or started.status("/healthz") > 0, _START)
            if process.poll() is not None:
                raise RuntimeError(f"the proxy of {checkout.folder} did not start: {log.read_text()[-1000:]}")
            with _in_front(checkout, started) as target:
                yield target
        finally:
            end(process)


@contextmanager
def _in_front(checkout: Checkout, behind: Proxy) -> Iterator[Proxy]:
    """The proxy as clients reach it: through the front of the checkout, if it has one and the proxy has a port."""
    if not checkout.front or behind.door is not Door.PLAIN:
        yield behind
        return
    kind, _, scheme = checkout.front.partition("-")
    with tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as name:
        folder, ports = Path(name), (behind.port, behind.port)
        folder.chmod(0o755)
        front: FrontProxy
        if kind == "nginx":
            front = Nginx(folder, ports, config=checkout.folder / "config")
        else:
            front = Apache(folder, ports, has_many_threads=True) if kind == "apache" else Caddy(folder, ports)
        target = replace(behind, port=front.port)
        if scheme:
            target = replace(behind, port=front.tls_port, door=Door.TLS)
            _SECURED.add(front.tls_port)
        try:
            if not until(lambda: target.status("/healthz") > 0, _START):
                raise RuntimeError(f"{checkout.front} did not start: {front.process.log}")
            yield target
        finally:
            _SECURED.discard(target.port)
            front.process.kill()


def connect(port: int, *, source: str = "", timeout: float = 20.0) -> socket.socket:
    """A connection to 127.0.0.1, with TLS if the port is one of a front with TLS."""
    connection = connect_plain(port, source=source, timeout=timeout)
    return _UNVERIFIED.wrap_socket(connection) if port in _SECURED else connection


@contextmanager
def nginx(checkout: Checkout, port: int, *, cached: bool = False) -> Iterator[int]:
    """Run nginx with the checkout's shipped configuration in front of a proxy. Yields its port."""
    with tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as folder:
        Path(folder).chmod(0o755)
        front = Nginx(Path(folder), (port, port), cached=cached, config=checkout.folder / "config")
        try:
            until(lambda: get(front.port, "/").status > 0, 20.0)
            yield front.port
        finally:
            front.process.terminate()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. The status is 0 if there was none."""

    status: int
    seconds: float
    headers: dict[str, str]
    body: bytes = b""

    @property
    def location(self) -> str:
        """The value of `Location`."""
        return self.headers.get("location", "")


def get(port: int, target: str, *, timeout: float = 30.0, source: str = "", **headers: str) -> Reply:
    """Send one GET on a new connection. Keywords are header fields, with "_" for "-"."""
    place: tuple[str, int] | None = (source, 0) if source else None
    if port in _SECURED:
        connection: HTTPConnection = HTTPSConnection(
            HOST, port, timeout=timeout, source_address=place, context=_UNVERIFIED
        )
    else:
        connection = HTTPConnection(HOST, port, timeout=timeout, source_address=place)
    began = time.monotonic()
    try:
        connection.request("GET", target, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        body = answer.read()
        fields = {name.lower(): text for name, text in answer.getheaders()}
        return Reply(answer.status, time.monotonic() - began, fields, body)
    except (OSError, HTTPException):
        return Reply(0, time.monotonic() - began, {})
    finally:
        connection.close()


def until(look: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds, for at most `seconds`."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if look():
            return True
        time.sleep(_PROBE_EVERY)
    return False


class Repeated:
    """Repeats a step in a thread while the `with` block runs. `pause` is in seconds."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._step()
            self._ended.wait(self._pause)

    def _step(self) -> None:
        raise NotImplementedError


class Peak(Repeated):
    """Samples a figure, and stores its maximum."""

    def __init__(self, look: Callable[[], int]) -> None:
        super().__init__(_SAMPLE_EVERY)
        self._look = look
        self.highest = 0

    def _step(self) -> None:
        self.highest = max(self.highest, self._look())


class Probe(Repeated):
    """Another client. It requests a name repeatedly, on one connection at a time."""

    def __init__(self, port: int, target: str, *, timeout: float = 30.0, source: str = "", pause: float = 0.0) -> None:
        super().__init__(pause or _PROBE_EVERY)
        self._port, self._target = port, target
        self._timeout, self._source = timeout, source
        self.replies: list[Reply] = []

    def _step(self) -> None:
        self.replies.append(get(self._port, self._target, timeout=self._timeout, source=self._source))

    @property
    def worst(self) -> float:
        """The longest wait, in seconds."""
        return max((reply.seconds for reply in self.replies), default=0.0)

    def count(self, status: int) -> int:
        """The number of answers with this status."""
        return sum(reply.status == status for reply in self.replies)
