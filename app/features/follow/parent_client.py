"""Fetches pages of changes from a parent: one connection, limits on size and time."""

from __future__ import annotations

import http.client
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Final
from urllib.parse import quote

from app.errors import ChangesGone
from app.features.admin.client import open_connection
from app.features.follow.pull import Body, BrokenPage, ParentBusy, PullError
from app.features.redaction import redact
from app.upstream.retry_after import read_retry_after

#: Limits of a page, compressed and decompressed, in bytes. A parent adds no line beyond 2 MiB, and a line has 4 MiB.
MAX_BYTES: Final = 16 * 1024 * 1024
#: The media type of a page.
_MEDIA_TYPE: Final = "application/x-ndjson"
_PIECE: Final = 64 * 1024
#: The parent, or a proxy in front of it, may answer the next time: RFC 9110, sections 15.6.3 to 15.6.5.
_BROKEN: Final = frozenset({502, 503, 504})
_REDIRECTIONS: Final = range(300, 400)
#: Seconds to wait for a busy parent that does not name them, and the least.
_USUAL_WAIT: Final = 5.0
_LEAST_WAIT: Final = 1.0
_MAX_DETAIL: Final = 500
#: zlib reads the header of gzip (RFC 1952).
_GZIP: Final = 31


class ParentClient:
    """A proxy whose changes are pulled. Its certificate is checked. Redirects are not followed: they have no token."""

    def __init__(self, url: str, token: str, clock: Callable[[], float], *, timeout: float) -> None:
        """`timeout` limits a page, in seconds, from the connection to the last byte. `clock` gives seconds since the
        epoch. Raises ConfigurationError for a URL that cannot be used."""
        self._connection, self._base, self._shown = open_connection(url, "URL", timeout)
        self._token = token
        self._clock = clock
        self._timeout = timeout

    def fetch(self, cursor: str) -> Body:
        """The page after a cursor. Blocks. Raises PullError and ChangesGone."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "gzip"}
        target = f"{self._base}/admin/changes" + (f"?cursor={quote(cursor)}" if cursor else "")
        try:
            self._connection.connect()
            with self._deadline(self._connection.sock):
                self._connection.request("GET", target, headers=headers)
                answer = self._connection.getresponse()
                content = self._read(answer)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenPage(f"{self._shown}: no answer: {error}; check the URL and that the proxy runs.") from error
        finally:
            self._connection.close()
        self._check_answer(answer, content)
        return Body(_decompress(content), len(content))

    @contextmanager
    def _deadline(self, connected: socket.socket) -> Iterator[None]:
        """End the connection after `timeout`. A timeout of the socket would begin again with each byte."""
        has_ended = False

        def end() -> None:
            nonlocal has_ended
            has_ended = True
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

        timer = Timer(self._timeout, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            if has_ended:
                raise self._too_slow() from error
            raise
        finally:
            timer.cancel()
        if has_ended:
            raise self._too_slow()

    def _too_slow(self) -> BrokenPage:
        return BrokenPage(
            f"{self._shown}: the page took longer than {self._timeout:g} s; see replication_page_timeout."
        )

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        pieces = bytearray()
        while piece := answer.read1(_PIECE):
            pieces += piece
            if len(pieces) > MAX_BYTES:
                raise PullError(f"{self._shown}: the page is larger than {MAX_BYTES} bytes; this is not a doi-proxy.")
        return bytes(pieces)

    def _check_answer(self, answer: http.client.HTTPResponse, content: bytes) -> None:
        """Raise the error of an answer that is not a page."""
        status, shown = answer.status, self._shown
        if status == http.client.OK:
            media_type = answer.headers.get_content_type()
            if media_type != _MEDIA_TYPE:
                raise PullError(f"{shown}: answers with {media_type!r:.80}, not with changes; check the URL.")
            return
        detail = _read_detail(content)
        if status == ChangesGone.status:
            raise ChangesGone(detail or "The parent does not have the cursor any more.")
        if status == http.client.UNAUTHORIZED:
            raise PullError(f"{shown}: the token is wrong; put its admin_replica_token into --token-file.")
        if status in _REDIRECTIONS:
            place = redact(answer.headers.get("Location", "another URL"))[:200]
            raise PullError(f"{shown}: redirects to {place!r}; if that is the parent, give its URL.")
        self._raise_busy(answer, detail)
        detail = detail or f"status {status}; this is not a doi-proxy, or it has no admin API (admin_replica_token)."
        raise (BrokenPage if status in _BROKEN else PullError)(f"{shown}: {detail}")

    def _raise_busy(self, answer: http.client.HTTPResponse, detail: str) -> None:
        """Raise ParentBusy for 429 (RFC 6585, section 4), and for 503 with Retry-After (RFC 9110, section 15.6.4)."""
        field = answer.headers.get("Retry-After")
        is_busy = answer.status == http.client.TOO_MANY_REQUESTS
        if not is_busy and (field is None or answer.status != http.client.SERVICE_UNAVAILABLE):
            return
        seconds = None if field is None else read_retry_after(field, self._clock())
        wait = _USUAL_WAIT if seconds is None else max(seconds, _LEAST_WAIT)
        raise ParentBusy(f"{self._shown}: {detail or 'is busy'}; run the command again later.", wait)


def _read_detail(content: bytes) -> str:
    """The detail of a problem (RFC 9457, section 3.1.4). Empty if there is none."""
    try:
        return str(json.loads(content)["detail"])[:_MAX_DETAIL]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _decompress(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        stream = zlib.decompressobj(_GZIP)
        plain = stream.decompress(content, MAX_BYTES + 1)
    except zlib.error as error:
        raise BrokenPage(f"The page cannot be decompressed: {error}.") from error
    if len(plain) > MAX_BYTES:
        raise PullError(f"The page is larger than {MAX_BYTES} bytes when it is decompressed; this is not a doi-proxy.")
    return plain
