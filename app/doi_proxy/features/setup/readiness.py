"""`doi-proxy check --ready`, for containers without curl."""

from __future__ import annotations

import http.client
import json
from typing import Final

from doi_proxy.proxy_client.exchange import Exchange, ProxyFailure
from doi_proxy.proxy_client.running_proxy import find_server
from doi_proxy.system.options import Settings

#: Timeout in seconds. Container engines end a health check soon after.
_TIMEOUT: Final = 5.0
_MAX_ANSWER: Final = 64 * 1024


def check_ready(settings: Settings, server: str | None) -> int:
    """Print the answer of `/readyz`. Exit status 0 if the proxy at a URL, or on this machine, is ready, else 1.

    Raises ProxyFailure without an answer, and for a 200 of another program: many answer every path with a page.
    """
    with Exchange(find_server(settings, server), _TIMEOUT) as exchange:
        status = exchange.send("GET", "/readyz", {})
        body = exchange.read(_MAX_ANSWER)
        print(body.decode("utf-8", "replace"))
        if status == http.client.OK and not _says_ready(body):
            raise ProxyFailure(
                f"{exchange.server.label}: its answer does not say that it is ready; this is not a doi-proxy; check "
                "the URL and the port",
                is_transient=False,
            )
    return 0 if status == http.client.OK else 1


def _says_ready(body: bytes) -> bool:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("ready") is True and isinstance(answer.get("detail"), dict)
