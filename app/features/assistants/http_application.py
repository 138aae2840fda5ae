"""The tools over HTTP, in the form that the server of this program expects."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

#: Names that lead to this machine on every machine (RFC 6761, section 6.3), so no page of another site has them.
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_DEFAULT_PORT: Final = 80


class HttpApplication:
    """An ASGI application. It has no express lane, and every request takes a task."""

    express: None = None

    def __init__(self, application: Callable[..., Awaitable[None]], connections: object) -> None:
        self._application = application
        #: The server's data about its connections.
        self.connections = connections

    def answer_now(self, scope: Any, default_headers: bytes) -> bytes | None:
        """No answer: every request takes a task."""
        return None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        await self._application(scope, receive, send)


def list_hosts(host: str, port: int, others: str) -> list[str]:
    """The values of Host that requests may have: of loopback, of the address that is bound, and of `others`."""
    bound = [] if _is_wildcard(host) else [f"[{host}]" if ":" in host else host]
    names = [*_LOOPBACK, *bound, *others.split()]
    with_port = [name if name.rpartition("]")[2].count(":") else f"{name}:{port}" for name in names]
    # Behind a front proxy, and on port 80, Host has no port.
    bare = names if port == _DEFAULT_PORT else others.split()
    return list(dict.fromkeys([*with_port, *bare]))


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
