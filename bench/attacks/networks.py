"""An attack by the number of clients: a million networks send a request each, as a front proxy forwards them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psutil

from bench.attacks.connections import OTHER
from bench.attacks.world import Checkout, Peak, Probe, Proxy, Row, connect, get, proxy, upstream
from tests.hostile.clients import head

_NAME: Final = "/10.1000/182"
_NETWORKS: Final = 1_000_000
#: Requests of one network, for comparison.
_CONTROL: Final = 100_000
#: Requests that are sent before their answers are read.
_PIPELINED: Final = 100
_MIB: Final = 1024 * 1024
_MAX_GAINED: Final = 50 * _MIB
_MAX_RATIO: Final = 3.0


def networks(checkout: Checkout) -> Iterator[Row]:
    """A million networks of 256 addresses with limits that admit them, beside another client."""
    settings: dict[str, Any] = {"client_rate": 1_000_000, "client_burst": 1_000_000}
    with upstream() as url, proxy(checkout, url, **settings) as target:
        get(target.port, _NAME)
        usual = _send(target, 1, _CONTROL) / _CONTROL
        before = target.resident()
        with Peak(target.resident) as peak, Probe(target.port, _NAME, source=OTHER, pause=0.1) as probe:
            spent = _send(target, _NETWORKS, _NETWORKS) / _NETWORKS
        gained, failed = peak.highest - before, len(probe.replies) - probe.count(302)
        yield Row(
            f"{_NETWORKS:,} networks with a request each: memory gained",
            f"{gained / _MIB:.0f} MB",
            gained <= _MAX_GAINED,
        )
        yield Row(
            f"processor time of a request (control: {_CONTROL:,} of one network)",
            f"{spent * 1e6:.0f} us ({usual * 1e6:.0f} us)",
            spent <= usual * _MAX_RATIO,
        )
        yield Row(
            "meanwhile, another client's requests: failed, longest wait",
            f"{failed} of {len(probe.replies)}, {probe.worst:.2f} s",
            not failed and probe.worst < 2.0,
        )


def _send(target: Proxy, clients: int, requests: int) -> float:
    """Send the requests of so many networks. Returns the processor time of the proxy, in seconds."""
    process = psutil.Process(target.process.pid)
    before = sum(process.cpu_times()[:2])
    with connect(target.port) as connection:
        for start in range(0, requests, _PIPELINED):
            numbers = [number % clients for number in range(start, start + _PIPELINED)]
            connection.sendall(b"".join(head(_NAME, f"X-Forwarded-For: {_address(number)}") for number in numbers))
            answers, rest = 0, b""
            while answers < _PIPELINED:
                rest += connection.recv(1 << 16)
                *whole, rest = rest.split(b"HTTP/1.1 302")
                answers += len(whole)
    return sum(process.cpu_times()[:2]) - before


def _address(number: int) -> str:
    """An address in a network of its own."""
    return f"{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}.7"
