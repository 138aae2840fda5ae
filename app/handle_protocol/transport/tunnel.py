"""Messages in the bodies of HTTP requests, for networks that let nothing else pass. Connections are kept.

The HTTP is our own, because a message takes a third of the time that it takes with a client library. An HTTPS interface
shows the key of its server; see `key`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from handle_protocol.errors import ServerRefused, UnusableAnswer
from handle_protocol.site import Candidate
from handle_protocol.transport.base import has_id_of, refuse_long
from handle_protocol.transport.egress import Egress, EgressProxy, read_peer_certificate, write_authority
from handle_protocol.transport.http import HttpAnswer, HttpConnection
from handle_protocol.transport.stream import ConnectionPool
from handle_protocol.wire.site_value import TransportProtocol

MESSAGE: Final = "application/x-hdl-message"
_SUCCESS: Final = 200
#: A host name in a site value comes from the network, and must not add fields to the request.
_HOST: Final = re.compile(rb"[A-Za-z0-9_.:\[\]-]{1,255}")


@dataclass(frozen=True, slots=True)
class _Route:
    """A server and how it is reached: connections of one route are alike."""

    scheme: str
    host: str
    port: int
    proxy: EgressProxy | None
    #: The key that the certificate was compared with.
    public_key: bytes


class TunnelTransport:
    """Posts messages with at most `max_bytes` of answer."""

    def __init__(
        self,
        egress: Egress,
        pool: ConnectionPool[HttpAnswer],
        *,
        headers: Mapping[str, str],
        max_bytes: int,
    ) -> None:
        """`headers` identify this program."""
        self._egress = egress
        self._pool = pool
        fields = {**headers, "Content-Type": MESSAGE, "Accept": MESSAGE, "Accept-Encoding": "identity"}
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._max_bytes = max_bytes

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        route = self._find_route(candidate)
        request = self._write_request(route, candidate.host, handle, message)
        answer = await self._pool.exchange(
            route, lambda: self._connect(route), request, belongs=lambda answer: has_id_of(message, answer.body)
        )
        return self._read(answer, message)

    async def aclose(self) -> None:
        """See Transport."""
        self._pool.close()

    def _find_route(self, candidate: Candidate) -> _Route:
        endpoint = candidate.endpoint
        is_tls = endpoint.protocol is TransportProtocol.HTTPS
        scheme, host = "https" if is_tls else "http", str(endpoint.address)
        key = candidate.public_key if is_tls else b""
        return _Route(scheme, host, endpoint.port, self._egress.find_proxy(scheme, host), key)

    async def _connect(self, route: _Route) -> HttpConnection:
        connection = await self._egress.connect(route.scheme, route.host, route.port, route.proxy)
        try:
            certificate = read_peer_certificate(connection)
            if certificate is not None and route.scheme == "https":
                # It imports a library that only a proxy with handle servers has.
                from handle_protocol.key import compare_certificate  # noqa: PLC0415

                compare_certificate(certificate, route.public_key)
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_request(self, route: _Route, domain: bytes | None, handle: bytes, message: bytes) -> bytes:
        authority = write_authority(route.host, route.port)
        host = domain.decode("ascii") if domain and _HOST.fullmatch(domain) else authority
        target, proxy_field = f"/{quote(handle, safe='')}", ""
        if route.proxy is not None and route.scheme == "http":
            # A proxy gets the absolute form (RFC 9112, section 3.2.2), and the host of it: one that goes by the field
            # Host would connect to any machine that a site value names.
            host = authority
            target, proxy_field = f"http://{authority}{target}", route.proxy.field
        head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\n{proxy_field}{self._fields}"
        return f"{head}Content-Length: {len(message)}\r\n\r\n".encode("latin-1") + message

    def _read(self, answer: HttpAnswer, message: bytes) -> bytes:
        headers = answer.headers
        if answer.status != _SUCCESS:
            field = headers.get(b"retry-after")
            raise ServerRefused(
                f"The handle server refused to answer, with HTTP status {answer.status}.",
                http_status=answer.status,
                retry_after=None if field is None else field.decode("latin-1"),
            )
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != MESSAGE.encode():
            raise UnusableAnswer("The handle server's answer through HTTP is not a message of the Handle protocol.")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnusableAnswer("The handle server's answer has a content coding that was not offered.")
        refuse_long(answer.body, message, self._max_bytes)
        return answer.body
