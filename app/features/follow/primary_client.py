"""Fetches pages of changes from a primary: one connection for each, with limits on size and time."""

from __future__ import annotations

import http.client
from typing import Final
from urllib.parse import quote

from app.features.follow.errors import ChangesGone
from app.features.follow.pull import Body, BrokenPage, PrimaryBusy, PullError
from app.proxy_client.exchange import Exchange, ProxyFailure, SlowAnswer
from app.proxy_client.server import ProxyServer

#: Limits of a page, compressed and decompressed, in bytes. A primary adds no line beyond 2 MiB, and a line has 4 MiB.
MAX_BYTES: Final = 16 * 1024 * 1024
#: The media type of a page.
_MEDIA_TYPE: Final = "application/x-ndjson"
#: Seconds to wait for a busy primary that does not name them, and the least.
_USUAL_WAIT: Final = 5.0
_LEAST_WAIT: Final = 1.0
_HINTS: Final = {http.client.UNAUTHORIZED: "the token is wrong; put its admin_replica_token into --token-file"}


class PrimaryClient:
    """A proxy whose changes are pulled. No other server gets the token."""

    def __init__(self, server: ProxyServer, token: str, *, timeout: float) -> None:
        """`timeout` limits a page, in seconds, from the connection to the last byte."""
        self._server = server
        self._token = token
        self._timeout = timeout

    def fetch(self, cursor: str) -> Body:
        """The page after a cursor. Blocks. Raises PullError and ChangesGone."""
        try:
            return self._fetch(cursor)
        except SlowAnswer as error:
            raise BrokenPage(f"{error.message}.") from error
        except ProxyFailure as error:
            raise _translate(error) from error

    def _fetch(self, cursor: str) -> Body:
        target = "/admin/changes" + (f"?cursor={quote(cursor)}" if cursor else "")
        with Exchange(self._server, self._timeout, deadline=self._timeout) as exchange:
            fields = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "gzip"}
            if exchange.send("GET", target, fields) != http.client.OK:
                raise exchange.refusal(_HINTS)
            media_type = exchange.headers.get_content_type()
            if media_type != _MEDIA_TYPE:
                label = self._server.label
                raise PullError(f"{label}: answers with {media_type!r:.80}, not with changes; check the URL.")
            return Body(exchange.read(MAX_BYTES), exchange.received)


def _translate(error: ProxyFailure) -> PullError | ChangesGone:
    """The error of a pull. A primary is busy with 429 (RFC 6585), and with 503 and Retry-After (RFC 9110, 15.6.4)."""
    status, message = error.http_status, error.message
    if status == ChangesGone.status:
        return ChangesGone(message)
    is_busy = status == http.client.SERVICE_UNAVAILABLE and error.retry_after is not None
    if is_busy or status == http.client.TOO_MANY_REQUESTS:
        wait = _USUAL_WAIT if error.retry_after is None else max(error.retry_after, _LEAST_WAIT)
        return PrimaryBusy(f"{message}; run the command again later.", wait)
    return (BrokenPage if error.is_transient else PullError)(message)
