"""Attacks by lists: many at a time, answers that are never read, and clients that leave in the middle."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import psutil

from bench.attacks.connections import ATTACKER, OTHER
from bench.attacks.world import Checkout, Peak, Probe, Proxy, Row, connect, get, proxy, until, upstream
from tests.cluster.raw_http import ask
from tests.constants import MAX_OPEN, WRITE_TIMEOUT
from tests.hostile.clients import flood, head, read, send, statuses

_NAME: Final = "/10.1000/182"
_PATH: Final = "/api/resolve"
_TEXT: Final = "Content-Type: text/plain"
_MIB: Final = 1024 * 1024
#: Lists at a time, and the names of each.
_PARALLEL: Final = 200
_GAVE_WAY: Final = b"Another client needed the place"
_NAMES: Final = 100
_MAX_GAINED: Final = 100 * _MIB
#: The longest wait of another client, in seconds.
_MAX_WAIT: Final = 2.0
#: Seconds without lists, for comparison.
_CONTROL_SECONDS: Final = 3.0
#: Seconds until the last of the lists has its rows.
_PATIENCE: Final = 120.0
#: Lists that are never read: as many as a process has at a time, and the bytes that each client tries to send.
_UNREAD: Final = 16
_UNREAD_BYTES: Final = 16 * _MIB
_WRITE_TIMEOUT: Final = 5
_RECEIVE_BUFFER: Final = 65_536
#: Lists without a name: the megabytes of each, the seconds until it must end, and the processor time of all of them.
_EMPTY_MIB: Final = 30
_EMPTY_SECONDS: Final = 45.0
_MAX_SPENT: Final = 5.0
#: Seconds until their connections are closed.
_CLOSING: Final = 30.0
#: Queries a second while a client leaves, and the limit of queries after it left: those under way.
_RATE: Final = 50
_MAX_QUERIES: Final = 8
_LEFT_NAMES: Final = 5_000
_LEFT_SECONDS: Final = 4.0
#: Unrelated networks with a complete list of names that hang, the names of each, and the requests of another client.
_CROWD: Final = 16
_CROWD_NAMES: Final = 2_000
_SHORT_LISTS: Final = 8
#: Seconds in which a long list of a client without one must have a place, refusals with Retry-After included.
_PLACE_SECONDS: Final = 90.0
_QUERIES: Final = re.compile(rb"^doi_proxy_upstream_questions_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


def parallel(checkout: Checkout) -> Iterator[Row]:
    """200 lists at a time: with the default limits, and with limits that admit all of them."""
    with upstream() as url, proxy(checkout, url) as running:
        get(running.port, _NAME)
        with Probe(running.port, _NAME, source=OTHER, pause=0.1) as probe:
            time.sleep(_CONTROL_SECONDS)
        yield _beside("control: no lists", probe)
        with Probe(running.port, _NAME, source=OTHER, pause=0.1) as probe:
            statuses, rows = _send_lists(running)
        yield Row(
            f"{_PARALLEL} parallel lists from 50 networks: answered, refused or ended for others, neither; rows "
            "of those answered",
            f"{statuses[200]}, {statuses[429]}, {statuses.total() - statuses[200] - statuses[429]}; {rows}",
            statuses[200] + statuses[429] == _PARALLEL and rows == statuses[200] * _NAMES > 0,
        )
        yield _beside("meanwhile", probe)
    limits: dict[str, Any] = {MAX_OPEN: 4 * _PARALLEL}
    with upstream() as url, proxy(checkout, url, **limits) as running:
        get(running.port, _NAME)
        before = running.resident()
        with Peak(running.resident) as peak, Probe(running.port, _NAME, source=OTHER, pause=0.1) as probe:
            statuses, rows = _send_lists(running)
        most = _PARALLEL * _NAMES
        yield Row(f"{_PARALLEL} lists at a time, all admitted: rows", f"{rows:,} of {most:,}", rows == most)
        gained = peak.highest - before
        yield Row("meanwhile, memory gained", f"{gained / _MIB:,.0f} MB", gained <= _MAX_GAINED)
        yield _beside("meanwhile", probe)


def _beside(attack: str, probe: Probe) -> Row:
    """How another client fared."""
    return Row(
        f"{attack}: another client's requests: answered, longest wait",
        f"{probe.count(302)} of {len(probe.replies)}, {probe.worst:.2f} s",
        probe.count(302) == len(probe.replies) > 0 and probe.worst <= _MAX_WAIT,
    )


def _send_lists(running: Proxy) -> tuple[Counter[int], int]:
    """The statuses of all lists, and the number of rows with a target. A status is 0 without an answer."""

    async def resolve(number: int) -> tuple[int, int]:
        body = "".join(f"10.1000/list-{number}-{name}\n" for name in range(_NAMES)).encode()
        client = f"127.1.{number % 50}.1"
        text = {"Content-Type": "text/plain"}
        try:
            answer = await ask(
                running.port, _PATH, method="POST", headers=text, body=body, client=client, deadline=_PATIENCE
            )
        except (OSError, EOFError, TimeoutError):
            return 0, 0
        if _GAVE_WAY in answer.body:
            return 429, 0  # it had begun, and says at its end that another client needed its place
        return answer.status, answer.body.count(b'"verdict":"resolved"')

    async def resolve_all() -> list[tuple[int, int]]:
        return await asyncio.gather(*map(resolve, range(_PARALLEL)))

    answers = asyncio.run(resolve_all())
    return Counter(status for status, _ in answers), sum(rows for _, rows in answers)


def whole(checkout: Checkout) -> Iterator[Row]:
    """Unrelated networks have a complete list each, of names that hang, and another client sends lists."""
    for networks in (0, _CROWD):
        with upstream() as url, proxy(checkout, url) as running, ExitStack() as stack:
            for number in range(networks):
                names = b"".join(b"10.6204/%d-%d\n" % (number, row) for row in range(_CROWD_NAMES))
                connection = stack.enter_context(connect(running.port, source=f"127.{number + 10}.0.1"))
                send(connection, _list_head(names) + names)
            time.sleep(2.0)
            short = [_send_list(running, _NAMES) for _ in range(_SHORT_LISTS)]
            began, refusals, status = time.monotonic(), 0, 0
            while time.monotonic() - began < _PLACE_SECONDS and (status := _send_list(running, _CROWD_NAMES)) != 200:
                refusals += 1
                time.sleep(10.0)
            waited = time.monotonic() - began
        attack = f"{networks} unrelated networks with a complete list each" if networks else "control: no other lists"
        yield Row(
            f"{attack}: lists of {_NAMES} names of another client that are answered; refusals of one of "
            f"{_CROWD_NAMES:,} names, seconds until it is answered",
            f"{short.count(200)} of {_SHORT_LISTS}; {refusals}, {waited:.0f} s",
            short.count(200) == _SHORT_LISTS and status == 200,
        )


def _list_head(names: bytes) -> bytes:
    return head(_PATH, _TEXT, f"Content-Length: {len(names)}", "Connection: close", method="POST")


def _send_list(running: Proxy, count: int) -> int:
    """The status of a list of registered names. 0 without an answer."""
    names = b"".join(b"10.1000/whole-%d\n" % number for number in range(count))
    try:
        with connect(running.port, source=OTHER) as connection:
            send(connection, _list_head(names) + names)
            return next(iter(statuses(read(connection, 20.0))), 0)
    except OSError:
        return 0


def empty(checkout: Checkout) -> Iterator[Row]:
    """Lists without a name, compressed, beside as many lists of as many bytes with names."""
    # Noise after each megabyte keeps the ratio of compression below its limit: a comment, which is not a name.
    noise = b"".join(b"#%b\n" % random.Random(number).randbytes(6_900).hex().encode() for number in range(_EMPTY_MIB))
    lines = (b"\n" * _MIB) * _EMPTY_MIB
    for words, text in (("empty lines", lines + noise), ("names", b"10.1000/182\n" * 1_000 + noise)):
        body = gzip.compress(text)
        with upstream() as url, proxy(checkout, url) as running:
            get(running.port, _NAME)
            before = _processor_time(running)
            began = time.monotonic()
            statuses = asyncio.run(_send_all(running, body))
            spent, passed = _processor_time(running) - before, time.monotonic() - began
        yield Row(
            f"{_UNREAD} gzip lists of {len(body) / 1000:,.0f} kB ({len(text) / _MIB:,.0f} MB of {words}): processor "
            "time, all ended after, statuses",
            f"{spent:.1f} s, {passed:.0f} s, {dict(statuses)}",
            spent <= _MAX_SPENT,
        )


async def _send_all(running: Proxy, body: bytes) -> Counter[int]:
    """The statuses of as many lists as are answered at a time; 0 for one that has not ended in time."""

    async def send_one(number: int) -> int:
        headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        client = f"127.1.{number % 4}.1"
        try:
            answer = await ask(
                running.port, _PATH, method="POST", headers=headers, body=body, client=client, deadline=_EMPTY_SECONDS
            )
        except (OSError, EOFError, TimeoutError):
            return 0
        return answer.status

    return Counter(await asyncio.gather(*map(send_one, range(_UNREAD))))


def _processor_time(running: Proxy) -> float:
    first = psutil.Process(running.process.pid)
    times = [process.cpu_times() for process in (first, *first.children(recursive=True))]
    return float(sum(used.user + used.system for used in times))


def unread(checkout: Checkout) -> Iterator[Row]:
    """Clients that send lists of a cached name, and never read the rows."""
    settings: dict[str, Any] = {WRITE_TIMEOUT: _WRITE_TIMEOUT, MAX_OPEN: 4 * _UNREAD}
    # A row repeats its input. Long lines fill the buffers of a connection with few rows.
    line = b"10.1000/182" + b" " * 1_000 + b"\n"
    data = head(_PATH, _TEXT, f"Content-Length: {_UNREAD_BYTES}", method="POST") + line * (_UNREAD_BYTES // len(line))
    with upstream() as url, proxy(checkout, url, **settings) as running, ExitStack() as stack:
        get(running.port, _NAME)
        before = running.resident()
        connections = [stack.enter_context(connect(running.port, source=ATTACKER)) for _ in range(_UNREAD)]
        for connection in connections:
            # Otherwise the system of the client reads some megabytes for it.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        with Peak(running.resident) as peak, Probe(running.port, _NAME, source=OTHER, pause=0.1) as probe:
            sent = flood(connections, data, 2.0 * _WRITE_TIMEOUT)
            until(lambda: not _count_open(running), _CLOSING)
        gained = peak.highest - before
        yield Row(
            f"{_UNREAD} clients that send lists and never read: memory gained for {sent / _MIB:,.0f} MB that they sent",
            f"{gained / _MIB:,.0f} MB",
            gained <= _MAX_GAINED,
        )
        is_open = _count_open(running)
        yield Row(
            f"their connections, which time out after {_WRITE_TIMEOUT} s: closed within {_CLOSING:.0f} s",
            f"{_UNREAD - is_open} of {_UNREAD}",
            not is_open,
        )
        yield _beside("meanwhile", probe)


def _count_open(running: Proxy) -> int:
    """The connections that the proxy has with the attacker."""
    connections = psutil.Process(running.process.pid).net_connections("tcp")
    return sum(bool(one.raddr) and one.raddr[0] == ATTACKER for one in connections)


def left(checkout: Checkout) -> Iterator[Row]:
    """Clients that leave after some rows, when their list is complete and before."""
    body = "".join(f"10.1000/left-{number}\n" for number in range(_LEFT_NAMES)).encode()
    for words, length in (("its whole list is sent", len(body)), ("half of its list is sent", 2 * len(body))):
        with upstream() as url, proxy(checkout, url, upstream_rate=_RATE, upstream_burst=1) as running:
            with connect(running.port, source=ATTACKER) as connection:
                send(connection, head(_PATH, _TEXT, f"Content-Length: {length}", method="POST") + body)
                began = until(lambda: _count_queries(running) >= _MAX_QUERIES, 20.0)
            after = _count_queries(running)
            time.sleep(_LEFT_SECONDS)
            queries = _count_queries(running) - after
        yield Row(
            f"a client with {_LEFT_NAMES:,} new names leaves after {words}: upstream queries in the next "
            f"{_LEFT_SECONDS:.0f} s, at a rate of {_RATE}",
            f"{queries}",
            began and queries <= _MAX_QUERIES,
        )


def _count_queries(running: Proxy) -> int:
    found = _QUERIES.findall(get(running.port, "/metrics").body)
    return round(sum(map(float, found)))
