"""Cuts the bytes of a file into blocks that can be read alone: whole lines, or one document of many lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

#: A line of JSON Lines ends so. The first line of a document that is written over many lines does not.
_COMPLETE: Final = (b"}", b"]")


class OversizeRecord(ValueError):
    """A line or a document is longer than the limit. The message says which limit."""


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
