"""Clients, names and requests that come and go: each new one takes the place of an older one in some bounded memory.

A bound that is kept by a list made now and then, by a sample or by a count of items holds against what stays. These
attacks never stay. Beside each, another client requests a stored name and new names.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bench.attacks.world import Checkout, Peak, Proxy, Repeated, Row, get, proxy, upstream
from bench.servers import HOST, free_port
from handle_protocol.wire.message import Filters, Query, encode_query
from tests.hostile.clients import head, read, send

_NAME: Final = "/10.1000/182"
_OTHER: Final = "127.0.2.1"
_THREADS: Final = 4
_NETWORKS: Final = 40
_SECONDS: Final = 6.0
#: Connections that a client of an attack keeps, and those that the proxy may have.
_KEPT: Final = 60
_CAP: Final = 200
#: Seconds between two connections of a thread. More than a core can accept is a flood, which nothing here stops.
_STEP_PAUSE: Final = 0.02
#: Requests that are sent before their answers are read.
_PIPELINED: Final = 50
_MAX_WAIT: Final = 2.0
_PAUSE: Final = 0.05
_MIB: Final = 1024 * 1024
_MAX_GAINED: Final = 60.0
_LISTED: Final = head("/api/resolve", "Content-Type: text/plain", "Content-Length: 100000", method="POST")

#: One step of an attack: with the number of the step, which no other step has, and what the thread keeps.
Step = Callable[[Proxy, int, "_Kept"], None]


@dataclass
class _Kept:
    """The connections that a thread of an attack keeps, oldest first."""

    connections: deque[socket.socket] = field(default_factory=deque)

    def keep(self, connection: socket.socket, most: int) -> None:
        """Keep a connection, and end the oldest beyond `most`."""
        self.connections.append(connection)
        while len(self.connections) > most:
            self.connections.popleft().close()

    def one(self, running: Proxy, number: int) -> socket.socket:
        """The connection that is kept, or a new one."""
        if not self.connections:
            self.connections.append(running.open(_source(number), 5.0))
        return self.connections[0]


class _Churn:
    """Repeats a step in several threads while the `with` block runs."""

    def __init__(self, running: Proxy, step: Step) -> None:
        self._running, self._step = running, step
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(_THREADS)]

    @property
    def steps(self) -> int:
        """The steps that were begun."""
        return next(self._numbers)

    def __enter__(self) -> _Churn:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        kept = _Kept()
        while not self._ended.is_set():
            try:
                self._step(self._running, next(self._numbers), kept)
            except OSError:
                kept.connections.clear()
                self._ended.wait(0.01)
        for connection in kept.connections:
            connection.close()


class _Other(Repeated):
    """Another client, which requests the stored name and a new name in turn, on new connections."""

    def __init__(self, running: Proxy, mark: str) -> None:
        super().__init__(_PAUSE)
        self._running, self._mark = running, mark
        self._failed = self._requests = 0
        self._longest = 0.0

    def _step(self) -> None:
        for target in (_NAME, f"/10.1000/{self._mark}-{self._requests}"):
            began = time.monotonic()
            self._failed += self._running.status(target, _OTHER, timeout=5 * _MAX_WAIT) != 302
            self._longest = max(self._longest, time.monotonic() - began)
            self._requests += 1

    @property
    def figure(self) -> str:
        """The requests that failed, and the longest wait."""
        return f"{self._failed} of {self._requests}, {self._longest:.2f} s"

    @property
    def holds(self) -> bool:
        """Whether none failed or waited too long."""
        return self._requests > 0 and not self._failed and self._longest <= _MAX_WAIT


def _source(number: int) -> str:
    return f"127.0.{66 + number % _NETWORKS}.1"


def _keep_alive(running: Proxy, number: int, kept: _Kept) -> None:
    connection = running.open(_source(number), 5.0)
    kept.keep(connection, _KEPT)
    send(connection, head(_NAME))
    time.sleep(_STEP_PAUSE)


def _leave(sent: Callable[[int], bytes]) -> Step:
    def step(running: Proxy, number: int, kept: _Kept) -> None:
        with running.open(_source(number), 5.0) as connection:
            send(connection, sent(number))
        time.sleep(_STEP_PAUSE)

    return step


def _request(*heads: Callable[[int], bytes]) -> Step:
    """Requests on one connection; their answers are read. Each head is made from another number."""

    def step(running: Proxy, number: int, kept: _Kept) -> None:
        connection = kept.one(running, number)
        for place in range(_PIPELINED):
            send(connection, heads[place % len(heads)](number * _PIPELINED + place))
        if not read(connection, 0.05, 5.0):
            kept.connections.clear()

    return step


def _spelled(number: int) -> str:
    """A spelling of one name."""
    return "".join(letter.upper() if number >> place & 1 else letter for place, letter in enumerate("spellingsofone"))


#: What comes and goes.
_ATTACKS: Final[dict[str, Step]] = {
    "connections that are kept after one request": _keep_alive,
    "connections that end within a head": _leave(lambda _: head(_NAME)[:-2]),
    "requests for new names that are left at once": _leave(lambda number: head(f"/10.1000/left-{number}")),
    "requests for names that hang, left at once": _leave(lambda number: head(f"/10.6204/{number}")),
    "lists that are left after three rows": _leave(
        lambda number: _LISTED + b"".join(b"10.1000/row-%d-%d\n" % (number, row) for row in range(3))
    ),
    f"{_PIPELINED} requests with different headers": _request(lambda number: head(_NAME, f"X-Attack: {number}")),
    f"{_PIPELINED} different spellings of a name": _request(lambda number: head(f"/10.1000/{_spelled(number)}")),
    f"{_PIPELINED} different queries of a name": _request(lambda number: head(f"{_NAME}?noredirect&x={number // 2}")),
    f"{_PIPELINED} names that are not registered": _request(lambda number: head(f"/10.6666/none~{number}")),
    f"{_PIPELINED} names that fail": _request(lambda number: head(f"/10.6200/{number}")),
    f"{_PIPELINED} pages in different languages": _request(
        lambda number: head(f"{_NAME}?noredirect", f"Accept-Language: a{number % 97}, de;q=0.{number % 9}")
    ),
}


def comings(checkout: Checkout) -> Iterator[Row]:
    """What comes and goes over HTTP, each with a control before it."""
    for number, (what, step) in enumerate(_ATTACKS.items()):
        with upstream() as url, proxy(checkout, url, max_connections=_CAP) as running:
            running.status(_NAME, _OTHER, timeout=20.0)
            with _Other(running, f"before-{number}") as control:
                time.sleep(_SECONDS / 3)
            before = running.resident()
            with Peak(running.resident) as most, _Churn(running, step) as churn, _Other(running, f"n{number}") as other:
                time.sleep(_SECONDS)
            gained = (most.highest - before) / _MIB
            yield Row(
                f"{what}, {churn.steps:,} times: another client's requests that fail, longest wait (without them); "
                "memory gained",
                f"{other.figure} ({control.figure}); {gained:.0f} MB",
                control.holds and other.holds and gained <= _MAX_GAINED,
            )


def accounts(checkout: Checkout) -> Iterator[Row]:
    """A client over its rate, while more networks come and go than accounts are remembered."""
    limits: dict[str, Any] = {"client_rate": 0.01, "client_burst": 20}
    with upstream() as url, proxy(checkout, url, **limits) as running:

        def admitted(count: int) -> int:
            limited = (get(running.port, _NAME, X_Forwarded_For="203.0.113.7") for _ in range(count))
            return sum(reply.status != 429 for reply in limited)

        first, control = admitted(40), admitted(40)
        step = _request(lambda number: head(_NAME, f"X-Forwarded-For: {1 + number % 90}.{number // 90 % 250}.9.7"))
        with _Churn(running, step) as churn:
            time.sleep(_SECONDS)
            beside = admitted(40)
        yield Row(
            f"{churn.steps:,} times {_PIPELINED} requests of networks that come and go, beside a client over its rate: "
            "its requests that are admitted (before; its burst)",
            f"{beside} ({control}; {first})",
            control == 0 and first == 20 and beside <= 20,
        )


def native(checkout: Checkout) -> Iterator[Row]:
    """Connections to the native listener that come and go, more than may be open."""
    port = free_port()
    request = encode_query(Query(Filters(b"10.1000/182"), 7, 1_900_000_000))
    limits: dict[str, Any] = {"native_listen": f"{HOST}:{port}", "max_connections": _CAP}

    def answered() -> int:
        found = 0
        for _ in range(40):
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), 2.0, (_OTHER, 0)) as connection:
                connection.sendall(request)
                found += len(read(connection, 2.0)) > 0
            time.sleep(_PAUSE)
        return found

    for what, sent in (("silent", b""), ("with a part of a message", request[:30]), ("with a request", request)):
        with upstream() as url, proxy(checkout, url, **limits) as running:
            get(running.port, _NAME)

            def step(_: Proxy, number: int, kept: _Kept, sent: bytes = sent) -> None:
                connection = socket.create_connection((HOST, port), 2.0, (_source(number), 0))
                kept.keep(connection, _KEPT)
                connection.sendall(sent)
                time.sleep(_STEP_PAUSE)

            control = answered()
            with _Churn(running, step):
                found = answered()
        yield Row(
            f"connections to the native listener that come and go, {what}: another client's queries that are answered "
            "(without them)",
            f"{found} of 40 ({control})",
            found == control == 40,
        )
