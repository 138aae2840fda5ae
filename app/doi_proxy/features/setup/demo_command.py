"""`doi-proxy demo`: a stand-in for doi.org, a proxy and an outage, played in one terminal."""

from __future__ import annotations

import argparse
import enum
import errno
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.options import ENV_PREFIX, is_host_and_port

#: Seconds for which a record is fresh. An outage soon shows stale answers.
_TTL: Final = 5
#: The name that is requested every second, and two names that are requested once.
_KNOWN: Final = "10.1000/182"
_NEW_IN_OUTAGE, _NEW_AFTERWARDS = "10.5555/asked-in-the-outage", "10.5555/asked-afterwards"
_TARGETS: Final[Mapping[str, str]] = MappingProxyType({_KNOWN: "http://www.doi.org/hb.html"})
#: Seconds for the proxy to start, to answer, and to end.
_START, _ANSWER, _END = 120.0, 10.0, 15.0
_SERVING: Final = re.compile(r"serving on (http://\S+)")
#: See docs/caching.md.
_BACK: Final = "The plug is back. A known name is asked about again half a minute after its last failure."
_INTRODUCTION: Final = """A proxy on {url} asks a stand-in for doi.org, whose records expire after {ttl} seconds.
Each second: GET /{name}, its status, its target, and what Cache-Status says."""


class Act(enum.Enum):
    """What happens in a second of the play, besides the request for the known name."""

    PULL_PLUG = "The plug is pulled: doi.org cannot be reached."
    PUT_BACK = _BACK
    ASK_IN_OUTAGE = _NEW_IN_OUTAGE
    ASK_AFTERWARDS = _NEW_AFTERWARDS
    END = "This was the outage. o begins another one, q ends."


#: The play, by seconds since the first answer.
PLAY: Final[Mapping[int, Act]] = MappingProxyType(
    {10: Act.PULL_PLUG, 17: Act.ASK_IN_OUTAGE, 20: Act.PUT_BACK, 22: Act.ASK_AFTERWARDS, 24: Act.END}
)


class _Event(enum.Enum):
    """What ends a wait before its second is over."""

    PLUG_KEY = enum.auto()
    QUIT = enum.auto()
    PROXY_ENDED = enum.auto()


