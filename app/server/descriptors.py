"""The limit of open files: how many connections fit below it, and whether it is reached."""

from __future__ import annotations

import os
import resource
from typing import Final

#: Files of the process besides connections: the program, its store, its log, the port, and sockets that are about to
#: be closed while new ones are accepted.
RESERVED: Final = 96
#: Connections where the system sets no limit of open files.
UNLIMITED: Final = 65_536


def connections_that_fit(upstream_connections: int) -> int:
    """How many client connections fit below this process's limit of open files (RLIMIT_NOFILE)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    # Half of a small limit is left to clients.
    return max(soft - RESERVED - upstream_connections, soft // 2)


def are_exhausted() -> bool:
    """Whether this process or the system can open no further file."""
    try:
        os.close(os.dup(2))
    except OSError:
        return True
    return False
