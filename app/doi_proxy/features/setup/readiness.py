"""`doi-proxy check --ready`, for containers without curl."""

from __future__ import annotations

import http.client
from typing import Final

from doi_proxy.proxy_client.exchange import Exchange
from doi_proxy.proxy_client.running_proxy import find_server
from doi_proxy.system.options import Settings

#: Timeout in seconds. Container engines end a health check soon after.
_TIMEOUT: Final = 5.0
_MAX_ANSWER: Final = 64 * 1024


def check_ready(settings: Settings, server: str | None) -> int:
    """Print the answer of `/readyz`. Exit status 0 if the proxy at a URL, or on this machine, is ready, else 1."""
    with Exchange(find_server(settings, server), _TIMEOUT) as exchange:
        status = exchange.send("GET", "/readyz", {})
        print(exchange.read(_MAX_ANSWER).decode("utf-8", "replace"))
    return 0 if status == http.client.OK else 1
