"""`doi-proxy demo`: a stand-in for doi.org, a proxy and an outage, played in one terminal."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import create_new, read_regular
from doi_proxy.system.options import ENV_PREFIX, is_host_and_port

#: The name that is requested every second.
_KNOWN: Final = "10.1000/182"
#: Seconds for which a record is fresh. An outage soon shows stale answers.
_TTL: Final = 5


class StandIn(BaseHTTPRequestHandler):
    """A handle API that has a record for every name. A connection ends with its answer, as in HTTP/1.0."""

    def do_GET(self) -> None:
        """Answer a query about a name."""
        name = unquote(self.path.partition("?")[0].removeprefix("/api/handles/"))
        target = "http://www.doi.org/hb.html" if name == _KNOWN else f"https://example.org/{name}"
        url = {"index": 1, "type": "URL", "data": {"format": "string", "value": target}, "ttl": _TTL}
        body = json.dumps({"responseCode": 1, "handle": name, "values": [url]}).encode()
        self.send_response(http.client.OK)
        self.send_header("Content-Type", "application/json;charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


def open_stand_in(port: int = 0) -> ThreadingHTTPServer:
    """A stand-in at a port of 127.0.0.1, by default a free one."""
    server = ThreadingHTTPServer(("127.0.0.1", port), StandIn)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def pull_plug(server: ThreadingHTTPServer) -> None:
    """Close the port of a stand-in."""
    server.shutdown()
    server.server_close()


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(*_: object) -> None:
    # A closed terminal sends two signals: the second one must not interrupt the clean-up.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def run_demo(namespace: argparse.Namespace) -> int:
    """Play the demo. Returns the exit status: 1 if its proxy did not start or ended by itself."""
    given = [name for name, value in vars(namespace).items() if isinstance(value, str | Path) and name != "port"]
    if given:
        flag = given[0].replace("_", "-")
        raise ConfigurationError(f"--{flag}: the demo has settings of its own, of which only --port can be changed")
    port = namespace.port
    if port is not None and not (is_host_and_port(f"127.0.0.1:{port}") and int(port)):
        raise ConfigurationError(f"--port {port[:80]!r}: this is not a port; write a number from 1 to 65535")
    for number in _SIGNALS:
        signal.signal(number, _end)
    stand_in = open_stand_in()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        settings = {
            "port": port or "0",
            "store-url": f"sqlite:///{folder}/demo.sqlite3",
            "upstream-url": f"http://127.0.0.1:{stand_in.server_port}",
            "upstream-contact": "mailto:demo@example.org",
        }
        command = [sys.executable, "-m", "doi_proxy", "serve", *(f"--{key}={value}" for key, value in settings.items())]
        # The settings of an installation must not lead the demo to its store.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
        # Ctrl-C ends the proxy through the demo. In a session of its own it gets no signal itself.
        with (
            create_new(log) as file,
            subprocess.Popen(  # noqa: S603
                command, env=environment, stdin=subprocess.DEVNULL, stderr=file, start_new_session=True
            ) as proxy,
        ):
            try:
                is_complete = _play(proxy, log, stand_in)
            finally:
                proxy.terminate()
                with suppress(subprocess.TimeoutExpired):
                    proxy.wait(15)
                proxy.kill()
        if not is_complete:
            print(_read(log)[-10_000:], end="", file=sys.stderr, flush=True)
    return 0 if is_complete else 1


def _play(proxy: subprocess.Popen[bytes], log: Path, stand_in: ThreadingHTTPServer) -> bool:
    """Play until the end. Returns whether the proxy ran to the end."""
    while (serving := re.search(r"serving on (http://\S+)", _read(log))) is None:
        if proxy.poll() is not None:
            return False
        time.sleep(0.1)
    url = serving[1]
    print(f"A proxy on {url} asks a stand-in for doi.org, whose records expire after {_TTL} seconds.")
    _show(f"Each second: GET /{_KNOWN}, its status, its target, and what Cache-Status says. Ctrl-C ends the demo.")
    started = time.monotonic()
    for second in range(24):
        if second == 10:
            pull_plug(stand_in)
            _show(f"{second:3} s  The plug is pulled: doi.org cannot be reached.")
        elif second == 20:
            stand_in = open_stand_in(stand_in.server_port)
            # See docs/caching.md.
            message = "The plug is back. A known name is asked about again half a minute after its last failure."
            _show(f"{second:3} s  {message}")
        elif second in (17, 22):
            name = "10.5555/asked-in-the-outage" if second == 17 else "10.5555/asked-afterwards"
            _show(f"{second:3} s  a new name, {name}:  {_ask(url, name)}")
        _show(f"{second:3} s  {_ask(url, _KNOWN)}")
        with suppress(subprocess.TimeoutExpired):
            proxy.wait(max(0.0, started + second + 1 - time.monotonic()))
            return False
    _show(" 24 s  This was the outage.")
    return True


def _ask(url: str, name: str) -> str:
    """GET a name: the status and the target of the answer, and what Cache-Status or Proxy-Status says."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10.0)
    try:
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer of the proxy: {error}"
    finally:
        connection.close()
    source = answer.headers.get("Cache-Status") or answer.headers.get("Proxy-Status") or ""
    return f"{answer.status}  {answer.headers.get('Location') or answer.reason}  {source}"


def _read(log: Path) -> str:
    return read_regular(log, 16 * 1024 * 1024).decode("utf-8", "replace")


def _show(line: str) -> None:
    print(line, flush=True)
