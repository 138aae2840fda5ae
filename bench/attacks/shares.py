"""Attacks on the budget: one client requests more than its share, and another client needs a little."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from bench.attacks.world import Checkout, Reply, Row, get, proxy, upstream

_GREEDY: Final = "198.51.100.7"
_MODEST: Final = "203.0.113.9"
_PARALLEL: Final = 40
_NEW_NAMES: Final = 10
_MAX_WAIT: Final = 2.0
#: Seconds until the greedy client has used the burst, and between two names of the other client.
_WARM_UP: Final = 6.0
_PAUSE: Final = 0.5


def shares(checkout: Checkout) -> Iterator[Row]:
    """40 parallel unknown names of one client, 100 names a second of Which RA, 40 addresses that bypass the cache."""
    yield _parallel(checkout, "one client with 40 parallel unknown names at rate 10", "/10.1000/greedy-{}", _PARALLEL)
    listed = ",".join(f"10.{{0}}{number:02}" for number in range(100))
    yield _parallel(checkout, "one client with `/ra/` requests of 100 names at rate 10", f"/ra/{listed}", 4)
    yield _bypass(checkout)


def _parallel(checkout: Checkout, attack: str, target: str, parallel: int) -> Row:
    numbers = count(10)
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            reply = get(running.port, target.format(next(numbers)), X_Forwarded_For=_GREEDY)
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
            replies.append(get(running.port, f"/10.1000/modest-{number}", X_Forwarded_For=_MODEST))
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
    return Row("240 requests with `auth` from 40 addresses of one /64: answered", f"{answered}", answered <= 90)
