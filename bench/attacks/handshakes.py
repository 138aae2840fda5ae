"""Connections that never finish their first request, through each door of the proxy, and other clients beside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from bench.attacks.connections import OTHER
from bench.attacks.world import Checkout, Door, Peak, Proxy, Row, proxy, upstream
from tests.hostile.clients import send

_NAME: Final = "/10.1000/182"
_REQUESTS: Final = 40
_PAUSE: Final = 0.05
_DESCRIPTORS: Final = 256
_SILENT: Final = 300
_CAP: Final = 100
_PARTIAL: Final = 3_000
_SOURCES: Final = 20
_MIB: Final = 1024 * 1024
#: What an unfinished connection sends: the beginning of a ClientHello (RFC 8446, section 4.1.2), or of a head.
BEGINNINGS: Final = {
    Door.PLAIN: b"GET /10.1000",
    Door.TLS: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    Door.UNIX: b"GET /10.1000",
}


def silent(checkout: Checkout) -> Iterator[Row]:
    """More silent connections of one address than the process has descriptors."""
    for door in checkout.doors:
        with (
            upstream() as url,
            proxy(checkout, url, descriptors=_DESCRIPTORS, door=door) as target,
            contextlib.ExitStack() as stack,
        ):
            before = _failures(target)
            for _ in range(_SILENT):
                with contextlib.suppress(OSError):
                    stack.enter_context(target.connect("127.0.66.1", 2.0))
            failed = _failures(target)
            yield Row(
                f"{_SILENT} silent connections at a descriptor limit of {_DESCRIPTORS}, {target.door.value}: "
                "failed requests of another client (without them)",
                f"{failed} of {_REQUESTS} ({before})",
                failed == before == 0,
            )


def partial(checkout: Checkout) -> Iterator[Row]:
    """Many times more unfinished first requests than connections may be open."""
    for door in checkout.doors:
        with (
            upstream() as url,
            proxy(checkout, url, door=door, max_connections=_CAP, client_max_connections=_CAP // 2) as target,
            contextlib.ExitStack() as stack,
        ):
            control = _failures(target)
            before = target.resident()
            with Peak(target.descriptors) as most:
                for number in range(_PARTIAL):
                    with contextlib.suppress(OSError):
                        connection = target.connect(f"127.0.{66 + number % _SOURCES}.1", 2.0)
                        send(stack.enter_context(connection), BEGINNINGS[target.door])
                time.sleep(1.0)
                failed = _failures(target)
            gained = (target.resident() - before) / _MIB
            yield Row(
                f"{_PARTIAL:,} unfinished first requests, max_connections {_CAP}, {target.door.value}: "
                "failed requests of another client (without them); most descriptors; memory gained",
                f"{failed} of {_REQUESTS} ({control}); {most.highest:,}; {gained:,.0f} MB",
                failed == control == 0 and most.highest < 3 * _CAP * checkout.workers,
            )


def _failures(target: Proxy) -> int:
    """The failed requests of another client, one after the other."""
    failed = 0
    for _ in range(_REQUESTS):
        failed += target.status(_NAME, OTHER) != 302
        time.sleep(_PAUSE)
    return failed
