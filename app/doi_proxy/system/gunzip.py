"""Decompresses gzip data (RFC 1952) in small pieces, with limits against decompression bombs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Final

#: The window size by which zlib selects the gzip format.
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class GzipLimits:
    """The limits of decompressed data: bytes for each compressed byte, all bytes, and bytes of one piece.

    Below `free_bytes` the ratio does not matter: short lists of similar names compress well.
    """

    ratio: float = inf
    total_bytes: float = inf
    free_bytes: int = 1024 * 1024
    piece_bytes: int = 16_384


class Gunzip:
    """Decompresses gzip data, also of several members."""

    def __init__(self, limits: GzipLimits, refuse: Callable[[str], Exception], library: Any = zlib) -> None:
        """`refuse` makes the error of data that cannot be read, from a reason such as "gzip data ends too early".

        `library` is zlib, or has its interface.
        """
        self._limits = limits
        self._refuse = refuse
        self._library = library
        self._inflate = library.decompressobj(_GZIP)
        self._compressed_bytes = self._bytes = 0
        self._is_started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed pieces. Raises the error of `refuse` for damaged data, and past a limit."""
        self._compressed_bytes += len(data)
        while data:
            if self._inflate.eof:
                # Some programs pad a file with zeros.
                if not data.strip(b"\0"):
                    return
                self._inflate = self._library.decompressobj(_GZIP)
            self._is_started = True
            try:
                piece = self._inflate.decompress(data, self._limits.piece_bytes)
            except self._library.error as error:
                raise self._refuse(f"gzip data is damaged: {error}") from error
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            self._bytes += len(piece)
            self._check_limits()
            if piece:
                yield piece

    def read(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The decompressed pieces of all data. Raises the error of `refuse`."""
        for data in pieces:
            yield from self.feed(data)
        self.end()

    def _check_limits(self) -> None:
        limits = self._limits
        if self._bytes > max(limits.free_bytes, limits.ratio * self._compressed_bytes):
            raise self._refuse(f"gzip data decompresses to more than {limits.ratio:g} times its size")
        if self._bytes > limits.total_bytes:
            raise self._refuse(f"gzip data decompresses to more than {limits.total_bytes} bytes")

    def end(self) -> None:
        """Check that the data is complete. Raises the error of `refuse`."""
        if self._is_started and not self._inflate.eof:
            raise self._refuse("gzip data ends too early; the whole file is needed")
