"""The text of a .docx file (ECMA-376): the paragraphs of the document, its footnotes and its endnotes, and the
addresses of their links.

The archive is read from memory. Its directory, the unpacked bytes, the depth of elements, each tag, each namespace and
the text are bounded, and a document type declaration is refused, so an entity cannot be declared.
"""

from __future__ import annotations

import asyncio
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape

from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats.fair_lock import HoldTurn
from doi_proxy.list_formats.reference_list import NOTES

#: Bytes of a document, and characters of its text: 2,000 references with short abstracts have about as many.
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
MAX_CHARACTERS: Final = 2 * 1024 * 1024
#: Elements in each other. A document has about 30; 5 million took 620 MB.
_MAX_DEPTH: Final = 1_000
#: Bytes that are parsed in one turn of the event loop. 16 KiB of the shortest elements took 3 ms.
_BLOCK_BYTES: Final = 16_384
_PARTS: Final = ("document.xml", "footnotes.xml", "endnotes.xml")
_ID: Final = re.compile(r"http://\S+/relationships id")
#: The address of a field that is a link (ECMA-376, part 1, section 17.16.5.25).
_FIELD_LINK: Final = re.compile(r'\s*HYPERLINK\s+"([^"]{1,2048})"', re.IGNORECASE)
#: What elements other than text stand for.
_BLANKS: Final = {"tab": "\t", "br": "\v", "cr": "\v", "noBreakHyphen": "-"}
#: The end of the directory, and of a directory of ZIP64 before it (APPNOTE 6.3.10, 4.3.15 and 4.3.16).
_END: Final = struct.Struct("<4s4H2LH")


class UnreadableDocument(UnreadableList):
    """The document cannot be read; save it again, or send its text."""

    def __init__(self, reason: str, *, is_spreadsheet: bool = False) -> None:
        super().__init__(f"The document cannot be read: {reason}; save it again, or send its text.")
        self.reason = reason
        self.is_spreadsheet = is_spreadsheet


