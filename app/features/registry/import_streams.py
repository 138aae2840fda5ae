"""Streams of bytes: decompressed with a limit, and read in pieces of any size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from app.features.gunzip import GZIP, Gunzip, GzipLimits

#: The library that compresses. isal takes half the time of zlib. Without its extra, only tables are read.
library: Any = zlib
with suppress(ModuleNotFoundError):
    from isal import isal_zlib

    library = isal_zlib
#: Bytes that are read at a time.
PIECE_BYTES: Final = 1024 * 1024
#: Bytes by which a file is recognised.
HEAD_BYTES: Final = 65_536
#: JSON of one agency has up to 30 bytes for each compressed byte.
_LIMITS: Final = GzipLimits(ratio=400, free_bytes=64 * 1024 * 1024, piece_bytes=PIECE_BYTES)
#: Data cannot be decompressed.
DamagedData: Final = cast("type[Exception]", library.error)

#: Reads up to so many bytes, and none at the end.
Read = Callable[[int], bytes]


class UnreadablePart(ValueError):
    """Bytes cannot be read to their end. The message gives the reason."""


class Prefixed:
    """Bytes that were read already, and those that follow."""

    def __init__(self, head: bytes, read: Read) -> None:
        self.head = head
        self._rest = head
        self._read = read

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, none at the end."""
        if not self._rest:
            return self._read(count)
        data, self._rest = self._rest[:count], self._rest[count:]
        return data


class Pieces:
    """Reads from pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, none at the end."""
        if self._at >= len(self._rest):
            self._rest, self._at = next(self._pieces, b""), 0
        data = self._rest[self._at : self._at + count]
        self._at += len(data)
        return data


def read_head(read: Read) -> bytes:
    """The first HEAD_BYTES of a stream, or all of a shorter one."""
    head = read(HEAD_BYTES)
    while len(head) < HEAD_BYTES and (more := read(HEAD_BYTES - len(head))):
        head += more
    return head


def decompress_head(head: bytes) -> bytes:
    """The beginning of what gzip data contains, from its own beginning. Empty if it is damaged."""
    try:
        return cast(bytes, library.decompressobj(GZIP).decompress(head, HEAD_BYTES))
    except DamagedData:
        return b""


def decompress(read: Read) -> Read:
    """Reads what the gzip data of a stream contains. Raises UnreadablePart."""
    return Pieces(gunzip(iter(lambda: read(PIECE_BYTES), b""))).read


def gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress gzip data, also of several members, in pieces of PIECE_BYTES. Raises UnreadablePart."""
    gzip = Gunzip(_LIMITS, lambda reason: UnreadablePart(f"the {reason}"), library)
    for data in pieces:
        yield from gzip.feed(data)
    gzip.end()
