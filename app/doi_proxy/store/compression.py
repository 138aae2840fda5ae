"""Compression of what a store holds: DEFLATE (RFC 1951) with a preset dictionary, one row at a time."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any, Final

from doi_proxy.store.dictionary import read_dictionary_1

#: The window has room for the dictionary (11 kB). Negative: without the header and the checksum of RFC 1950.
WINDOW_BITS: Final = -14
_LEVEL: Final = 6
#: Copying the prepared state takes most of the time. A larger state does not make short texts smaller.
_MEMORY_LEVEL: Final = 4
#: Limit of the decompressed size, in bytes. It is larger than any answer that is accepted from an upstream.
MAX_BYTES: Final = 16 * 1024 * 1024


def compress(data: bytes) -> bytes:
    """Compress one record."""
    work = _prepared().copy()
    return bytes(work.compress(data) + work.flush())


def decompress(data: bytes) -> bytes:
    """Reverse `compress`. Raises ValueError for other data, and for more than MAX_BYTES."""
    work = zlib.decompressobj(WINDOW_BITS, read_dictionary_1())
    try:
        found = work.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not work.eof or work.unused_data:
        raise ValueError("the compressed data has no end, or something follows it")
    return found


@cache
def _prepared() -> Any:
    """The state after the dictionary has been read. Reading it takes ten times as long as copying the state."""
    return zlib.compressobj(
        _LEVEL, zlib.DEFLATED, WINDOW_BITS, _MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, read_dictionary_1()
    )