async def read_docx(data: bytes, hold_turn: HoldTurn) -> str:
    """The text, with a line for each paragraph; then NOTES and the notes. Raises UnreadableDocument.

    `hold_turn` is of a lock of all texts: one block is parsed in a turn of the event loop, whatever the number of
    documents.
    """
    _require_small_directory(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = DocumentText(MAX_CHARACTERS)
            await read_parts(archive, text, len(data), hold_turn)
            return "".join(text.pieces)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise _unreadable("it is damaged, or encrypted") from error
    except LookupError as error:
        raise _unreadable("its encoding is not known") from error
    except expat.ExpatError as error:
        raise _unreadable("its XML is not well-formed") from error


def _require_small_directory(data: bytes) -> None:
    """Raise UnreadableDocument unless the directory that `zipfile` will read is small."""
    end = data[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\x05\x06") or end[-2:] != b"\0\0":
        raise _unreadable("it is not a ZIP archive, or not a whole one")
    # Bytes of the directory: about 700 files. A document has about 20.
    if data[-_END.size - 20 :].startswith(b"PK\x06\x07") or _END.unpack(end)[5] > 65_536:
        raise _unreadable("it has too many parts")


async def read_parts(archive: zipfile.ZipFile, text: DocumentText, size: int, hold_turn: HoldTurn) -> None:
    """Read the parts of a document of `size` bytes that have text. Raises UnreadableDocument. See read_docx."""
    names = frozenset(archive.namelist())
    if f"word/{_PARTS[0]}" not in names:
        # The folder of a spreadsheet (ECMA-376, part 1, section 12).
        is_spreadsheet = "xl/workbook.xml" in names
        raise UnreadableDocument(f"it has no word/{_PARTS[0]}", is_spreadsheet=is_spreadsheet)
    # Unpacked bytes of the parts that are read. A book of 500 pages has about 4 MB, and a document up to 20 times the
    # bytes that were sent.
    unpacked = _Unpacked(archive, min(16 * 1024 * 1024, max(1024 * 1024, 100 * size)), hold_turn)
    for name in _PARTS:
        text.links = {}
        if f"word/_rels/{name}.rels" in names:
            await unpacked.parse(f"word/_rels/{name}.rels", text.open_parser(text.read_relationship))
        if f"word/{name}" in names:
            if name == _PARTS[1] or (name == _PARTS[2] and NOTES not in text.pieces):
                text.add(NOTES)
            text.part = f"word/{name}"
            await unpacked.parse(text.part, text.open_parser())


async def unpack_part(archive: zipfile.ZipFile, name: str) -> bytes:
    """A part that was read before, in many turns of the event loop."""
    data = bytearray()
    with archive.open(name) as part:
        while block := part.read(_BLOCK_BYTES):
            data += block
            await asyncio.sleep(0)
    return bytes(data)


class _Unpacked:
    """Unpacks parts of an archive, `room` bytes of all together."""

    def __init__(self, archive: zipfile.ZipFile, room: int, hold_turn: HoldTurn) -> None:
        self._archive = archive
        self._room = room
        self._hold_turn = hold_turn

    async def parse(self, name: str, parser: expat.XMLParserType) -> None:
        """Parse a part in many turns of the event loop. Raises UnreadableDocument."""
        if self._archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _unreadable("it is compressed in an unusual way")
        parsed = 0
        with self._archive.open(name) as part:
            while block := part.read(_BLOCK_BYTES):
                async with self._hold_turn():
                    self._room -= len(block)
                    if self._room < 0:
                        raise _unreadable("it is too large when it is unpacked")
                    parser.Parse(block, False)
                    parsed += len(block)
                    # Bytes of a tag or a comment. expat reads an unfinished one again with each block, and one of 128
                    # KiB takes 15 ms.
                    if parsed - parser.CurrentByteIndex >= 131_072:
                        raise _unreadable("it has a tag or a comment that is too long")
                    await asyncio.sleep(0)
        parser.Parse(b"", True)


class DocumentText:
    """Collects the text of WordprocessingML. The address of a link follows its text, if only the address has a name."""

    def __init__(self, max_characters: int) -> None:
        self.pieces: list[str] = []
        #: The characters of the pieces.
        self.characters = 0
        self._lines = 0
        #: What is being read.
        self.part = ""
        self.parser = expat.ParserCreate()
        #: The addresses of the part's links by their identifiers, and that of the link being read with its first piece.
        self.links: dict[str, str] = {}
        self._link: tuple[str, int] | None = None
        self._max_characters = max_characters
        self._is_text = self._is_code = False
        #: The code of the field that is being read.
        self._code = ""
        self._depth = 0

    def open_parser(self, start: Callable[[str, dict[str, str]], None] | None = None) -> expat.XMLParserType:
        """A parser of one part, whose elements `start` reads, by default as those of a document."""
        self.parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler, parser.EndElementHandler = start or self._start, self._end
        parser.CharacterDataHandler = self._read
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartNamespaceDeclHandler = self._check_namespace
        return parser

    def read_relationship(self, name: str, attributes: dict[str, str]) -> None:
        """Read an element of the relationships of a part."""
        self._deepen()
        target = attributes.get("Target", "")
        # A hyperlink names a relationship of its part by its attribute "id" (ECMA-376, part 2, section 9.3).
        is_relationship = name == "http://schemas.openxmlformats.org/package/2006/relationships Relationship"
        if is_relationship and "10." in target and len(target) <= 2_048:
            # Links to names of one part that are read, and the characters of each. A book has about a thousand.
            if len(self.links) >= 5_000:
                raise _unreadable("it has too many links")
            self.links[attributes.get("Id", "")] = target

    def _deepen(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _unreadable("its elements are nested too deeply")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._deepen()
        local = _local(name)
        if local == "hyperlink":
            target = next((self.links.get(value) for key, value in attributes.items() if _ID.fullmatch(key)), None)
            self._link = None if target is None else (target, len(self.pieces))
        elif local == "fldSimple":
            self._open_field(_attribute(attributes, "instr"))
        elif local == "fldChar":
            self._pass_field(_attribute(attributes, "fldCharType"))
        self._is_text, self._is_code = local == "t", local == "instrText"
        if local in _BLANKS:
            self.add(_BLANKS[local])

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._is_text = self._is_code = False
        local = _local(name)
        if local in ("hyperlink", "fldSimple"):
            self._close_link()
        if local == "p":
            self.add("\n")

    def _pass_field(self, kind: str) -> None:
        """Read a border of a field: its code begins, its result begins, or it ends."""
        if kind == "begin":
            self._code = ""
        elif kind == "separate":
            self._open_field(self._code)
        elif kind == "end":
            self._close_link()

    def _open_field(self, code: str) -> None:
        found = _FIELD_LINK.match(code)
        if found is not None and "10." in found[1]:
            self._link = found[1], len(self.pieces)

    def _close_link(self) -> None:
        """Add the address of a link, if its text has no name."""
        if self._link is None:
            return
        target, first = self._link
        self._link = None
        if "10." not in "".join(self.pieces[first:]):
            self.add(f" {target} ")

    def _read(self, text: str) -> None:
        if self._is_text:
            self.add(text)
        elif self._is_code and len(self._code) < 4_096:
            # Characters of the code of a field that are read. That of a citation manager has a whole reference.
            self._code += text

    def add(self, text: str) -> None:
        """Add a piece. Raises UnreadableDocument."""
        self.characters += len(text)
        if self.characters > self._max_characters:
            raise _unreadable("its text is too long")
        self._lines += text.count("\n")
        # Lines of the text: paragraphs, those in the cells of tables too. A book of 500 pages has about 10,000.
        if self._lines > 100_000:
            raise _unreadable("it has too many paragraphs")
        self.pieces.append(text)

    def _check_namespace(self, prefix: str | None, namespace: str | None) -> None:
        """Refuse a long namespace before an element has it."""
        # Characters of a namespace. expat and Python copy it for each element: one of 100,000 made a form of 2 kB take
        # 24 s of processor time. Those of documents have about 80.
        if len(namespace or "") > 256:
            raise _unreadable("it has a namespace that is too long")

    def _refuse(self, *_: object) -> None:
        raise _unreadable("it has a document type declaration")


def _attribute(attributes: dict[str, str], name: str) -> str:
    return next((value for key, value in attributes.items() if key.rpartition(" ")[2] == name), "")


def _local(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return (
        local
        if namespace
        in (
            "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
            "http://purl.oclc.org/ooxml/wordprocessingml/main",
        )
        else ""
    )


def _unreadable(reason: str) -> UnreadableDocument:
    return UnreadableDocument(reason)


#: A file header, and one of the directory (APPNOTE 6.3.10, sections 4.3.7 and 4.3.12), and the directory's end.
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END_OF_DIRECTORY: Final = struct.Struct("<4s4H2LH")
#: The flag of a file whose sizes follow its data, and the method that everything reads.
_SIZES_FOLLOW: Final = 0x08
_DEFLATED: Final = 8


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
        # Changes that are looked for in one turn of the event loop.
        if number % 16 == 0:
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
    # Bytes of a character reference.
    end = part.find(b";", run.offset, run.offset + 16)
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
    *_, size, directory_at, _ = _END_OF_DIRECTORY.unpack(data[-_END_OF_DIRECTORY.size :])
    directory = data[directory_at : directory_at + size]
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    offsets = [info.header_offset for info in infos]
    if directory_at + size + _END_OF_DIRECTORY.size != len(data) or offsets != sorted(set(_list_offsets(directory))):
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
    end_record = bytearray(data[-_END_OF_DIRECTORY.size :])
    struct.pack_into("<L", end_record, 16, length)  # where the directory begins
    return b"".join([*pieces, _write_directory(directory, moved), bytes(end_record)])


async def _write_file(piece: bytes, content: bytes) -> tuple[bytes, tuple[int, int, int]]:
    """A file of the archive with other content; its checksum, its compressed and its own size."""
    fields = list(_LOCAL.unpack_from(piece))
    name_and_extra = piece[_LOCAL.size : _LOCAL.size + fields[9] + fields[10]]
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed, checksum = bytearray(), 0
    for start in range(0, len(content), 262_144):
        block = content[start : start + 262_144]
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
