"""Whether a failure is that of this machine: it has no more memory, or no more open files for another connection."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from socket import gaierror
from typing import Final

from doi_proxy.system.files import open_null

_SHORTAGES: Final = {
    errno.EMFILE: "this process has as many open files as it may (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "this machine has as many open files as it may (fs.file-max)",
    errno.ENOMEM: "this machine is short of memory",
    errno.ENOBUFS: "this machine is short of memory for connections",
}
#: Causes of causes that are looked at.
_MOST_CAUSES: Final = 10


def find_shortage(error: BaseException) -> str:
    """What this machine was short of, if that caused the error. Otherwise an empty text."""
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            break
        if isinstance(cause, MemoryError):
            return _SHORTAGES[errno.ENOMEM]
        if isinstance(cause, gaierror):
            # The system's look-up of a host says "temporary failure" if it cannot open a socket.
            return _try_to_open()
        if isinstance(cause, OSError) and cause.errno in _SHORTAGES:
            return _SHORTAGES[cause.errno]
        cause = cause.__cause__ or cause.__context__
    return ""


def _try_to_open() -> str:
    try:
        descriptor = open_null()
    except OSError as error:
        return _SHORTAGES.get(error.errno or 0, "")
    with suppress(OSError):
        os.close(descriptor)
    return ""
