"""Decompresses a list in small pieces: gzip (RFC 1952), with a limit against decompression bombs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from app.errors import UnreadableList

#: The largest decompressed piece.
PIECE_BYTES: Final = 65_536
#: Decompressed bytes below which the ratio does not matter: short lists of similar names compress well.
_FREE_BYTES: Final = 1024 * 1024
#: The window size by which zlib selects the gzip format.
_GZIP: Final = 16 + zlib.MAX_WBITS


class Gunzip:
    """Decompresses gzip data, also of several members, in pieces of at most PIECE_BYTES."""

    def __init__(self, max_ratio: float) -> None:
        """`max_ratio` is the limit of decompressed bytes for each compressed byte."""
        self._max_ratio = max_ratio
        self._inflate = zlib.decompressobj(_GZIP)
        self._compressed_bytes = self._bytes = 0
        self._is_started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed pieces. Raises UnreadableList for damaged data, and past the ratio."""
        self._compressed_bytes += len(data)
        while data:
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(_GZIP)
            self._is_started = True
            try:
                piece = self._inflate.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise UnreadableList(f"The list is not valid gzip data: {error}.") from error
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            self._bytes += len(piece)
            if self._bytes > max(_FREE_BYTES, self._max_ratio * self._compressed_bytes):
                raise UnreadableList(
                    f"The list decompresses to more than {self._max_ratio:g} times its size; send it uncompressed."
                )
            if piece:
                yield piece

    def end(self) -> None:
        """Check that the data is complete. Raises UnreadableList."""
        if self._is_started and not self._inflate.eof:
            raise UnreadableList("The gzip data ends too early; send the whole file.")
