"""`doi-proxy healthcheck`: for containers that hold no curl."""

from __future__ import annotations

import http.client
import ssl
import sys

from app.settings import Settings

#: Seconds to wait for the answer; a container's health check is killed soon after.
TIMEOUT = 5.0


def healthcheck(settings: Settings) -> int:
    """Exit status 0 if the proxy on this machine says that it is ready, else 1 and the reason."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - read, not bound
    try:
        connection = _connection(host, settings)
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read(10_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        print(f"doi-proxy: nothing answers on {host} port {settings.port}: {error}", file=sys.stderr)
        return 1
    print(body)
    return 0 if answer.status == http.client.OK else 1


def _connection(host: str, settings: Settings) -> http.client.HTTPConnection:
    if settings.tls_cert is None:
        return http.client.HTTPConnection(host, settings.port, timeout=TIMEOUT)
    # The certificate names the public host, not this address; the question never leaves the machine.
    context = ssl._create_unverified_context()  # noqa: S323
    return http.client.HTTPSConnection(host, settings.port, timeout=TIMEOUT, context=context)
