"""The body of an upstream's answer, with a size limit before and after decompression."""

from __future__ import annotations

import zlib
from typing import Final

from app.errors import InvalidAnswer

#: The content coding that is offered to the upstream. An answer in another one is not valid.
ACCEPT_ENCODING: Final = "gzip"
_GZIP_CODINGS: Final = ("gzip", "x-gzip")
#: Tells zlib to expect a gzip header and trailer (zlib manual, inflateInit2).
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class BoundedBody:
    """Collects a body. Raises InvalidAnswer if it exceeds `most` bytes or cannot be decompressed."""

    def __init__(self, content_encoding: str, most: int) -> None:
        coding = content_encoding.strip().lower()
        if coding not in ("", "identity", *_GZIP_CODINGS):
            raise InvalidAnswer(f"The upstream's answer has the content coding {coding[:40]!r}, which was not offered.")
        self._inflater = zlib.decompressobj(_GZIP_WINDOW) if coding in _GZIP_CODINGS else None
        self._most = most
        self._received = 0
        self._body = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Add the next piece, as it was received."""
        self._received += len(chunk)
        if self._inflater is not None:
            chunk = self._inflate(self._inflater, chunk)
        self._body += chunk
        if len(self._body) > self._most or self._received > self._most:
            raise InvalidAnswer(f"The upstream's answer is longer than {self._most} bytes.")

    def finish(self) -> bytes:
        """The whole body."""
        if self._inflater is not None and self._received and not self._inflater.eof:
            raise InvalidAnswer("The upstream's answer is incomplete: its compressed data have no end.")
        return bytes(self._body)

    def _inflate(self, inflater: zlib._Decompress, chunk: bytes) -> bytes:
        # One byte more than the limit shows that the body is too long. A decompression bomb expands no further.
        room = self._most - len(self._body) + 1
        try:
            return inflater.decompress(chunk, room)
        except zlib.error as error:
            raise InvalidAnswer("The upstream's answer cannot be decompressed.", detail=str(error)) from error
