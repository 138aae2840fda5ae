"""The running proxy that a command talks to."""

from __future__ import annotations

from dataclasses import replace

from doi_proxy.proxy_client.admin import AdminClient
from doi_proxy.proxy_client.server import ProxyServer, parse_server, server_on_this_machine
from doi_proxy.server.listening import UNIX
from doi_proxy.system.options import Settings


def find_server(settings: Settings, server: str | None) -> ProxyServer:
    """The proxy at a URL, or the one on this machine that these settings describe. Raises ConfigurationError."""
    if server is not None:
        return parse_server(server, "--server")
    here = server_on_this_machine(settings.host, settings.port, is_tls=settings.tls_cert is not None)
    return replace(here, has_proxy_protocol=settings.proxy_protocol)


def open_client(settings: Settings, server: str | None) -> AdminClient:
    """The same with the admin API, which can have a listener of its own. Raises ConfigurationError."""
    place, token = find_server(settings, server), settings.value("admin_token")
    address = next(iter(settings.management_listen), None)
    if server is None and address is not None:
        place = parse_server(address if address.startswith(UNIX) else f"http://{address}", "management_listen")
    return AdminClient(place, token)


def may_read(settings: Settings) -> bool:
    """Whether a command may read at the admin API: it has the token, or the API has a Unix socket."""
    first = next(iter(settings.management_listen), "")
    return settings.value("admin_token") is not None or first.startswith(UNIX)
