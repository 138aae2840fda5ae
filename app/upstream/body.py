"""The body of an upstream's answer, bounded while it arrives, before and after decompression."""

from __future__ import annotations

import zlib
from typing import Final

from app.errors import InvalidAnswer

#: What is offered to the upstream; a content coding that was not offered is no valid answer.
ACCEPT_ENCODING: Final = "gzip"
_GZIP_CODINGS: Final = ("gzip", "x-gzip")
#: Tells zlib to expect a gzip header and trailer (zlib manual, inflateInit2).
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class BoundedBody:
    """Collects a body; raises InvalidAnswer when it grows over `most` bytes or cannot be decompressed."""

    def __init__(self, content_encoding: str, most: int) -> None:
        coding = content_encoding.strip().lower()
        if coding not in ("", "identity", *_GZIP_CODINGS):
            raise InvalidAnswer(f"The upstream's answer has the content coding {coding[:40]!r}, which was not offered.")
        self._inflater = zlib.decompressobj(_GZIP_WINDOW) if coding in _GZIP_CODINGS else None
        self._most = most
        self._received = 0
        self._body = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take the next piece, as it came over the wire."""
        self._received += len(chunk)
        if self._inflater is not None:
            chunk = self._inflated(self._inflater, chunk)
        self._body += chunk
        if len(self._body) > self._most or self._received > self._most:
            raise InvalidAnswer(f"The upstream's answer is longer than {self._most} bytes.")

    def finish(self) -> bytes:
        """The whole body."""
        if self._inflater is not None and self._received and not self._inflater.eof:
            raise InvalidAnswer("The upstream's answer ends before its compressed data do.")
        return bytes(self._body)

    def _inflated(self, inflater: zlib._Decompress, chunk: bytes) -> bytes:
        # One byte more than there is room for tells "too long" from "just fits", and no bomb unfolds further.
        room = self._most - len(self._body) + 1
        try:
            return inflater.decompress(chunk, room)
        except zlib.error as error:
            raise InvalidAnswer("The upstream's answer cannot be decompressed.", detail=str(error)) from error
