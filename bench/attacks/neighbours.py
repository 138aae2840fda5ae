"""Attacks by a neighbour in a shared Valkey server, and by what answers in its place: each with the same without it."""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import redis

from bench.attacks.world import Checkout, Proxy, Row, get, proxy, upstream
from tests.constants import STORE_TIMEOUT
from tests.features.valkey.valkey_server import start_valkey

_NAMES: Final = [f"10.1000/stored-{number}" for number in range(19)]
_NO_UPSTREAM: Final = "http://127.0.0.1:9"
_KEYS: Final = "doi-proxy:1:"
#: The timeout of the store while it is filled, in seconds.
_FILLING: Final = 20.0
#: What makes a server refuse writes and answer reads, and what each is called in its error.
_REFUSALS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "nothing (control)": (),
    "full (OOM)": (("CONFIG", "SET", "maxmemory-policy", "noeviction"), ("CONFIG", "SET", "maxmemory", "1")),
    "NOREPLICAS": (("CONFIG", "SET", "min-replicas-to-write", "1"),),
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"),),
    "NOPERM": (("ACL", "SETUSER", "default", "-@write"),),
}
#: What a broken server answers every command with.
_REPLIES: Final[dict[str, bytes]] = {
    "an error (control)": b"-ERR no\r\n",
    "an empty array": b"*0\r\n",
    "nested arrays": b"*1\r\n" * 30 + b"*0\r\n",
    "a number": b":1\r\n",
    "an array of 2,000,000,000": b"*2000000000\r\n",
    "a text of 2,000,000,000 bytes": b"$2000000000\r\n",
    "fifty replies": b":1\r\n" * 50,
}


@contextmanager
def _filled(checkout: Checkout, ttl_ceiling: int = 86_400) -> Iterator[tuple[Any, str]]:
    """A server that a proxy has stored the names on: a client of it, and the URL of the store."""
    server = start_valkey()
    try:
        store = f"valkey://127.0.0.1:{server.port}/0"
        # On a busy machine, a record that takes longer than the usual timeout would not be stored, and prove nothing.
        filling: dict[str, Any] = {"ttl_ceiling": ttl_ceiling, STORE_TIMEOUT: _FILLING}
        with upstream() as url, proxy(checkout, url, store=store, **filling) as running:
            for name in _NAMES:
                get(running.port, f"/{name}")
        with redis.Redis(port=server.port) as client:
            stored = sum(1 for _ in client.scan_iter(f"{_KEYS}*STORED-*"))
            if stored != len(_NAMES):
                raise RuntimeError(f"{stored} of {len(_NAMES)} names were stored")
            yield client, store
            client.execute_command("ACL", "SETUSER", "default", "+@all")
    finally:
        server.stop()


def _ask(running: Proxy, pause: float = 0.0) -> str:
    """The statuses of the names, each requested once."""
    statuses = []
    for name in _NAMES:
        statuses.append(get(running.port, f"/{name}").status)
        time.sleep(pause)
    return ", ".join(f"{statuses.count(status)} x {status}" for status in sorted(set(statuses)))


_ALL: Final = f"{len(_NAMES)} x 302"


def refused(checkout: Checkout) -> Iterator[Row]:
    """A server that answers reads and refuses writes. The records are stale, and the upstream is down."""
    for label, commands in _REFUSALS.items():
        with _filled(checkout, ttl_ceiling=1) as (client, store):
            time.sleep(1.1)
            with proxy(checkout, _NO_UPSTREAM, store=store, ttl_ceiling=1) as running:
                for words in commands:
                    client.execute_command(*words)
                answers = _ask(running)
                state = json.loads(get(running.port, "/readyz").body)["detail"]["store"]
        expected = "ok" if not commands else "read-only"
        yield Row(f"stale names, writes refused: {label}", f"{answers}; {state}", (answers, state) == (_ALL, expected))


