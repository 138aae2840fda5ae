"""Which addresses are front proxies, by the same rules as uvicorn believes their headers."""

from __future__ import annotations

from collections.abc import Callable

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def trusted_addresses(trusted_proxies: str) -> Callable[[str], bool]:
    """Whether an address is among `trusted_proxies`: addresses and networks, comma separated, or `*` for all."""

    async def no_application(scope: object, receive: object, send: object) -> None: ...

    return ProxyHeadersMiddleware(no_application, trusted_proxies).trusted_hosts.__contains__
