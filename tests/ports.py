"""Free ports of this machine for servers that tests start."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

#: The ports of the tests. The system gives out ports from 32768 on by itself, so nothing else takes one of these
#: between `free_port` and the server that is started on it.
_PORTS: Final = range(10_000, 32_000)
#: Ports that one process of the tests has for itself.
_BLOCK: Final = 500


@cache
def _own_ports() -> Iterator[int]:
    """The ports of this process, again and again. No other process of the tests has them, in any checkout.

    A lock on a file of the block keeps them until the process ends.
    """
    folder = Path(tempfile.gettempdir()) / f"doi-proxy-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in _PORTS[::_BLOCK]:
        lock = os.open(folder / str(first), os.O_CREAT | os.O_RDONLY, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return itertools.cycle(range(first, first + _BLOCK))
    raise OSError(f"every port from {_PORTS.start} to {_PORTS.stop} belongs to another process of the tests")


def free_port() -> int:
    """A port that nothing listens on. No other call gets it soon, in this process or in another one of the tests."""
    for port in itertools.islice(_own_ports(), _BLOCK):
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port of the {_BLOCK} of this process is free")