def flood(checkout: Checkout) -> Iterator[Row]:
    """5,002 announcements of 100 kB, while a proxy runs that has nothing in memory. The upstream is down."""
    for label, count in (("(control)", 0), ("of 500 MB", 5_002)):
        with _filled(checkout) as (client, store), proxy(checkout, _NO_UPSTREAM, store=store) as running:
            time.sleep(1.5)
            waiting = client.pipeline(transaction=False)
            for number in range(count):
                waiting.xadd(f"{_KEYS}feed", {"key": b"x" * 100_000})
                if number % 50 == 0:
                    waiting.execute()
            waiting.execute()
            answers = _ask(running, 0.3)
            left = client.xlen(f"{_KEYS}feed")
        yield Row(f"a flood of announcements {label}", f"{answers}; {left} left", answers == _ALL and left < 5_000)


def paused(checkout: Checkout) -> Iterator[Row]:
    """A forged pause of the upstream, whose key is deleted again."""
    with _filled(checkout) as (client, store), upstream() as url, proxy(checkout, url, store=store) as running:
        get(running.port, "/10.1000/before")
        for bucket in (*client.scan_iter(f"{_KEYS}bucket:*"), f"{_KEYS}bucket:pause {url}"):
            client.hset(bucket, "blocked_until", "1e300")
        time.sleep(2.5)
        during = get(running.port, "/10.1000/during")
        for bucket in client.scan_iter(f"{_KEYS}bucket:*"):
            client.delete(bucket)
        time.sleep(2.5)
        after = [get(running.port, f"/10.1000/after-{number}").status for number in range(10)]
    yield Row(
        "a pause until 1e300: new names meanwhile, and after its key is deleted",
        f"{during.status}, {after.count(302)} of 10",
        after.count(302) == 10,
    )


class _Broken(socketserver.ThreadingTCPServer):
    reply = b""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Answer whatever comes."""
        while self.request.recv(65_536):
            self.request.sendall(self.server.reply)  # type: ignore[attr-defined]


def replies(checkout: Checkout) -> Iterator[Row]:
    """A server whose replies have another shape, or no end."""
    for label, reply in _REPLIES.items():
        with _Broken(("127.0.0.1", 0), _Handler) as server, upstream() as url:
            server.reply = reply
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with proxy(checkout, url, store=f"valkey://127.0.0.1:{server.server_address[1]}/0") as running:
                process = psutil.Process(running.process.pid)
                before = sum(process.cpu_times()[:2])
                found = [get(running.port, f"/{name}", timeout=10) for name in _NAMES]
                found += [get(running.port, path, timeout=10) for path in ("/readyz", "/metrics", "/status")]
                spent = sum(process.cpu_times()[:2]) - before
                failed = sum(one.status not in (200, 302) for one in found)
                traces = sum("Traceback" in line for line in running.log)
            server.shutdown()
        worst = max(one.seconds for one in found)
        yield Row(
            f"every command is answered by {label}",
            f"{failed} of {len(found)} failed, {traces} tracebacks, longest {worst:.1f} s, {spent:.1f} s of CPU",
            failed == traces == 0 and worst < 2,
        )


def wal(checkout: Checkout) -> Iterator[Row]:
    """The `-wal` of a SQLite store is a link to another file, which the store must not change."""
    for label, is_link in (("(control)", False), ("is a link to another file", True)):
        with tempfile.TemporaryDirectory() as folder, upstream() as url:
            other, store = Path(folder, "other"), f"sqlite:///{folder}/store.sqlite3"
            other.write_bytes(b"of another program" * 10_000)
            before = other.read_bytes()
            with proxy(checkout, url, store=store) as running:
                _ask(running)
            if is_link:
                Path(folder, "store.sqlite3-wal").unlink(missing_ok=True)
                Path(folder, "store.sqlite3-wal").symlink_to(other)
            with proxy(checkout, url, store=store) as running:
                answers = _ask(running)
            is_same = other.read_bytes() == before
        holds = is_same and answers == _ALL
        yield Row(f"the -wal of the store {label}", f"{answers}; the other file is the same: {is_same}", holds)