class StandIn:
    """A handle API that has a record for every name. It cannot be reached while its plug is pulled."""

    def __init__(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = _Server(("127.0.0.1", 0))
        self._port = self._server.server_port
        self._serve()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def is_plugged_in(self) -> bool:
        """Whether it listens."""
        return self._server.is_open

    def pull_plug(self) -> None:
        """Close the port and every connection."""
        self._server.end()

    def put_back(self) -> None:
        """Listen on the same port again."""
        self._server = _Server(("127.0.0.1", self._port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()


class _Server(ThreadingHTTPServer):
    """The port of a stand-in, from one plug to the next."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.is_open = True
        self._connections: set[socket.socket] = set()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer a connection in a thread of its own."""
        if isinstance(request, socket.socket):
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close a connection that has ended."""
        if isinstance(request, socket.socket):
            self._connections.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        """Close the port and every connection."""
        self.is_open = False
        self.shutdown()
        self.server_close()
        for connection in tuple(self._connections):
            with suppress(OSError):  # the proxy has closed it
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a query about a name."""
        name = unquote(self.path.partition("?")[0].removeprefix("/api/handles/"))
        target = _TARGETS.get(name, f"https://example.org/{name}")
        url = {"index": 1, "type": "URL", "data": {"format": "string", "value": target}, "ttl": _TTL}
        body = json.dumps({"responseCode": 1, "handle": name, "values": [url]}).encode()
        self.send_response(http.client.OK)
        self.send_header("Content-Type", "application/json;charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


class Proxy:
    """A proxy of this demo, in a process of its own. Its log is shown only if it ends by itself."""

    def __init__(self, process: subprocess.Popen[str], events: SimpleQueue[_Event]) -> None:
        """`events` gets PROXY_ENDED when it ends."""
        self._process = process
        self._events = events
        # Lines of the proxy's log that are kept. They are shown if it ends by itself.
        self._log = deque[str](maxlen=30)
        self._is_serving = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        #: Its base URL. Empty until it serves.
        self.url = ""

    def wait_until_serving(self) -> None:
        """Return when it serves, or when it has ended."""
        self._is_serving.wait(_START)

    def ask(self, name: str) -> str:
        """GET a name: the status and the target of the answer, and what Cache-Status or Proxy-Status says."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_ANSWER)
        try:
            connection.request("GET", f"/{name}")
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            return f"no answer of the proxy: {error}"
        finally:
            connection.close()
        source = answer.headers.get("Cache-Status") or answer.headers.get("Proxy-Status") or ""
        return f"{answer.status}  {answer.headers.get('Location') or answer.reason}  {source}"

    def end(self) -> None:
        """End it, if it has not ended, and wait for that."""
        self._process.terminate()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def show_log(self) -> None:
        """Print the end of its log."""
        self._reader.join(_END)
        print("".join(self._log), end="", file=sys.stderr, flush=True)

    def _read_log(self) -> None:
        for line in self._process.stderr or ():
            self._log.append(line)
            if (serving := _SERVING.search(line)) is not None:
                self.url = serving[1]
                self._is_serving.set()
        self._events.put(_Event.PROXY_ENDED)
        self._is_serving.set()


class Demo(NamedTuple):
    """The parts of a demo. `has_keys` says whether a person can press keys."""

    stand_in: StandIn
    proxy: Proxy
    events: SimpleQueue[_Event]
    has_keys: bool

    def play(self) -> bool:
        """Play until the end, q or a signal. Returns whether the proxy ran to the end.

        The play has its own outage unless a key begins or ends one. With keys, its end is left to the reader.
        """
        introduction = _INTRODUCTION.format(url=self.proxy.url, ttl=_TTL, name=_KNOWN)
        _show(f"{introduction}\nKeys: o pulls the plug or puts it back, q ends." if self.has_keys else introduction)
        play, second, started = PLAY, 0, time.monotonic()
        while True:
            act = play.get(second)
            if act is Act.END and not self.has_keys:
                return True
            if act is not None:
                self._do(act, second)
            self._ask(_KNOWN, second)
            second += 1
            while (event := self._wait_until(started + second)) is not None:
                if event is not _Event.PLUG_KEY:
                    return event is _Event.QUIT
                play = {}
                self._do(Act.PULL_PLUG if self.stand_in.is_plugged_in else Act.PUT_BACK, second)

    def _do(self, act: Act, second: int) -> None:
        if act in (Act.ASK_IN_OUTAGE, Act.ASK_AFTERWARDS):
            self._ask(act.value, second)
            return
        if act is Act.PULL_PLUG:
            self.stand_in.pull_plug()
        elif act is Act.PUT_BACK:
            self.stand_in.put_back()
        _show(f"{second:3} s  {act.value}")

    def _ask(self, name: str, second: int) -> None:
        label = "" if name == _KNOWN else f"a new name, {name}:  "
        _show(f"{second:3} s  {label}{self.proxy.ask(name)}")

    def _wait_until(self, then: float) -> _Event | None:
        """The next event before a time of the monotonic clock."""
        try:
            return self.events.get(timeout=max(0.0, then - time.monotonic()))
        except Empty:
            return None


def _show(line: str) -> None:
    print(line, flush=True)


def run_demo(namespace: argparse.Namespace) -> int:
    """Play the demo. Returns the exit status: 1 if its proxy did not start or ended by itself."""
    _refuse_settings(namespace)
    port = namespace.port
    if port is not None and not (is_host_and_port(f"127.0.0.1:{port}") and int(port)):
        raise ConfigurationError(f"--port {port[:80]!r}: this is not a port; write a number from 1 to 65535")
    # A closed terminal sends two signals: the second one must not end the end.
    events = SimpleQueue[_Event]()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: events.put(_Event.QUIT))
    stand_in = StandIn()
    with tempfile.TemporaryDirectory() as folder, _start_proxy(stand_in.url, port, Path(folder), events) as proxy:
        proxy.wait_until_serving()
        with _read_keys(events) as has_keys:
            try:
                is_complete = bool(proxy.url) and Demo(stand_in, proxy, events, has_keys).play()
            except OSError as error:
                # What a write to a terminal that was closed, or to a pipe without a reader, fails with.
                if error.errno not in (errno.EIO, errno.EPIPE):
                    raise
                is_complete = True
        proxy.end()
        if not is_complete:
            proxy.show_log()
    return 0 if is_complete else 1


def _refuse_settings(namespace: argparse.Namespace) -> None:
    """Raise ConfigurationError for the flag of a setting, which the demo would not obey."""
    given = [name for name, value in vars(namespace).items() if isinstance(value, str | Path) and name != "port"]
    if given:
        flag = given[0].replace("_", "-")
        raise ConfigurationError(f"--{flag}: the demo has settings of its own, of which only --port can be changed")


@contextmanager
def _start_proxy(upstream: str, port: str | None, folder: Path, events: SimpleQueue[_Event]) -> Iterator[Proxy]:
    """A proxy with a store in a folder. Without a port it takes a free one."""
    settings = {
        "port": port or "0",
        "store-url": f"sqlite:///{folder / 'demo.sqlite3'}",
        "upstream-url": upstream,
        "upstream-contact": "mailto:demo@example.org",
    }
    command = [sys.executable, "-m", "doi_proxy", "serve", *(f"--{name}={value}" for name, value in settings.items())]
    # The settings of an installation must not lead the demo to its store.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    # A key that ends the demo ends the proxy through the demo. In a session of its own it gets no signal itself.
    with subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        proxy = Proxy(process, events)
        try:
            yield proxy
        finally:
            # Without this, whatever ends the demo would leave it waiting for its proxy.
            proxy.end()


@contextmanager
def _read_keys(events: SimpleQueue[_Event]) -> Iterator[bool]:
    """Read keys without Enter. Yields False without a terminal, which has no keys."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield False
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    threading.Thread(target=_obey_keys, args=(terminal, events), daemon=True).start()
    try:
        yield True
    finally:
        with suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _obey_keys(terminal: int, events: SimpleQueue[_Event]) -> None:
    """Turn keys into events until q or the end of the input."""
    with suppress(OSError):  # the input of a closed terminal
        while (key := os.read(terminal, 1).lower()) not in (b"q", b""):
            if key == b"o":
                events.put(_Event.PLUG_KEY)
    events.put(_Event.QUIT)
