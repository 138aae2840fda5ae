"""`doi-proxy check --ready`, for containers without curl."""

from __future__ import annotations

import http.client
from typing import Final

from app.features.options import Settings
from app.proxy_client.exchange import Exchange
from app.proxy_client.server import server_on_this_machine

#: Timeout in seconds. Container engines end a health check soon after.
_TIMEOUT: Final = 5.0
_MAX_ANSWER: Final = 64 * 1024


def check_ready(settings: Settings) -> int:
    """Print the answer of `/readyz`. Exit status 0 if the proxy on this machine is ready, else 1."""
    server = server_on_this_machine(settings.host, settings.port, is_tls=settings.tls_cert is not None)
    with Exchange(server, _TIMEOUT) as exchange:
        status = exchange.send("GET", "/readyz", {})
        print(exchange.read(_MAX_ANSWER).decode("utf-8", "replace"))
    return 0 if status == http.client.OK else 1
