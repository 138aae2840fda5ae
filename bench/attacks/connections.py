"""Attacks on connections: unexpected bodies, answers that the client does not read, unfinished requests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from bench.attacks.world import Checkout, Peak, Probe, Row, connect, get, nginx, proxy, until, upstream
from tests.hostile.clients import flood, head, is_ended, read, send, statuses, with_body

_NAME: Final = "/10.1000/182"
#: Attackers and other clients are in different networks, and neither is a front proxy.
ATTACKER: Final = "127.0.66.1"
OTHER: Final = "127.0.2.1"
_SIZES: Final = (1_000, 10_000, 60_000, 66_000, 100_000, 130_000)
_MIB: Final = 1024 * 1024
#: The duration of attacks through nginx, in seconds, and the number of clients of each kind.
_NGINX_SECONDS: Final = 8.0
_NGINX_CLIENTS: Final = 6
_PIPELINES, _PIPELINED = 40, 14_000
_FLOOD_SECONDS: Final = 20.0
_MAX_GAINED: Final = 100 * _MIB
_UNFINISHED: Final = 300
_UNFINISHED_SECONDS: Final = 45.0
_DESCRIPTORS: Final = 256
_IDLE: Final = 400


def bodies(checkout: Checkout) -> Iterator[Row]:
    """GET with a body, directly, and through nginx with other clients."""
    with upstream() as url, proxy(checkout, url) as target:
        get(target.port, _NAME)
        counts = []
        for size in _SIZES:
            with connect(target.port, source=ATTACKER) as connection:
                send(connection, head(_NAME, f"Content-Length: {size}"), 0.02)
                send(connection, b"x" * size, 0.02)
                counts.append(len(statuses(read(connection))))
        yield Row(
            "GET with a body of 1,000 to 130,000 bytes: answers per request",
            " ".join(map(str, counts)),
            set(counts) == {1},
        )
        with nginx(checkout, target.port) as front:
            seen = _beside_bodies(front)
        foreign = {status: count for status, count in seen.items() if status != 302}
        words = ", ".join(f"{count} times {status or 'no answer'}" for status, count in sorted(foreign.items()))
        yield Row(
            "the same through nginx, with other clients: foreign answers",
            f"{(foreign and words) or 0} of {seen.total()}",
            not foreign and seen.total() > 0,
        )


def _beside_bodies(front: int) -> Counter[int]:
    ended = threading.Event()
    attackers = [threading.Thread(target=_send_bodies, args=(front, ended)) for _ in range(_NGINX_CLIENTS)]
    probes = [Probe(front, _NAME, source=OTHER, pause=0.001) for _ in range(_NGINX_CLIENTS)]
    with contextlib.ExitStack() as stack:
        for probe in probes:
            stack.enter_context(probe)
        for attacker in attackers:
            attacker.start()
        time.sleep(_NGINX_SECONDS)
        ended.set()
        for attacker in attackers:
            attacker.join()
    return Counter(reply.status for probe in probes for reply in probe.replies)


def _send_bodies(front: int, ended: threading.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(OSError), connect(front, source=ATTACKER, timeout=5.0) as connection:
            send(connection, with_body(_NAME, 100_000, "Connection: close"))
            read(connection, 1.0, 5.0)


def pipelines(checkout: Checkout) -> Iterator[Row]:
    """Many requests on each connection, without reading the answers."""
    with upstream() as url, proxy(checkout, url) as target, contextlib.ExitStack() as stack:
        get(target.port, _NAME)
        before = target.resident()
        connections = [stack.enter_context(connect(target.port, source=ATTACKER)) for _ in range(_PIPELINES)]
        with Peak(target.resident) as peak, Probe(target.port, _NAME, source=OTHER, pause=0.1, timeout=60.0) as probe:
            flood(connections, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * _PIPELINED, _FLOOD_SECONDS)
            time.sleep(2.0)
        gained = peak.highest - before
        answered = probe.count(302)
        yield Row(
            f"{_PIPELINES} connections that pipeline {_PIPELINED:,} requests and never read: memory gained",
            f"{gained / _MIB:,.0f} MB",
            gained <= _MAX_GAINED,
        )
        yield Row(
            "meanwhile, another client's requests: answered, longest wait",
            f"{answered} of {len(probe.replies)}, {probe.worst:.2f} s",
            answered == len(probe.replies) and probe.worst < 2.0,
        )


def unfinished(checkout: Checkout) -> Iterator[Row]:
    """Heads and bodies that never end."""
    with upstream() as url, proxy(checkout, url) as target, contextlib.ExitStack() as stack:
        get(target.port, _NAME)
        halves = (head(_NAME)[:-2], head(_NAME, "Content-Length: 1000", method="POST") + b"half")
        connections = []
        for number in range(_UNFINISHED):
            connection = stack.enter_context(connect(target.port, source=ATTACKER))
            send(connection, halves[number % 2])
            connections.append(connection)
        time.sleep(_UNFINISHED_SECONDS)
        ended = sum(map(is_ended, connections))
        yield Row(
            f"{_UNFINISHED} unfinished heads and bodies: closed after {_UNFINISHED_SECONDS:.0f} s",
            f"{ended}",
            ended == _UNFINISHED,
        )


def descriptors(checkout: Checkout) -> Iterator[Row]:
    """More idle connections than descriptors."""
    with upstream() as url, proxy(checkout, url, descriptors=_DESCRIPTORS) as target, contextlib.ExitStack() as stack:
        get(target.port, _NAME)
        for number in range(_IDLE):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(connect(target.port, source=f"127.0.{66 + number // 20}.1", timeout=2))
                connection.setblocking(False)
        time.sleep(1.0)
        replies = [get(target.port, _NAME, source=OTHER, timeout=2.0) for _ in range(10)]
        answered = sum(reply.status == 302 for reply in replies)
        lines = len(target.log)
        yield Row(
            f"{_IDLE} idle connections at a descriptor limit of {_DESCRIPTORS}: another client's requests answered",
            f"{answered} of 10, {lines} log lines",
            answered == 10,
        )


def half_closed(checkout: Checkout) -> Iterator[Row]:
    """A client that closes its sending side after the request, and heads without exactly one Host."""
    with upstream() as url, proxy(checkout, url) as target:
        with connect(target.port, source=OTHER) as connection:
            send(connection, head("/10.1000/new-name"))
            connection.shutdown(socket.SHUT_WR)
            answers = statuses(read(connection, 5.0))
        yield Row("a client that half-closes after its request: answers", f"{answers}", answers == [302])
        got = []
        for raw in (b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
            with connect(target.port, source=ATTACKER) as connection:
                send(connection, raw)
                got += statuses(read(connection))
        yield Row("no Host, two of them: status", " ".join(map(str, got)), got == [400, 400])


def malformed(checkout: Checkout) -> Iterator[Row]:
    """A series of malformed requests."""
    with upstream() as url, proxy(checkout, url) as target:
        for number in range(2_000):
            raw = b"\x00\r\n\r\n" if number % 2 else head("/", "Upgrade: websocket", "Connection: Upgrade, close")
            with contextlib.suppress(OSError), connect(target.port, source=ATTACKER) as connection:
                connection.sendall(raw)
                connection.recv(4096)
        until(lambda: False, 0.5)
        lines = len(target.log)
        yield Row("2,000 malformed and Upgrade requests: log lines", f"{lines}", lines < 20)
