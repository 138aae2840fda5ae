"""Connections that never finish their first request, through each door of the proxy, and other clients beside them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from bench.attacks.connections import OTHER
from bench.attacks.world import Checkout, Door, Peak, Proxy, Repeated, Row, proxy, until, upstream
from tests.constants import PER_CLIENT
from tests.hostile.clients import send

_NAME: Final = "/10.1000/182"
_REQUESTS: Final = 40
_PAUSE: Final = 0.05
_DESCRIPTORS: Final = 256
_SILENT: Final = 300
_CAP: Final = 100
_PARTIAL: Final = 3_000
_SOURCES: Final = 20
#: Connections that come and go together, at a cap of fewer, and the seconds between two such crowds.
_CROWD: Final = 240
_CROWD_CAP: Final = 200
_CROWD_PAUSE: Final = 0.3
#: Seconds from the connection of a client far away to its first byte.
_ROUND_TRIP: Final = 0.3
#: Another client of the first network of a flood.
_NEIGHBOUR: Final = "127.0.66.9"
#: Seconds between two connections of a flood.
_FLOOD_PAUSE: Final = 0.01
_BURST: Final = 60.0
_MIB: Final = 1024 * 1024
#: The beginning of a ClientHello (RFC 8446, section 4.1.2).
PART_OF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_PART_OF_HEAD: Final = b"GET /10.1000"
_WITHOUT_HOST: Final = b"GET /10.1000/182 HTTP/1.1\r\n\r\n"
_WITHOUT_BODY: Final = (
    b"POST /api/parse HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
)
_HANGING: Final = b"GET /10.6204/{} HTTP/1.1\r\nHost: a\r\n\r\n"
#: What is sent by connections that their clients do not end. A Unix socket is for a front proxy, which has the bodies.
_SENT: Final = {
    Door.PLAIN: {
        "unfinished first requests": _PART_OF_HEAD,
        "requests without their body": _WITHOUT_BODY,
        "refused requests": _WITHOUT_HOST,
        "requests for names that hang": _HANGING,
    },
    Door.TLS: {"unfinished first requests": PART_OF_HELLO},
    Door.UNIX: {"unfinished first requests": _PART_OF_HEAD, "refused requests": _WITHOUT_HOST},
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


class _Crowd(Repeated):
    """Connections from some networks, which all end without a byte when the next ones come."""

    def __init__(self, target: Proxy) -> None:
        super().__init__(_CROWD_PAUSE)
        self._target = target
        self._held = contextlib.ExitStack()

    def _step(self) -> None:
        self._held.close()
        for number in range(_CROWD):
            with contextlib.suppress(OSError):
                self._held.enter_context(self._target.connect(f"127.0.{66 + number % _SOURCES}.1", 2.0))

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self._held.close()


def churn(checkout: Checkout) -> Iterator[Row]:
    """Connections that come and go without a byte, more than the process may have, while others have requests."""
    for door in checkout.doors:
        limits: dict[str, dict[str, Any]] = {
            f"max_connections {_CROWD_CAP}": {"max_connections": _CROWD_CAP},
            f"a descriptor limit of {_DESCRIPTORS}": {"descriptors": _DESCRIPTORS},
        }
        for limit, options in limits.items():
            with upstream() as url, proxy(checkout, url, door=door, **options) as target:
                before = _failures(target)
                with _Crowd(target):
                    failed = _failures(target)
                    # A front proxy at a Unix socket sends the request as soon as it has connected.
                    far = _failures(target, pause=_ROUND_TRIP if door is not Door.UNIX else 0.0)
                yield Row(
                    f"{_CROWD} connections that come and go every {_CROWD_PAUSE} s, {limit}, {target.door.value}: "
                    f"failed requests of another client, with a round trip of {_ROUND_TRIP} s (without them)",
                    f"{failed} of {_REQUESTS}, {far} ({before})",
                    failed == far == before == 0,
                )


class _Flood(Repeated):
    """Opens connections from some networks, each with one request, and keeps the newest. It begins with `many`."""

    def __init__(self, target: Proxy, sent: bytes, many: int, networks: int = _SOURCES) -> None:
        super().__init__(_FLOOD_PAUSE)
        self._target, self._sent, self._many, self._networks = target, sent, many, networks
        self._held: deque[socket.socket] = deque()
        self._number = 0

    def _step(self) -> None:
        self._number += 1
        with contextlib.suppress(OSError):
            self._held.append(self._target.connect(f"127.0.{66 + self._number % self._networks}.1", 2.0))
            send(self._held[-1], self._sent.replace(b"{}", b"%d" % self._number))
        if len(self._held) > self._many:
            self._held.popleft().close()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        for connection in self._held:
            connection.close()

    def fill(self) -> None:
        """Open many times more connections than the proxy may have."""
        for _ in range(self._many):
            self._step()


def partial(checkout: Checkout) -> Iterator[Row]:
    """Many times more connections that their clients do not end than may be open, while others have requests."""
    for door in checkout.doors:
        for what, sent in _SENT[door].items():
            with (
                upstream() as url,
                proxy(checkout, url, door=door, **_caps(_CAP // 2)) as target,
            ):
                control = _failures(target)
                before = target.resident()
                # A new name takes the proxy as long as ten of the others.
                many = _PARTIAL // 10 if sent is _HANGING else _PARTIAL
                flood = _Flood(target, sent, many)
                with Peak(target.descriptors) as most:
                    flood.fill()
                    # The connections of the burst wait in line before those of others, in the kernel.
                    until(lambda: target.status(_NAME, OTHER) == 302, _BURST)
                    with flood:
                        failed = _failures(target)
                gained = (target.resident() - before) / _MIB
                yield Row(
                    f"{many:,} {what} and more, max_connections {_CAP}, {target.door.value}: "
                    "failed requests of another client (without them); most descriptors; memory gained",
                    f"{failed} of {_REQUESTS} ({control}); {most.highest:,}; {gained:,.0f} MB",
                    failed == control == 0 and most.highest < 3 * _CAP,
                )


def neighbour(checkout: Checkout) -> Iterator[Row]:
    """A member of a network who fills its places with heads without bodies, while another member has requests."""
    places = _CAP // 4
    with upstream() as url, proxy(checkout, url, **_caps(places)) as target:
        control = _failures(target, _NEIGHBOUR)
        flood = _Flood(target, _WITHOUT_BODY, _PARTIAL // 10, networks=1)
        flood.fill()
        until(lambda: target.status(_NAME, OTHER) == 302, _BURST)
        with flood:
            failed = _failures(target, _NEIGHBOUR)
        yield Row(
            f"heads without bodies from one network, {places} connections of each: "
            "failed requests of another client of that network (without them)",
            f"{failed} of {_REQUESTS} ({control})",
            failed == control == 0,
        )


def _caps(per_client: int) -> dict[str, Any]:
    return {"max_connections": _CAP, PER_CLIENT: per_client}


def _failures(target: Proxy, client: str = OTHER, pause: float = 0.0) -> int:
    """The failed requests of another client, one after the other, whose first bytes come after `pause` seconds."""
    failed = 0
    for _ in range(_REQUESTS):
        failed += target.status(_NAME, client, pause=pause) != 302
        time.sleep(_PAUSE)
    return failed
