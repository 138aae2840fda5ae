"""Attacks on scarce places: some clients request more than their share, and another client needs a little."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from bench.attacks.world import Checkout, Proxy, Reply, Row, connect, get, proxy, upstream
from tests.hostile.clients import head, read, send, statuses

#: Loopback addresses in different networks: a front proxy would replace an X-Forwarded-For.
_GREEDY: Final = "127.98.51.7"
_MODEST: Final = "127.0.113.9"
_PARALLEL: Final = 40
_NEW_NAMES: Final = 10
_MAX_WAIT: Final = 2.0
#: Seconds until the greedy client has used the burst, and between two names of the other client.
_WARM_UP: Final = 6.0
_PAUSE: Final = 0.5
#: A prefix whose names the hostile upstream never answers; the proxy gives up after 8 s.
_HANGING: Final = "10.6204"
#: Networks of the attackers, and names of each at a time. The first row is the control.
_HANGING_CROWDS: Final = ((0, 0), (20, 1), (40, 1), (3, 14))
_HANGING_NAMES: Final = 20
#: Slow lists, their networks, and seconds between two lines of a list: about 10 bytes a second in all.
_SLOW_LISTS: Final = 16
_SLOW_NETWORKS: Final = 4
_LINE_EVERY: Final = 2.0
_LISTS: Final = 8


def shares(checkout: Checkout) -> Iterator[Row]:
    """40 parallel unknown names of one client, 100 names a second of Which RA, 40 addresses that bypass the cache."""
    yield _parallel(checkout, "control: no greedy client", "", 0)
    yield _parallel(checkout, "one client with 40 parallel unknown names at rate 10", "/10.1000/greedy-{}", _PARALLEL)
    listed = ",".join(f"10.{{0}}{number:02}" for number in range(100))
    yield _parallel(checkout, "one client with `/ra/` requests of 100 names at rate 10", f"/ra/{listed}", 4)
    yield _bypass(checkout)


def _parallel(checkout: Checkout, attack: str, target: str, parallel: int) -> Row:
    numbers = count(10)
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            reply = get(running.port, target.format(next(numbers)), source=_GREEDY)
            if reply.status == 429:
                ended.wait(0.05)

    settings: dict[str, Any] = {"upstream_rate": 10, "upstream_burst": 50}
    with upstream() as url, proxy(checkout, url, **settings) as running:
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(parallel)]
        for thread in threads:
            thread.start()
        ended.wait(_WARM_UP)
        replies: list[Reply] = []
        for number in range(_NEW_NAMES):
            replies.append(get(running.port, f"/10.1000/modest-{number}", source=_MODEST))
            ended.wait(_PAUSE)
        ended.set()
        for thread in threads:
            thread.join()
    in_time = sum(reply.status == 302 and reply.seconds <= _MAX_WAIT for reply in replies)
    return Row(
        f"{attack}: another client's new names within 2 s",
        f"{in_time} of {_NEW_NAMES} (longest {max(reply.seconds for reply in replies):.1f} s)",
        in_time == _NEW_NAMES,
    )


def _bypass(checkout: Checkout) -> Row:
    """`auth` bypasses the cache. A client is a network."""
    with upstream() as url, proxy(checkout, url) as running:
        statuses = [
            get(running.port, "/10.1000/182?auth=true", X_Forwarded_For=f"2001:db8::{number % 40:x}").status
            for number in range(240)
        ]
    answered = statuses.count(302)
    return Row(
        "240 requests with `auth` from 40 addresses of one /64: answered",
        f"{answered}",
        answered <= 90,
    )


def hanging(checkout: Checkout) -> Iterator[Row]:
    """Names that hang, with the default budget, of 3, 20 and 40 networks."""
    for networks, names in _HANGING_CROWDS:
        budget: dict[str, Any] = {"upstream_rate": 10, "upstream_burst": 50}
        with upstream() as url, proxy(checkout, url, **budget) as running:
            replies = _beside_hanging(running, networks, names)
        failed = sum(reply.status != 302 for reply in replies)
        waits = sorted(reply.seconds for reply in replies)
        attack = f"{networks} networks with {names} names that hang" if networks else "control: no names that hang"
        figure = f"{failed} of {len(replies)}, {waits[len(waits) // 2]:.2f} s, {waits[-1]:.1f} s"
        yield Row(f"{attack}: another client's new names that fail, median and longest wait", figure, not failed)


def _beside_hanging(running: Proxy, networks: int, names: int) -> list[Reply]:
    numbers, ended = count(), threading.Event()

    def hang(client: str) -> None:
        while not ended.is_set():
            get(running.port, f"/{_HANGING}/{next(numbers)}", source=client)
            ended.wait(_PAUSE)

    clients = [f"127.{network + 10}.0.1" for network in range(networks)] * names
    threads = [threading.Thread(target=hang, args=(client,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    ended.wait(2.0)
    replies = []
    for number in range(_HANGING_NAMES):
        replies.append(get(running.port, f"/10.1000/other-{number}", source=_MODEST))
        ended.wait(_PAUSE)
    ended.set()
    return replies


def slow_lists(checkout: Checkout) -> Iterator[Row]:
    """Lists whose lines arrive slowly, from four networks, beside the lists of another client."""
    for lists in (0, _SLOW_LISTS):
        with upstream() as url, proxy(checkout, url) as running, contextlib.ExitStack() as stack:
            connections = []
            for number in range(lists):
                source = f"127.{70 + number % _SLOW_NETWORKS}.0.1"
                connection = stack.enter_context(connect(running.port, source=source))
                send(
                    connection,
                    head("/api/resolve", "Content-Type: text/plain", "Content-Length: 100000", method="POST"),
                )
                connections.append(connection)
            statuses: Counter[int] = Counter()
            for _ in range(_LISTS):
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.sendall(b"10.1000/182\n")
                threading.Event().wait(_LINE_EVERY)
                statuses[_resolve(running)] += 1
        attack = f"{lists} slow lists from {_SLOW_NETWORKS} networks" if lists else "control: no slow lists"
        yield Row(
            f"{attack}: lists of another client that are answered",
            f"{statuses[200]} of {_LISTS}",
            statuses[200] == _LISTS,
        )


def _resolve(running: Proxy) -> int:
    """The status of one list. 0 without an answer."""
    request = head("/api/resolve", "Content-Type: text/plain", "Content-Length: 12", "Connection: close", method="POST")
    try:
        with connect(running.port, source=_MODEST) as connection:
            send(connection, request + b"10.1000/182\n")
            return next(iter(statuses(read(connection, 20.0))), 0)
    except OSError:
        return 0
