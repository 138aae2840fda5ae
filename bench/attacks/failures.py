"""Attacks by failures: names that fail, their effect on other names, and the log lines of an outage."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any, Final

from bench.attacks.world import Checkout, Row, get, proxy, until, upstream
from bench.servers import free_port
from tests.constants import RECHECK

_NEW_NAMES: Final = 10


def failures(checkout: Checkout) -> Iterator[Row]:
    """Names that are refused, records that cannot be read, a long Retry-After."""
    for attack, prefix, requests in (
        ("30 names that the upstream refuses with 403", "10.6403", 30),
        ("ten requests for one record that cannot be read", "10.6200", 10),
        ("one 403 with `Retry-After: 3600`", "10.6404", 1),
        ("30 names whose answer is another name's", "10.6206", 30),
    ):
        with upstream() as url, proxy(checkout, url) as running:
            for number in range(requests):
                get(running.port, f"/{prefix}/{number if requests != 10 else 'one'}")
            replies = [get(running.port, f"/10.1000/new-{number}") for number in range(_NEW_NAMES)]
        resolved = sum(reply.status == 302 for reply in replies)
        yield Row(f"{attack}: other names that resolve after it", f"{resolved} of {_NEW_NAMES}", resolved == _NEW_NAMES)


def outage(checkout: Checkout) -> Iterator[Row]:
    """The upstream stops for seconds and comes back, while names are requested."""
    port = free_port()
    settings: dict[str, Any] = {"upstream_breaker_cooldown": 1, RECHECK: 1, "upstream_breaker_failures": 3}
    with proxy(checkout, f"http://127.0.0.1:{port}", **settings) as running:
        with upstream(port):
            get(running.port, "/10.1000/known")
            before = len(running.log)
        for number in range(40):
            get(running.port, f"/10.1000/during-{number}")
            time.sleep(0.1)
        with upstream(port):
            numbers = iter(range(200))
            back = until(lambda: get(running.port, f"/10.1000/after-{next(numbers)}").status == 302, 10.0)
            time.sleep(1.0)
            lines = running.log[before:]
    yield Row(
        "an outage of 5 s with 40 new names: log lines about it",
        f"{len(lines)}" + "".join(f" · `{line[:150]}`" for line in lines[:4]) + ("" if back else " (never back)"),
        2 <= len(lines) <= 6 and back,
    )


def reload(checkout: Checkout) -> Iterator[Row]:
    """SIGHUP to a service."""
    with upstream() as url, proxy(checkout, url) as running:
        running.process.send_signal(signal.SIGHUP)
        time.sleep(2.0)
        status = get(running.port, "/healthz", timeout=2.0).status
        yield Row("SIGHUP: /healthz after 2 s", f"{status or 'no answer'}", status == 200)
