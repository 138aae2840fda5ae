"""Packets of UDP with the addresses of other networks, beside clients of these networks.

On loopback, no address can be forged. So these attacks have a network of their own, in which every address is local.
That takes root.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from bench.attacks.world import Checkout, Repeated, Row, get, proxy, upstream
from bench.servers import HOST, free_port
from handle_protocol.wire.message import MAX_PACKET_BYTES, Filters, Query, encode_query

_NAME: Final = "/10.1000/182"
_STORED: Final = encode_query(Query(Filters(_NAME[1:].encode()), 7, 1_900_000_000))
#: unshare(2), setns(2): a network of this thread and of what it starts.
_OWN_NETWORK: Final = 0x4000_0000
_ADDRESSES: Final = ip_network("8.0.0.0/5")
_VICTIM, _NEIGHBOUR, _LIMITED = "11.0.0.7", "11.0.0.8", "15.250.0.7"
#: Networks of forged addresses, each in a /20 of its own. With these, they are more than have a bucket.
_NETWORKS: Final = 11_000
_PACKET_PAUSE: Final = 0.01
_REQUESTS: Final = 12
_REQUEST_PAUSE: Final = 0.5
_MAX_WAIT: Final = 2.0
#: Answers to one network in any second; see docs/native.md.
_MAX_ANSWERS: Final = 5


@contextmanager
def _own_network() -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as before:
        if libc.unshare(_OWN_NETWORK):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            subprocess.run(["ip", "route", "add", "local", str(_ADDRESSES), "dev", "lo"], check=True)
            yield
        finally:
            libc.setns(before.fileno(), _OWN_NETWORK)


def _send(packet: bytes, sender: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forged:
        forged.bind((sender, 0))
        forged.sendto(packet, (HOST, port))


class _Packets(Repeated):
    """Sends packets while the `with` block runs. `packet` and `sender` are made from the number of a packet."""

    def __init__(self, port: int, packet: Callable[[int], bytes], sender: Callable[[int], str]) -> None:
        super().__init__(_PACKET_PAUSE)
        self._port, self._packet, self._sender = port, packet, sender
        self._numbers = itertools.count()

    def _step(self) -> None:
        number = next(self._numbers)
        _send(self._packet(number), self._sender(number), self._port)


def _hang(number: int) -> bytes:
    return encode_query(Query(Filters(b"10.6204/%d" % number), number, 1_900_000_000))


def _request(port: int, mark: str) -> tuple[int, float]:
    """The requests of a neighbour that fail, and its longest wait: a stored name and a new name in turn."""
    failed, longest = 0, 0.0
    for number in range(_REQUESTS):
        target = f"/10.1000/{mark}-{number}" if number % 2 else _NAME
        reply = get(port, target, source=_NEIGHBOUR)
        failed, longest = failed + (reply.status != 302), max(longest, reply.seconds)
        time.sleep(_REQUEST_PAUSE)
    return failed, longest


def forged(checkout: Checkout) -> Iterator[Row]:
    """Forged senders, a neighbour of theirs, a client over its rate, and the victim of their answers."""
    with _own_network():
        yield from _beside_a_neighbour(checkout)
        yield _beside_a_limited_client(checkout)
        yield _to_a_victim(checkout)


@contextmanager
def _listener(checkout: Checkout, **settings: Any) -> Iterator[tuple[int, int]]:
    """A proxy that answers by UDP. Yields its ports, of HTTP and of UDP."""
    port = free_port()
    options = {"native_listen": f"{HOST}:{port}", "native_listen_udp": True, **settings}
    with upstream() as url, proxy(checkout, url, **options) as running:
        get(running.port, _NAME)
        yield running.port, port


def _beside_a_neighbour(checkout: Checkout) -> Iterator[Row]:
    senders: dict[str, Callable[[int], str]] = {
        "of its network": lambda number: f"11.0.0.{1 + number % 6}",
        "of 200 networks": lambda number: f"11.{number % 200}.0.1",
    }
    packets: dict[str, Callable[[int], bytes]] = {"a stored name": lambda _: _STORED, "names that hang": _hang}
    for (whose, sender), (what, packet) in itertools.product(senders.items(), packets.items()):
        with _listener(checkout, client_rate=4, client_burst=10) as (http, udp):
            control, _ = _request(http, "before")
            with _Packets(udp, packet, sender):
                failed, longest = _request(http, "beside")
        yield Row(
            f"100 forged packets a second {whose} about {what}, client_rate 4: "
            "a neighbour's requests by HTTP that fail, longest wait (without them)",
            f"{failed} of {_REQUESTS}, {longest:.2f} s ({control})",
            failed == control == 0 and longest <= _MAX_WAIT,
        )


def _beside_a_limited_client(checkout: Checkout) -> Row:
    with _listener(checkout, client_rate=0.01, client_burst=20) as (http, udp):

        def admitted() -> int:
            return sum(get(http, _NAME, source=_LIMITED).status != 429 for _ in range(40))

        first, control = admitted(), admitted()
        for number in range(_NETWORKS):
            _send(_STORED, str(_ADDRESSES[number << 12 | 1]), udp)
            time.sleep(0.0005)
        beside = admitted()
    return Row(
        f"forged packets of {_NETWORKS:,} networks, beside a client over its rate: "
        "its requests that are admitted (before; its burst)",
        f"{beside} ({control}; {first})",
        first == 20 and control == 0 and beside <= 1,
    )


def _to_a_victim(checkout: Checkout) -> Row:
    with _listener(checkout) as (_, udp), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind((_VICTIM, 0))
        victim.settimeout(0.5)
        began, sent, lengths = time.monotonic(), 0, list[int]()
        for _ in range(2_000):
            victim.sendto(_STORED, (HOST, udp))
            sent += len(_STORED)
            time.sleep(0.002)
        seconds = time.monotonic() - began
        try:
            while packet := victim.recv(65_536):
                lengths.append(len(packet))
        except TimeoutError:
            pass
    return Row(
        f"2,000 forged packets of one address, {sent:,} bytes in {seconds:.0f} s: packets that it gets; bytes",
        f"{len(lengths)}; {sum(lengths):,}",
        0 < len(lengths) <= _MAX_ANSWERS * (seconds + 1) and max(lengths) <= MAX_PACKET_BYTES,
    )
