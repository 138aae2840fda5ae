"""`doi-proxy healthcheck`, for containers without curl."""

from __future__ import annotations

import http.client
import ssl
import sys

from app.assembly.settings import Settings

#: Timeout in seconds. Container engines end a health check soon after.
TIMEOUT = 5.0


def healthcheck(settings: Settings) -> int:
    """Print the answer of `/readyz`. Exit status 0 if the proxy on this machine is ready, else 1."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - read, not bound
    try:
        connection = _connection(host, settings)
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read(10_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        print(
            f"doi-proxy: no answer on {host} port {settings.port}: {error}; check that the proxy runs", file=sys.stderr
        )
        return 1
    print(body)
    return 0 if answer.status == http.client.OK else 1


def _connection(host: str, settings: Settings) -> http.client.HTTPConnection:
    if settings.tls_cert is None:
        return http.client.HTTPConnection(host, settings.port, timeout=TIMEOUT)
    # The certificate is for the public host, not for this address. The request does not leave the machine.
    context = ssl._create_unverified_context()  # noqa: S323
    return http.client.HTTPSConnection(host, settings.port, timeout=TIMEOUT, context=context)
