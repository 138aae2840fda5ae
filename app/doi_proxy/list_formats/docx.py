"""The text of a .docx file (ECMA-376): the paragraphs of the document, its footnotes and its endnotes, and the
addresses of their links.

The archive is read from memory. Its directory, the unpacked bytes, the depth of elements, each tag and the text are
bounded, and a document type declaration is refused, so an entity cannot be declared.
"""

from __future__ import annotations

import asyncio
import io
import re
import struct
import zipfile
import zlib
from typing import Final
from xml.parsers import expat

from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats.fair_lock import HoldTurn
from doi_proxy.list_formats.reference_list import NOTES

#: Bytes of a document, and characters of its text: 2,000 references with short abstracts have about as many.
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
MAX_CHARACTERS: Final = 2 * 1024 * 1024
#: Bytes that are parsed in one turn of the event loop. 16 KiB of the shortest elements took 3 ms.
_BLOCK_BYTES: Final = 16_384
_NAMESPACES: Final = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
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
    # The directory that `zipfile` will read is small.
    end = data[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\x05\x06") or end[-2:] != b"\0\0":
        raise UnreadableDocument("it is not a ZIP archive, or not a whole one")
    # Bytes of the directory: about 700 files. A document has about 20.
    if data[-_END.size - 20 :].startswith(b"PK\x06\x07") or _END.unpack(end)[5] > 65_536:
        raise UnreadableDocument("it has too many parts")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = DocumentText(len(data))
            await text.read(archive, hold_turn)
            return "".join(text.pieces)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise UnreadableDocument("it is damaged, or encrypted") from error
    except LookupError as error:
        raise UnreadableDocument("its encoding is not known") from error
    except expat.ExpatError as error:
        raise UnreadableDocument("its XML is not well-formed") from error


class DocumentText:
    """Collects the text of WordprocessingML. The address of a link follows its text, if only the address has a name."""

    def __init__(self, size: int) -> None:
        """`size` is that of the document, in bytes."""
        self.pieces: list[str] = []
        #: The characters of the pieces.
        self.characters = 0
        self._lines = 0
        # Unpacked bytes of the parts that are read. A book of 500 pages has about 4 MB, and a document up to 20 times
        # the bytes that were sent.
        self._room = min(16 * 1024 * 1024, max(1024 * 1024, 100 * size))
        #: What is being read, with the prefix of its elements.
        self.part = self._prefix = ""
        self.parser = expat.ParserCreate()
        #: The addresses of the part's links by their identifiers, and that of the link being read with its first piece.
        self._links: dict[str, str] = {}
        self._link: tuple[str, int] | None = None
        self._is_text = self._is_code = False
        #: The code of the field that is being read.
        self._code = ""
        self._depth = 0

    async def read(self, archive: zipfile.ZipFile, hold_turn: HoldTurn) -> None:
        """Read the parts of a document that have text. Raises UnreadableDocument. See read_docx."""
        names = frozenset(archive.namelist())
        if "word/document.xml" not in names:
            # The folder of a spreadsheet (ECMA-376, part 1, section 12).
            is_spreadsheet = "xl/workbook.xml" in names
            raise UnreadableDocument("it has no word/document.xml", is_spreadsheet=is_spreadsheet)
        for name in ("document.xml", "footnotes.xml", "endnotes.xml"):
            self._links = {}
            if f"word/{name}" in names and name != "document.xml" and NOTES not in self.pieces:
                self._add(NOTES)
            for part in (f"word/_rels/{name}.rels", f"word/{name}"):
                if part in names:
                    await self._parse(archive, part, hold_turn)

    async def _parse(self, archive: zipfile.ZipFile, part: str, hold_turn: HoldTurn) -> None:
        """Parse a part in many turns of the event loop."""
        if archive.getinfo(part).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UnreadableDocument("it is compressed in an unusual way")
        self.part, self._prefix = part, ""
        self.parser = parser = expat.ParserCreate()
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._read
        parser.StartDoctypeDeclHandler = self._refuse
        parsed = 0
        with archive.open(part) as file:
            while block := file.read(_BLOCK_BYTES):
                async with hold_turn():
                    self._room -= len(block)
                    if self._room < 0:
                        raise UnreadableDocument("it is too large when it is unpacked")
                    parser.Parse(block, False)
                    parsed += len(block)
                    # Bytes of a tag or a comment. expat reads an unfinished one again with each block, and one of 128
                    # KiB takes 15 ms.
                    if parsed - parser.CurrentByteIndex >= 131_072:
                        raise UnreadableDocument("it has a tag or a comment that is too long")
                    await asyncio.sleep(0)
        parser.Parse(b"", True)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        # Elements in each other. A document has about 30; 5 million took 620 MB.
        if self._depth > 1_000:
            raise UnreadableDocument("its elements are nested too deeply")
        if self._depth == 1:
            # Prefixes are not looked up for each element: the whole document has that of its root.
            spaces = (key for key, value in attributes.items() if key.startswith("xmlns") and value in _NAMESPACES)
            space = next(spaces, None)
            self._prefix = "?" if space is None else space.removeprefix("xmlns").removeprefix(":")
        if self.part.endswith(".rels"):
            self._read_relationship(name, attributes)
            return
        local = self._local(name)
        if local == "hyperlink":
            # It names a relationship of its part by its attribute "id" (ECMA-376, part 2, section 9.3).
            names = (value for key, value in attributes.items() if key.endswith(":id"))
            target = next((self._links[value] for value in names if value in self._links), None)
            self._link = None if target is None else (target, len(self.pieces))
        elif local == "fldSimple":
            self._open_field(_attribute(attributes, "instr"))
        elif local == "fldChar":
            self._pass_field(_attribute(attributes, "fldCharType"))
        self._is_text, self._is_code = local == "t", local == "instrText"
        if local in _BLANKS:
            self._add(_BLANKS[local])

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._is_text = self._is_code = False
        local = self._local(name)
        if local in ("hyperlink", "fldSimple"):
            self._close_link()
        if local == "p":
            self._add("\n")

    def _local(self, name: str) -> str:
        """The name of an element of WordprocessingML, and "" of any other."""
        prefix, _, local = name.rpartition(":")
        return local if prefix == self._prefix else ""

    def _read_relationship(self, name: str, attributes: dict[str, str]) -> None:
        target = attributes.get("Target", "")
        if name.rpartition(":")[2] == "Relationship" and "10." in target and len(target) <= 2_048:
            # Links to names of one part that are read, and the characters of each. A book has about a thousand.
            if len(self._links) >= 5_000:
                raise UnreadableDocument("it has too many links")
            self._links[attributes.get("Id", "")] = target

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
            self._add(f" {target} ")

    def _read(self, text: str) -> None:
        if self._is_text:
            self._add(text)
        elif self._is_code and len(self._code) < 4_096:
            # Characters of the code of a field that are read. That of a citation manager has a whole reference.
            self._code += text

    def _add(self, text: str) -> None:
        self.characters += len(text)
        if self.characters > MAX_CHARACTERS:
            raise UnreadableDocument("its text is too long")
        self._lines += text.count("\n")
        # Lines of the text: paragraphs, those in the cells of tables too. A book of 500 pages has about 10,000.
        if self._lines > 100_000:
            raise UnreadableDocument("it has too many paragraphs")
        self.pieces.append(text)

    def _refuse(self, *_: object) -> None:
        raise UnreadableDocument("it has a document type declaration")


def _attribute(attributes: dict[str, str], name: str) -> str:
    return next((value for key, value in attributes.items() if key.rpartition(":")[2] == name), "")
