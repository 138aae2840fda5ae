"""What front proxies say about clients, and which front proxies are trusted, by the rules of uvicorn's middleware."""

from __future__ import annotations

from collections.abc import Callable, Container, MutableMapping
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.server.listening import UNIX

#: The client of a connection through a Unix socket, and the word of nginx for such a client in X-Forwarded-For.
UNIX_PEER: Final = UNIX
_FOR, _PROTO, _SCHEMES = b"x-forwarded-for", b"x-forwarded-proto", ("http", "https")


def trusted_addresses(trusted_proxies: tuple[str, ...]) -> Callable[[str], bool]:
    """A test for the addresses in `trusted_proxies`: addresses and networks, or `*` for all."""
    test: Callable[[str], bool] = trusted_hosts(trusted_proxies).__contains__
    return test


def trusted_hosts(trusted_proxies: tuple[str, ...]) -> Any:
    """What uvicorn's middleware needs to recognise front proxies.

    uvicorn remembers which addresses it has tested, so those of 4,096 clients. Here only their hashes are kept, which
    Python salts in each process.
    """
    # The permissions of a Unix socket decide who its peers are.
    proxies = "*" if "*" in trusted_proxies else [*trusted_proxies, UNIX_PEER]
    hosts: Any = ProxyHeadersMiddleware(None, proxies).trusted_hosts  # type: ignore[arg-type]
    answers: dict[int, bool] = {}

    def is_trusted(host: str) -> bool:
        key = hash(host)
        answer = answers.get(key)
        if answer is None:
            # Addresses whose test is remembered.
            if len(answers) >= 4_096:
                answers.clear()
            answer = answers[key] = bool(hosts._compute_trust(host))
        return answer

    hosts._trusts = is_trusted
    return hosts


def is_forwarded(fields: Container[bytes]) -> bool:
    """Whether a request has a header that a trusted proxy can set. `fields` are the names of its headers."""
    return _FOR in fields or _PROTO in fields


def read_client(hosts: Any, forwarded_for: bytes) -> tuple[str, int]:
    """The client that X-Forwarded-For names, as address and port; "" without one. `hosts` are the trusted proxies."""
    if forwarded_for.replace(b".", b"").isdigit():
        return forwarded_for.decode("ascii"), 0  # one address of IPv4: as below, in half the time
    client: tuple[str, int] = hosts.get_trusted_client_address(forwarded_for.decode("latin-1"))
    return client


def unwrap(app: Any) -> Any:
    """The application within the middleware, which then has nothing left to do but know the trusted proxies."""
    return app.app if isinstance(app, ProxyHeadersMiddleware) else app


def forwarded_scope(app: object, scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The scope as the middleware passes it on, for an application that is called without it."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not isinstance(app, ProxyHeadersMiddleware) or peer not in app.trusted_hosts:
        return scope
    # A copy: the middleware reads who sent the request from the scope, if the answer takes a task after all.
    scope = dict(scope)
    forwarded_for = [value for name, value in scope["headers"] if name == _FOR]
    client = read_client(app.trusted_hosts, b", ".join(forwarded_for)) if forwarded_for else ("", 0)
    if client[0]:
        scope["client"] = client
    protos = [value for name, value in scope["headers"] if name == _PROTO]
    scheme = protos[-1].decode("latin-1").strip() if protos else ""
    if scheme in _SCHEMES:
        scope["scheme"] = scheme
    return scope
