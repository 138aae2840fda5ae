"""The addresses of trusted front proxies, matched in the same way as uvicorn matches them."""

from __future__ import annotations

from collections.abc import Callable

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def trusted_addresses(trusted_proxies: str) -> Callable[[str], bool]:
    """A test for the addresses in `trusted_proxies`: addresses and networks separated by commas, or `*` for all."""

    async def no_application(scope: object, receive: object, send: object) -> None: ...

    return ProxyHeadersMiddleware(no_application, trusted_proxies).trusted_hosts.__contains__
