"""Messages in the bodies of HTTP requests, for networks that let nothing else pass. Connections are kept.

The certificate of an HTTPS interface is not checked: handle servers sign their own. A signed answer is the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import quote

import httpx

from app.errors import CouldNotVerify, InvalidAnswer, UpstreamRefused
from app.upstream.body import ACCEPT_ENCODING, BoundedBody
from app.upstream.client import translate_error
from app.upstream.native.site import Address, Candidate
from app.upstream.native.transport.base import measure_message
from app.upstream.native.transport.engines import Engines
from app.upstream.native.wire.envelope import ENVELOPE_BYTES
from app.upstream.native.wire.site_value import Protocol
from app.upstream.retry_after import read_retry_after

MESSAGE: Final = "application/x-hdl-message"
_SUCCESS: Final = 200
#: The body is an extension of the request; see `engine`.
_NO_STREAM: Final = httpx.ByteStream(b"")
_SCHEMES: Final = {Protocol.HTTP: "http", Protocol.HTTPS: "https"}


class TunnelTransport:
    """Posts messages. Timeouts are in seconds."""

    def __init__(
        self,
        engines: Engines,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        read_timeout: float,
        max_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """`headers` identify this program; `clock` returns seconds since the epoch."""
        self._engines = engines
        self._headers = {
            **headers,
            "Content-Type": MESSAGE,
            "Accept": MESSAGE,
            "Accept-Encoding": ACCEPT_ENCODING,
        }
        self._timeout = httpx.Timeout(read_timeout, connect=connect_timeout, pool=None).as_dict()
        self._max_bytes = max_bytes
        self._clock = clock

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint = candidate.endpoint
        scheme, host = _SCHEMES[endpoint.protocol], _write_host(endpoint.address)
        base = f"{scheme}://{host}:{endpoint.port}"
        name = candidate.host.decode("latin-1") if candidate.host else f"{host}:{endpoint.port}"
        request = httpx.Request(
            "POST",
            f"{base}/",
            headers={"Host": name, **self._headers},
            stream=_NO_STREAM,
            extensions={
                "timeout": self._timeout,
                "target": b"/" + quote(handle, safe="").encode(),
                "body": message,
            },
        )
        try:
            response = await self._engines.find(scheme, str(endpoint.address)).handle_async_request(request)
            try:
                return await self._read(response)
            finally:
                await response.aclose()
        except CouldNotVerify:
            raise
        except Exception as error:
            # Catch everything: an exception missing from a list would not count as a failure of the server.
            raise translate_error(error) from error

    async def aclose(self) -> None:
        """See Transport."""
        await self._engines.aclose()

    async def _read(self, response: httpx.Response) -> bytes:
        headers = response.headers
        if response.status_code != _SUCCESS:
            field = headers.get("Retry-After")
            raise UpstreamRefused(
                f"The handle server refused to answer, with HTTP status {response.status_code}.",
                upstream_status=response.status_code,
                retry_after=None if field is None else read_retry_after(field, self._clock()),
            )
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != MESSAGE:
            raise InvalidAnswer("The handle server's answer through HTTP is not a message of the Handle protocol.")
        body = BoundedBody(headers.get("Content-Encoding", ""), self._max_bytes + ENVELOPE_BYTES)
        async for chunk in response.aiter_raw():
            body.feed(chunk)
        message = body.finish()
        measure_message(message, self._max_bytes)
        return message


def _write_host(address: Address) -> str:
    return f"[{address}]" if isinstance(address, IPv6Address) else str(address)
