"""Hostile clients: blocking sockets that send what no browser sends, and count the answers."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
from collections.abc import Iterable
from typing import Final

HOST: Final = "127.0.0.1"
#: Seconds without a byte after which an answer counts as complete.
QUIET: Final = 1.0
_PIECE: Final = 16_384
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")
#: The limit of what one connection sends and reads, in bytes.
_MOST: Final = 4 * 1024 * 1024


def connect(port: int, *, source: str = "", timeout: float = 20.0) -> socket.socket:
    """A connection to 127.0.0.1, from the loopback address `source` if it is set."""
    return socket.create_connection((HOST, port), timeout, (source, 0) if source else None)


def head(target: str, *lines: str, method: str = "GET", host: str = "proxy.example") -> bytes:
    """A request head. `lines` are additional header lines."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode("latin-1")


def with_body(target: str, size: int, *lines: str) -> bytes:
    """A GET with a body of `size` bytes."""
    return head(target, f"Content-Length: {size}", *lines) + b"x" * size


def statuses(received: bytes) -> list[int]:
    """The status of every answer in bytes from a connection."""
    return [int(status) for status in _STATUS_LINE.findall(received)]


def read(connection: socket.socket, quiet: float = QUIET, deadline: float = 30.0) -> bytes:
    """Read until the connection ends or is silent. Returns b"" after a reset."""
    received = bytearray()
    ends = time.monotonic() + deadline
    connection.settimeout(quiet)
    with contextlib.suppress(OSError):
        while len(received) < _MOST and time.monotonic() < ends:
            piece = connection.recv(65_536)
            if not piece:
                break
            received += piece
    return bytes(received)


def read_to_end(connection: socket.socket, deadline: float = 60.0) -> bytes | None:
    """Read until the peer ends the connection. Returns None if it does not do so in time."""
    received = bytearray()
    connection.settimeout(deadline)
    try:
        while piece := connection.recv(65_536):
            received += piece
    except TimeoutError:
        return None
    except OSError:
        return bytes(received)
    return bytes(received)


def send(connection: socket.socket, data: bytes, pause: float = 0.0) -> bool:
    """Send in pieces, with seconds between them. Returns False if the peer ended the connection."""
    try:
        for start in range(0, len(data), _PIECE):
            connection.sendall(data[start : start + _PIECE])
            time.sleep(pause)
    except OSError:
        return False
    return True


def flood(connections: Iterable[socket.socket], data: bytes, seconds: float) -> int:
    """Send on all connections and read from none, for a bounded time. Returns the number of bytes sent."""
    left = {}
    for connection in connections:
        connection.setblocking(False)
        left[connection] = memoryview(data)
    ends = time.monotonic() + seconds
    total = 0
    while left and time.monotonic() < ends:
        _, ready, _ = select.select([], list(left), [], 0.5)
        for connection in ready:
            try:
                sent = connection.send(left[connection][:65_536])
            except OSError:
                del left[connection]
                continue
            total += sent
            left[connection] = left[connection][sent:]
            if not left[connection]:
                del left[connection]
    return total


def is_ended(connection: socket.socket) -> bool:
    """Whether the peer ended the connection."""
    connection.settimeout(0.0)
    try:
        while True:
            if not connection.recv(65_536):
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True
