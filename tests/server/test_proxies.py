"""The client that a trusted front proxy names is the one that uvicorn's middleware finds."""

from __future__ import annotations

from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.server.listening import forwarded_scope, read_client, trusted_hosts

pytestmark = pytest.mark.anyio


async def application(scope: object, receive: object, send: object) -> None: ...


@pytest.mark.parametrize("trusted", ["127.0.0.1", "127.0.0.1,10.0.0.0/8", "*"])
@pytest.mark.parametrize(
    "value",
    ["198.51.100.7", "10.1.2.3", "127.0.0.1", " 198.51.100.7 ", "198.51.100.7, 10.1.2.3", "203.0.113.1,198.51.100.7",
     "198.51.100.7:8080", "2001:db8::1", "[2001:db8::1]:443", "1", "1.2", ".", "198.51.100.7 10.1.2.3", "", "unknown"],
)  # fmt: skip
def test_every_form_is_read_as_the_middleware_reads_it(trusted: str, value: str) -> None:
    app = ProxyHeadersMiddleware(application, trusted)
    app.trusted_hosts = trusted_hosts(tuple(trusted.split(",")))
    expected = app.trusted_hosts.get_trusted_client_address(value)
    assert read_client(app.trusted_hosts, value.encode())[0] == expected[0]


def test_an_untrusted_peer_names_nobody() -> None:
    app = ProxyHeadersMiddleware(application, "127.0.0.1")
    app.trusted_hosts = trusted_hosts(("127.0.0.1",))
    scope = {"client": ("203.0.113.5", 1), "headers": [(b"x-forwarded-for", b"198.51.100.7")]}
    assert forwarded_scope(app, scope)["client"] == ("203.0.113.5", 1)


@pytest.mark.parametrize("peer", ["127.0.0.1", "203.0.113.5"])
@pytest.mark.parametrize("protos", [[], ["https"], ["http"], [" https "], ["http", "https"], ["javascript"]])
async def test_the_scheme_is_the_one_that_the_middleware_finds(protos: list[str], peer: str) -> None:
    found: list[Any] = []

    async def keep(scope: Any, receive: object, send: object) -> None:
        found.append(scope["scheme"])

    app: Any = ProxyHeadersMiddleware(keep, "127.0.0.1")
    headers = [(b"x-forwarded-proto", proto.encode()) for proto in protos]
    scope: dict[str, Any] = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    read = forwarded_scope(app, dict(scope))
    await app(scope, None, None)
    assert [read["scheme"]] == found
