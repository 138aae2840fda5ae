"""Looks up the addresses of a host by the system, in a thread that the end of the process does not wait for.

A name server that does not answer holds a look-up for up to half a minute. In the threads of the event loop, it would
hold back other work, and the end of the process after its port is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from threading import Thread
from threading import enumerate as list_threads
from typing import Any, Final

#: What socket.getaddrinfo returns for one address.
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

#: Look-ups of a process at a time. A caller looks up one host once at a time.
MAX_LOOKUPS: Final = 100
_THREAD: Final = "host-lookup"


async def look_up(host: str, port: int, family: int = socket.AF_UNSPEC, flags: int = 0) -> Sequence[AddressInfo]:
    """The addresses for TCP, in the order of the system (RFC 6724). Raises OSError."""
    with suppress(ValueError):
        ip_address(host)
        # An address as text needs neither a name server nor a thread.
        return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
    if sum(thread.name == _THREAD for thread in list_threads()) >= MAX_LOOKUPS:
        raise OSError(f"{MAX_LOOKUPS} look-ups of hosts wait for the name server")
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[AddressInfo]] = loop.create_future()

    def work() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(found.set_result, socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags))
        except (OSError, UnicodeError) as error:
            # A name that IDNA refuses is a UnicodeError.
            settle = partial(found.set_exception, error if isinstance(error, OSError) else OSError(str(error)))
        # The loop may have ended, and the caller may have gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if found.done() else settle())

    Thread(target=work, name=_THREAD, daemon=True).start()
    return await found


def write_address(address: Any) -> str:
    """An address of AddressInfo as text. A link-local address of IPv6 has its interface (RFC 4007, section 11)."""
    return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
