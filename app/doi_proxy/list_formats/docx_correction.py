"""Replaces names in the text of a .docx file. Everything else of the file stays, byte for byte.

The parts with a correction are compressed anew. All others are copied as they are, so a picture is never unpacked.
"""

from __future__ import annotations

import asyncio
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.list_formats.docx import MAX_CHARACTERS, DocumentText, read_parts, unpack_part

#: A file header, and one of the directory (APPNOTE 6.3.10, sections 4.3.7 and 4.3.12), and the directory's end.
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_DIRECTORY_AT: Final = 16
#: The flag of a file whose sizes follow its data, and the method that everything reads.
_SIZES_FOLLOW: Final = 0x08
_DEFLATED: Final = 8
_BLOCK_BYTES: Final = 262_144
#: Changes that are looked for in one turn of the event loop.
_CORRECTIONS_A_TURN: Final = 16
#: Bytes of a character reference.
_REFERENCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Correction:
    """A part of the text of a document, as read_docx counts it, and what replaces it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Run:
    """A piece of text: where it begins in the document and in the bytes of its part."""

    text: str
    start: int
    part: str
    offset: int

    @property
    def end(self) -> int:
        """Where it ends in the document."""
        return self.start + len(self.text)


class _LocatedText(DocumentText):
    """Notes where the pieces of text are that a correction touches."""

    def __init__(self, corrections: Sequence[Correction]) -> None:
        super().__init__(MAX_CHARACTERS)
        self._corrections = corrections
        #: The first correction that does not end before the current piece.
        self._next = 0
        self.runs: list[_Run] = []

    def _read(self, text: str) -> None:
        start = self.characters
        super()._read(text)
        if self.characters == start:
            return
        while self._next < len(self._corrections) and self._corrections[self._next].end <= start:
            self._next += 1
        if self._next < len(self._corrections) and self._corrections[self._next].start < self.characters:
            self.runs.append(_Run(text, start, self.part, self.parser.CurrentByteIndex))


async def correct_docx(data: bytes, corrections: Sequence[Correction], hold_turn: HoldTurn) -> bytes | None:
    """The document with these corrections, which are in the order of its text. None if none of them can be made.

    The document has been read before. A correction of what is not text of a run, such as the address of a link, is
    left out. `hold_turn` is as in read_docx.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        text = _LocatedText(corrections)
        await read_parts(archive, text, len(data), hold_turn)
        parts: dict[str, bytes] = {}
        for name in dict.fromkeys(run.part for run in text.runs):
            part = await unpack_part(archive, name)
            edits = await _list_edits(part, [run for run in text.runs if run.part == name], corrections)
            if edits:
                parts[name] = _edit(part, edits)
        return await _replace_parts(data, archive, parts) if parts else None


async def _list_edits(
    part: bytes, runs: Sequence[_Run], corrections: Sequence[Correction]
) -> list[tuple[int, int, bytes]]:
    """What is replaced in the bytes of a part: the first run of a correction gets the new text, others lose theirs."""
    edits: list[tuple[int, int, bytes]] = []
    first = 0
    for number, correction in enumerate(corrections):
        if number % _CORRECTIONS_A_TURN == 0:
            await asyncio.sleep(0)
        while first < len(runs) and runs[first].end <= correction.start:
            first += 1
        last = first
        while last < len(runs) and runs[last].start < correction.end:
            last += 1
        places = [_find_place(part, run, correction) for run in runs[first:last]]
        known = [place for place in places if place is not None]
        if known and len(known) == len(places):
            new = escape(correction.text).encode()
            edits += [(*place, b"" if at else new) for at, place in enumerate(known)]
    return edits


def _find_place(part: bytes, run: _Run, correction: Correction) -> tuple[int, int] | None:
    """The bytes of a run that a correction replaces. None in another encoding than UTF-8."""
    first, last = max(0, correction.start - run.start), min(len(run.text), correction.end - run.start)
    if part.startswith(run.text.encode(), run.offset):
        start = run.offset + len(run.text[:first].encode())
        return start, start + len(run.text[first:last].encode())
    end = part.find(b";", run.offset, run.offset + _REFERENCE_BYTES)
    # A reference, such as &lt;, is a piece of its own.
    return (run.offset, end + 1) if part.startswith(b"&", run.offset) and end > 0 else None


def _edit(part: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    pieces, done = [], 0
    for start, end, new in edits:
        pieces += [part[done:start], new]
        done = end
    return b"".join([*pieces, part[done:]])


async def _replace_parts(data: bytes, archive: zipfile.ZipFile, parts: Mapping[str, bytes]) -> bytes | None:
    """The archive with other content of some parts. None if it is not a plain one: its files one after the other."""
    *_, size, directory_at, _ = _END.unpack(data[-_END.size :])
    directory = data[directory_at : directory_at + size]
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    offsets = [info.header_offset for info in infos]
    if directory_at + size + _END.size != len(data) or offsets != sorted(set(_list_offsets(directory))):
        return None
    ends = [*offsets[1:], directory_at]
    # What stands before the first file, and between two, is kept.
    pieces, length = [data[: infos[0].header_offset]], infos[0].header_offset
    moved: dict[int, tuple[int, tuple[int, int, int] | None]] = {}
    for info, end in zip(infos, ends, strict=True):
        piece, sizes = data[info.header_offset : end], None
        if info.filename in parts:
            piece, sizes = await _write_file(piece, parts[info.filename])
        moved[info.header_offset] = length, sizes
        pieces.append(piece)
        length += len(piece)
    end_record = bytearray(data[-_END.size :])
    struct.pack_into("<L", end_record, _DIRECTORY_AT, length)
    return b"".join([*pieces, _write_directory(directory, moved), bytes(end_record)])


async def _write_file(piece: bytes, content: bytes) -> tuple[bytes, tuple[int, int, int]]:
    """A file of the archive with other content; its checksum, its compressed and its own size."""
    fields = list(_LOCAL.unpack_from(piece))
    name_and_extra = piece[_LOCAL.size : _LOCAL.size + fields[9] + fields[10]]
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed, checksum = bytearray(), 0
    for start in range(0, len(content), _BLOCK_BYTES):
        block = content[start : start + _BLOCK_BYTES]
        packed += deflate.compress(block)
        checksum = zlib.crc32(block, checksum)
        await asyncio.sleep(0)
    packed += deflate.flush()
    sizes = checksum, len(packed), len(content)
    fields[2] &= ~_SIZES_FOLLOW
    fields[3] = _DEFLATED
    fields[6:9] = sizes
    return _LOCAL.pack(*fields) + name_and_extra + packed, sizes


def _list_offsets(directory: bytes) -> Iterator[int]:
    """Where the directory says that each file begins."""
    at = 0
    while at + _CENTRAL.size <= len(directory):
        fields = _CENTRAL.unpack_from(directory, at)
        yield fields[16]
        at += _CENTRAL.size + fields[10] + fields[11] + fields[12]


def _write_directory(directory: bytes, moved: Mapping[int, tuple[int, tuple[int, int, int] | None]]) -> bytes:
    """The directory with the new places of the files, and the new sizes of some."""
    written, at = bytearray(directory), 0
    while at + _CENTRAL.size <= len(directory):
        fields = list(_CENTRAL.unpack_from(directory, at))
        fields[16], sizes = moved[fields[16]]
        if sizes is not None:
            fields[3] &= ~_SIZES_FOLLOW
            fields[4] = _DEFLATED
            fields[7:10] = sizes
        _CENTRAL.pack_into(written, at, *fields)
        at += _CENTRAL.size + fields[10] + fields[11] + fields[12]
    return bytes(written)
