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
from collections.abc import Callable
from typing import Final
from xml.parsers import expat

from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats.reference_list import NOTES

#: Bytes of a document, and characters of its text: 2,000 references with short abstracts have about as many.
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
MAX_CHARACTERS: Final = 2 * 1024 * 1024
#: Lines of the text: paragraphs, those in the cells of tables too. A book of 500 pages has about 10,000.
_MAX_LINES: Final = 100_000
#: Unpacked bytes of the parts that are read. A book of 500 pages has about 4 MB.
MAX_UNPACKED_BYTES: Final = 16 * 1024 * 1024
#: Unpacked bytes for each byte that was sent, and those of a small document. Documents have up to about 20.
_MAX_RATIO: Final = 100
_SMALL_BYTES: Final = 1024 * 1024
#: Bytes of a tag or a comment. expat reads an unfinished one again with each block, and one of 128 KiB takes 15 ms.
_MAX_TOKEN_BYTES: Final = 131_072
#: Characters of a namespace. expat and Python copy it for each element: one of 100,000 made a form of 2 kB take 24 s of
#: processor time. Those of documents have about 80.
_MAX_NAMESPACE_CHARACTERS: Final = 256
#: Elements in each other. A document has about 30; 5 million took 620 MB.
_MAX_DEPTH: Final = 1_000
#: Bytes of the directory: about 700 files. A document has about 20.
_MAX_DIRECTORY_BYTES: Final = 65_536
#: Bytes that are parsed in one turn of the event loop. 16 KiB of the shortest elements took 3 ms.
_BLOCK_BYTES: Final = 16_384
_PARTS: Final = ("document.xml", "footnotes.xml", "endnotes.xml")
#: The folder of a spreadsheet (ECMA-376, part 1, section 12).
_SPREADSHEET: Final = "xl/workbook.xml"
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_WORD: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_STRICT: Final = "http://purl.oclc.org/ooxml/wordprocessingml/main"
#: The relationships of a part, of which a hyperlink names one by its attribute "id" (ECMA-376, part 2, section 9.3).
_RELATIONSHIP: Final = "http://schemas.openxmlformats.org/package/2006/relationships Relationship"
_ID: Final = re.compile(r"http://\S+/relationships id")
#: Links to names of one part that are read, and the characters of each. A book has about a thousand.
_MAX_LINKS: Final = 5_000
_MAX_LINK_CHARACTERS: Final = 2_048
#: The address of a field that is a link (ECMA-376, part 1, section 17.16.5.25).
_FIELD_LINK: Final = re.compile(r'\s*HYPERLINK\s+"([^"]{1,2048})"', re.IGNORECASE)
#: Characters of the code of a field that are read. That of a citation manager has a whole reference.
_MAX_CODE_CHARACTERS: Final = 4_096
#: What elements other than text stand for.
_BLANKS: Final = {"tab": "\t", "br": "\v", "cr": "\v", "noBreakHyphen": "-"}
#: The end of the directory, and of a directory of ZIP64 before it (APPNOTE 6.3.10, 4.3.15 and 4.3.16).
_END: Final = struct.Struct("<4s4H2LH")
_END64_BYTES: Final = 20


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
    if data[-_END.size - _END64_BYTES :].startswith(b"PK\x06\x07") or _END.unpack(end)[5] > _MAX_DIRECTORY_BYTES:
        raise _unreadable("it has too many parts")


async def read_parts(archive: zipfile.ZipFile, text: DocumentText, size: int, hold_turn: HoldTurn) -> None:
    """Read the parts of a document of `size` bytes that have text. Raises UnreadableDocument. See read_docx."""
    names = frozenset(archive.namelist())
    if f"word/{_PARTS[0]}" not in names:
        is_spreadsheet = _SPREADSHEET in names
        raise UnreadableDocument(f"it has no word/{_PARTS[0]}", is_spreadsheet=is_spreadsheet)
    unpacked = _Unpacked(archive, min(MAX_UNPACKED_BYTES, max(_SMALL_BYTES, _MAX_RATIO * size)), hold_turn)
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
        if self._archive.getinfo(name).compress_type not in _METHODS:
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
                    if parsed - parser.CurrentByteIndex >= _MAX_TOKEN_BYTES:
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
        if name == _RELATIONSHIP and "10." in target and len(target) <= _MAX_LINK_CHARACTERS:
            if len(self.links) >= _MAX_LINKS:
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
        elif self._is_code and len(self._code) < _MAX_CODE_CHARACTERS:
            self._code += text

    def add(self, text: str) -> None:
        """Add a piece. Raises UnreadableDocument."""
        self.characters += len(text)
        if self.characters > self._max_characters:
            raise _unreadable("its text is too long")
        self._lines += text.count("\n")
        if self._lines > _MAX_LINES:
            raise _unreadable("it has too many paragraphs")
        self.pieces.append(text)

    def _check_namespace(self, prefix: str | None, namespace: str | None) -> None:
        """Refuse a long namespace before an element has it."""
        if len(namespace or "") > _MAX_NAMESPACE_CHARACTERS:
            raise _unreadable("it has a namespace that is too long")

    def _refuse(self, *_: object) -> None:
        raise _unreadable("it has a document type declaration")


def _attribute(attributes: dict[str, str], name: str) -> str:
    return next((value for key, value in attributes.items() if key.rpartition(" ")[2] == name), "")


def _local(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return local if namespace in (_WORD, _STRICT) else ""


def _unreadable(reason: str) -> UnreadableDocument:
    return UnreadableDocument(reason)
