"""Many clients of one proxy at a time, through its door or the front that is chosen, and another client beside them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.attacks.world import Checkout, Peak, Proxy, Repeated, Row
from tests.hostile.clients import head, read, send, statuses

#: A cached name, and the other client that requests it.
NAME: Final = "/10.1000/182"
OTHER: Final = "127.0.113.9"
#: The longest wait of the other client, in seconds.
MAX_WAIT: Final = 2.0
MIB: Final = 1024 * 1024
_PAUSE: Final = 0.05
#: Clients at a time, and their networks.
_CLIENTS: Final = 24
_NETWORKS: Final = 40
#: Seconds without a byte after which an answer counts as complete, and those of a whole answer.
_QUIET: Final = 30.0
_DEADLINE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and what it is called in a row."""

    label: str
    target: str
    method: str = "GET"
    lines: tuple[str, ...] = ()
    body: bytes = b""

    def write(self) -> bytes:
        """The bytes of the request. The connection ends after its answer."""
        length = (f"Content-Length: {len(self.body)}",) if self.body else ()
        return head(self.target, *self.lines, *length, "Connection: close", method=self.method) + self.body


class Beside(Repeated):
    """Another client, which requests a cached name through the door of the proxy or its front."""

    def __init__(self, running: Proxy, name: str = NAME) -> None:
        super().__init__(_PAUSE)
        self._running = running
        self._name = name
        self._seconds: list[float] = []
        self._failed = 0

    def _step(self) -> None:
        began = time.monotonic()
        self._failed += self._running.status(self._name, OTHER, timeout=5 * MAX_WAIT) != 302
        self._seconds.append(time.monotonic() - began)

    @property
    def figure(self) -> str:
        """The failed requests, and the longest wait."""
        return f"{self._failed} of {len(self._seconds)} failed, {max(self._seconds, default=0.0):.2f} s"

    @property
    def holds(self) -> bool:
        """Whether none failed or waited for too long."""
        return bool(self._seconds) and not self._failed and max(self._seconds) <= MAX_WAIT


def ask(running: Proxy, request: Request, source: str = "127.0.1.1") -> tuple[int, float, bytes]:
    """The status of the answer, 0 without one; its seconds, and its bytes."""
    began, received = time.monotonic(), b""
    with contextlib.suppress(OSError), running.open(source, _QUIET) as connection:
        send(connection, request.write())
        received = read(connection, _QUIET, _DEADLINE)
    return next(iter(statuses(received)), 0), time.monotonic() - began, received


def flood(running: Proxy, choose: Callable[[int], Request], count: int) -> Counter[int]:
    """The statuses of `count` requests of many clients from many networks; 0 for one without an answer."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        return Counter(
            pool.map(lambda number: ask(running, choose(number), f"127.1.{number % _NETWORKS}.1")[0], range(count))
        )


@contextmanager
def slow_peers(running: Proxy, beginning: bytes, count: int, networks: int = 4) -> Iterator[None]:
    """Connections that send a beginning, and then a byte a second. They read nothing."""
    with contextlib.ExitStack() as stack:
        connections = []
        for number in range(count):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(running.open(f"127.{70 + number % networks}.0.1", 5.0))
                send(connection, beginning)
                connections.append(connection)
        ended = threading.Event()

        def trickle() -> None:
            while not ended.wait(1.0):
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.sendall(b"x")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@dataclass(frozen=True, slots=True)
class Target:
    """What is attacked: usual requests, hostile ones, those of a flood by number, and one that a slow peer begins."""

    name: str
    usual: Request
    hostile: tuple[Request, ...]
    flood: Callable[[int], Request]
    slow: bytes
    #: Requests of a flood, and the memory that it may gain, in MB.
    count: int = 1_000
    most_gained: int = 80
    #: What a usual request may be answered with.
    expected: frozenset[int] = frozenset({200})


#: What a hostile request may be answered with.
_REFUSALS: Final = frozenset({200, 204, 302, 304, 400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 422, 429, 431})
_SLOW: Final = 100
_SLOW_SECONDS: Final = 6.0


def attack(checkout: Checkout, running: Proxy, target: Target, name: str = NAME) -> Iterator[Row]:
    """A control, then hostile inputs, a flood and slow peers, each beside another client, which requests `name`."""
    where = f"{target.name}, {running.door.value}" if not checkout.front else target.name
    running.status(name, OTHER, timeout=20.0)
    with Beside(running, name) as beside:
        usual = [ask(running, target.usual)[0] for _ in range(5)]
        time.sleep(1.0)
    yield Row(
        f"{where}: control: usual requests; another client",
        f"{_show(Counter(usual))}; {beside.figure}",
        set(usual) <= target.expected and beside.holds,
    )
    with Beside(running, name) as beside:
        before = running.spent()
        answers = [(request.label, ask(running, request)[0]) for request in target.hostile]
        spent = running.spent() - before
    wrong = dict(answer for answer in answers if answer[1] not in _REFUSALS)
    found = Counter(status for _, status in answers)
    yield Row(
        f"{where}: {len(target.hostile)} hostile inputs: statuses, processor time; another client",
        f"{_show(found)}{f' {wrong}' if wrong else ''}, {spent:.2f} s; {beside.figure}",
        not wrong and beside.holds,
    )
    before, memory = running.spent(), running.resident()
    with Peak(running.resident) as most, Beside(running, name) as beside:
        found = flood(running, target.flood, target.count)
    each, gained = (running.spent() - before) * 1_000 / target.count, (most.highest - memory) / MIB
    yield Row(
        f"{where}: a flood of {target.count:,}: statuses, processor time of each, memory gained; another client",
        f"{_show(found)}, {each:.1f} ms, {gained:.0f} MB; {beside.figure}",
        set(found) <= target.expected | {429, 503} and gained <= target.most_gained and beside.holds,
    )
    with slow_peers(running, target.slow, _SLOW), Beside(running, name) as beside:
        time.sleep(_SLOW_SECONDS)
        usual = [ask(running, target.usual, OTHER)[0] for _ in range(5)]
    yield Row(
        f"{where}: {_SLOW} slow peers: usual requests of another client; its other requests",
        f"{_show(Counter(usual))}; {beside.figure}",
        set(usual) <= target.expected and beside.holds,
    )


def _show(found: Counter[int]) -> str:
    return ", ".join(f"{count} x {status}" for status, count in sorted(found.items()))
