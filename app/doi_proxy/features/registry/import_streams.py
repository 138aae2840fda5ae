"""Streams of bytes: decompressed with a limit, read in pieces of any size, and cut into blocks of whole lines."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, cast

from doi_proxy.system.gunzip import Gunzip, GzipLimits

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
#: The beginning alone is read.
_HEAD_LIMITS: Final = GzipLimits(piece_bytes=HEAD_BYTES)
#: RFC 1952, section 2.3.1.
_GZIP_MAGIC: Final = b"\x1f\x8b"
#: A line of JSON Lines ends so. The first line of a document that is written over many lines does not.
_COMPLETE: Final = (b"}", b"]")
#: Data cannot be decompressed.
DamagedData: Final = cast("type[Exception]", library.error)

#: Reads up to so many bytes, and none at the end.
Read = Callable[[int], bytes]


class UnreadablePart(ValueError):
    """Bytes cannot be read to their end. The message gives the reason."""


class OversizeRecord(ValueError):
    """A line or a document is longer than the limit. The message says which limit."""


class _Pieces:
    """Reads from pieces of any size."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = filter(None, pieces)
        self._rest = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, none at the end."""
        if self._at >= len(self._rest):
            self._rest, self._at = next(self._pieces, b""), 0
        data = self._rest[self._at : self._at + count]
        self._at += len(data)
        return data


def prepend(head: bytes, read: Read) -> Read:
    """Reads `head`, and then what `read` reads."""
    return _Pieces(chain((head,), _pieces_of(read))).read


def open_stream(read: Read) -> tuple[bytes, Read]:
    """The first HEAD_BYTES of a stream, and what reads all of it, both decompressed if it is gzip data.

    Reading raises UnreadablePart.
    """
    head = _read_head(read)
    whole = prepend(head, read)
    if is_gzip(head):
        plain = _Pieces(gunzip(_pieces_of(whole))).read
        head = _read_head(plain)
        whole = prepend(head, plain)
    return head, whole


def _read_head(read: Read) -> bytes:
    head = read(HEAD_BYTES)
    while len(head) < HEAD_BYTES and (more := read(HEAD_BYTES - len(head))):
        head += more
    return head


def _pieces_of(read: Read) -> Iterator[bytes]:
    return iter(lambda: read(PIECE_BYTES), b"")


def is_gzip(head: bytes) -> bool:
    """Whether data that begins with `head` is compressed by gzip."""
    return head.startswith(_GZIP_MAGIC)


def decompress_head(head: bytes) -> bytes:
    """The beginning of what gzip data contains, from its own beginning. Empty if it is damaged."""
    try:
        return next(_open_gunzip(_HEAD_LIMITS).feed(head), b"")
    except UnreadablePart:
        return b""


def gunzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip data, also of several members, in pieces of PIECE_BYTES. Raises UnreadablePart."""
    return _open_gunzip(_LIMITS).read(pieces)


def _open_gunzip(limits: GzipLimits) -> Gunzip:
    return Gunzip(limits, lambda reason: UnreadablePart(f"the {reason}"), library)


def cut_blocks(pieces: Iterable[bytes], block_bytes: int, max_bytes: int) -> Iterator[bytes]:
    """Blocks of about `block_bytes` that end at the end of a line. Raises OversizeRecord past `max_bytes`.

    The same bytes are always cut into the same blocks, however they arrive.
    """
    waiting: list[bytes] = []
    size = 0
    is_document: bool | None = None
    for piece in pieces:
        if is_document is None and (end := piece.find(b"\n")) >= 0:
            is_document = _begins_document(b"".join((*waiting, piece[:end])))
        at = 0
        # The first end of a line after `block_bytes` bytes. What waits already has none there.
        while not is_document and (end := piece.find(b"\n", at + max(0, block_bytes - 1 - size))) >= 0:
            yield b"".join((*waiting, piece[at : end + 1]))
            waiting, size, at = [], 0, end + 1
        waiting.append(piece[at:])
        size += len(piece) - at
        if size > max_bytes:
            raise OversizeRecord(f"a line or document is longer than {max_bytes} bytes")
    if (block := b"".join(waiting)).strip():
        yield block


def _begins_document(first_line: bytes) -> bool:
    """Whether the file is one JSON document over many lines."""
    first = first_line.removeprefix(b"\xef\xbb\xbf").strip()
    return first.startswith((b"{", b"[")) and not first.endswith(_COMPLETE)
