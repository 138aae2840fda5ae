"""Fetches pages of changes from a parent: one connection, limits on size and time."""

from __future__ import annotations

import http.client
import json
import zlib
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from app.bulk.pull import Body, PullError
from app.cli.admin_client import open_connection
from app.errors import ChangesGone, DoiProxyError

#: Limits of a page, compressed and decompressed, in bytes. A parent adds no line beyond 2 MiB, and a line has 4 MiB.
MAX_BYTES: Final = 16 * 1024 * 1024
#: Limit of the time of a page, in seconds, for a parent that sends a byte now and then.
DEADLINE: Final = 120.0
_PIECE: Final = 64 * 1024
#: The parent is busy, or a proxy in front of it is: RFC 9110, sections 15.6.3 to 15.6.5, and RFC 6585, section 4.
_BUSY: Final = frozenset({429, 502, 503, 504})
#: zlib reads the header of gzip (RFC 1952).
_GZIP: Final = 31


class ParentClient:
    """A proxy whose changes are pulled. Its certificate is checked. Redirects are not followed."""

    def __init__(self, url: str, token: str, clock: Callable[[], float], *, deadline: float = DEADLINE) -> None:
        """`clock` is monotonic. Raises ConfigurationError for a URL that cannot be used."""
        self._connection, self._base, self._shown = open_connection(url, "URL")
        self._token = token
        self._clock = clock
        self._deadline = deadline

    def fetch(self, cursor: str) -> Body:
        """The page after a cursor. Blocks. Raises PullError, ChangesGone, and DoiProxyError for any other refusal."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "gzip"}
        ends = self._clock() + self._deadline
        try:
            target = f"{self._base}/admin/changes" + (f"?cursor={quote(cursor)}" if cursor else "")
            self._connection.request("GET", target, headers=headers)
            answer = self._connection.getresponse()
            content = self._read(answer, ends)
        except (OSError, http.client.HTTPException) as error:
            raise PullError(f"{self._shown}: no answer: {error}; check the URL and that the proxy runs.") from error
        finally:
            self._connection.close()
        if answer.status != http.client.OK:
            raise self._refusal(answer.status, content)
        return Body(_decompress(content), len(content))

    def _read(self, answer: http.client.HTTPResponse, ends: float) -> bytes:
        pieces = bytearray()
        while piece := answer.read1(_PIECE):
            pieces += piece
            if len(pieces) > MAX_BYTES:
                raise PullError(f"{self._shown}: the page is larger than {MAX_BYTES} bytes; this is not a doi-proxy.")
            if self._clock() > ends:
                raise PullError(f"{self._shown}: the page took longer than {self._deadline:.0f} s.")
        return bytes(pieces)

    def _refusal(self, status: int, content: bytes) -> DoiProxyError:
        try:
            detail = str(json.loads(content)["detail"])[:500]
        except (ValueError, KeyError, TypeError):
            detail = f"status {status}; this is not a doi-proxy, or it has no admin API"
        if status == ChangesGone.status:
            return ChangesGone(detail)
        if status == http.client.UNAUTHORIZED:
            return DoiProxyError(f"{self._shown}: the token is wrong; put its admin_follow_token into --token-file")
        return (PullError if status in _BUSY else DoiProxyError)(f"{self._shown}: {detail}")


def _decompress(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        stream = zlib.decompressobj(_GZIP)
        plain = stream.decompress(content, MAX_BYTES + 1)
    except zlib.error as error:
        raise PullError(f"The page cannot be decompressed: {error}.") from error
    if len(plain) > MAX_BYTES:
        raise PullError(f"The page is larger than {MAX_BYTES} bytes when it is decompressed; this is not a doi-proxy.")
    return plain
