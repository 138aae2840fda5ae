"""`doi-proxy demo`: a stand-in for the upstream, a proxy and an outage, in one terminal."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Final, cast
from urllib.parse import unquote

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.options import ENV_PREFIX, is_host_and_port

_API: Final = "/api/handles/"
#: Records expire soon, so an outage shows stale answers.
_TTL: Final = 10
_DOWN: Final = "The upstream is down."
#: See docs/caching.md.
_UP: Final = "The upstream answers again. A name is queried again half a minute after its last failure."
#: Port without --port.
_PORT: Final = "8000"
#: Seconds for the proxy to end.
_END: Final = 15
_HELP: Final = """The proxy is http://127.0.0.1:{port}; every DOI name is registered. Try in another terminal:
  curl -i http://127.0.0.1:{port}/10.1000/182
  open http://127.0.0.1:{port}/status?refresh=10
Keys, each with Enter: o begins or ends an outage of the upstream, q quits."""


class StandIn(ThreadingHTTPServer):
    """A handle API that has a record for every name. During an outage every answer is 503."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.is_out = False

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a query about a name."""
        is_out = cast(StandIn, self.server).is_out
        name = unquote(self.path.partition("?")[0].removeprefix(_API))
        status = 503 if is_out else 200
        body = b"{}" if is_out else _write_answer(name)
        self.send_response(status)
        self.send_header("Content-Type", "application/json;charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


def _write_answer(name: str) -> bytes:
    """The answer of the handle API about a name: one URL value."""
    url = {"index": 1, "type": "URL", "data": {"format": "string", "value": f"https://example.org/{name}"}, "ttl": _TTL}
    return json.dumps({"responseCode": 1, "handle": name, "values": [url]}).encode()


@contextmanager
def open_stand_in() -> Iterator[StandIn]:
    """A stand-in that answers in threads of its own."""
    with StandIn() as stand_in:
        threading.Thread(target=stand_in.serve_forever, daemon=True).start()
        yield stand_in
        stand_in.shutdown()


def _refuse_settings(namespace: argparse.Namespace) -> None:
    """Raise ConfigurationError for the flag of a setting, which the demo would not obey."""
    given = [name for name, value in vars(namespace).items() if isinstance(value, str | Path) and name != "port"]
    if given:
        flag = given[0].replace("_", "-")
        raise ConfigurationError(f"--{flag}: the demo has settings of its own, of which only --port can be changed")


def run_demo(namespace: argparse.Namespace) -> int:
    """Serve until q or a signal. Returns the exit status."""
    _refuse_settings(namespace)
    port = namespace.port or _PORT
    if not is_host_and_port(f"127.0.0.1:{port}") or not int(port):
        raise ConfigurationError(f"--port {port[:80]!r}: this is not a port; write a number from 1 to 65535")
    # The settings of an installation must not lead the demo to its store.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    with open_stand_in() as stand_in, tempfile.TemporaryDirectory() as folder:
        settings = {
            "port": port,
            "store-url": f"sqlite:///{Path(folder) / 'demo.sqlite3'}",
            "upstream-url": stand_in.url,
            "upstream-contact": "mailto:demo@example.org",
        }
        flags = [f"--{name}={value}" for name, value in settings.items()]
        # A closed terminal sends two signals, and ends the input: any of them ends the demo, and none its end.
        ends = SimpleQueue[None]()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: ends.put(None))
        with subprocess.Popen([sys.executable, "-m", "doi_proxy", "serve", *flags], env=environment) as proxy:  # noqa: S603
            print(_HELP.format(port=port), flush=True)
            threading.Thread(target=_end_with, args=(proxy, ends), daemon=True).start()
            threading.Thread(target=_read_keys, args=(stand_in, ends), daemon=True).start()
            ends.get()
            is_running = proxy.poll() is None
            proxy.terminate()
            try:
                proxy.wait(_END)
            except subprocess.TimeoutExpired:
                proxy.kill()
    return 0 if is_running else 1


def _end_with(proxy: subprocess.Popen[bytes], ends: SimpleQueue[None]) -> None:
    """End the demo when its proxy ends, which says why."""
    proxy.wait()
    ends.put(None)


def _read_keys(stand_in: StandIn, ends: SimpleQueue[None]) -> None:
    """Obey the keys until q or the end of the input, which ends the demo."""
    with suppress(OSError):  # the input of a closed terminal
        for line in sys.stdin:
            key = line.strip().lower()
            if key == "q":
                break
            if key == "o":
                stand_in.is_out = not stand_in.is_out
                print(_DOWN if stand_in.is_out else _UP, flush=True)
    ends.put(None)
