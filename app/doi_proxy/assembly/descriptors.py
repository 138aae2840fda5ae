"""How many connections the limit of open files allows."""

from __future__ import annotations

import resource
from typing import Final

#: Open files other than connections: the program, its store, its log, the port, and sockets that are being closed while
#: new ones are accepted.
RESERVED: Final = 96
#: The open files of a process without clients, and as many again for sockets that are being closed.
_LEAST_RESERVED: Final = 64
#: Connections of a process whose limit of open files leaves less.
_LEAST: Final = 8
#: The limit of connections if the system has no limit of open files.
UNLIMITED: Final = 65_536


def connections_that_fit(upstream_connections: int) -> int:
    """The number of client connections that the limit of open files (RLIMIT_NOFILE) allows this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    # With a small limit, clients get half of it. Half of 64 would leave nothing for the program: under a crowd that
    # comes and goes, none of 100 requests was answered, and with 10 connections all were.
    half = min(soft // 2, soft - _LEAST_RESERVED)
    return max(soft - RESERVED - upstream_connections, half, _LEAST)
