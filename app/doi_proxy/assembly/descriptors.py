"""How many connections the limit of open files allows."""

from __future__ import annotations

import resource
from typing import Final

#: Open files other than connections: the program, its store, its log, the port, and sockets that are being closed while
#: new ones are accepted.
RESERVED: Final = 96
#: The limit of connections if the system has no limit of open files.
UNLIMITED: Final = 65_536


def connections_that_fit(upstream_connections: int) -> int:
    """The number of client connections that the limit of open files (RLIMIT_NOFILE) allows this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    # With a small limit, clients get half of it.
    return max(soft - RESERVED - upstream_connections, soft // 2)
