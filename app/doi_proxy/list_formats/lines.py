"""The items of a list, and the lines that most lists consist of.

A line ends with LF or CR LF. The last one may have no end. A byte order mark is removed (RFC 3629, section 6).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from functools import cache
from typing import Final, Protocol

import msgspec

from doi_names.find_names import FoundName
from doi_proxy.errors import UnreadableList
from doi_proxy.system.files import Gunzip, GzipLimits

_MARK_BYTES: Final = 2


class Utf8Stream:
    """Turns UTF-16 into UTF-8. The bytes of any other encoding stay as they are. A mark is removed."""

    def __init__(self) -> None:
        self._first = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_known = False

    def feed(self, data: bytes) -> bytes:
        """The next bytes. The first ones wait until the encoding is known."""
        if not self._is_known:
            self._first += data
            if len(self._first) < _MARK_BYTES:
                return b""
            data = self._begin()
        return data if self._decoder is None else self._decoder.decode(data).encode("utf-8", "replace")

    def end(self) -> bytes:
        """The last bytes."""
        data = b"" if self._is_known else self._begin()
        if self._decoder is None:
            return data
        return self._decoder.decode(data, final=True).encode("utf-8", "replace")

    def _begin(self) -> bytes:
        self._is_known = True
        mark = self._first[:_MARK_BYTES]
        name = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(mark)
        if name is not None:
            self._first = self._first[_MARK_BYTES:]
        elif mark.count(0) == 1:
            # Without a mark: the first character of a list is ASCII.
            name = "utf-16-be" if mark[0] == 0 else "utf-16-le"
        if name is not None:
            self._decoder = codecs.getincrementaldecoder(name)("replace")
        return self._first


def decode_bytes(data: bytes) -> tuple[str, bool]:
    """A text, and whether it is UTF-8. Each byte that is not is read as Windows-1252."""
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", windows_1252_errors()), False


def open_decoder() -> codecs.IncrementalDecoder:
    """A decoder of a text in pieces, which reads bytes as `decode_bytes` does. A byte order mark is left out."""
    return codecs.getincrementaldecoder("utf-8-sig")(windows_1252_errors())


@cache
def windows_1252_errors() -> str:
    """The name of the error handler that reads a byte as Windows-1252: one character for each byte."""
    name = "doi-proxy-windows-1252"
    codecs.register_error(name, _read_bytes)
    return name


def _read_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    # Windows-1252 leaves five bytes undefined.
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


#: Characters of an unreadable item in its row.
MAX_EXCERPT: Final = 200
#: The longest line, CSV record or JSON value of a list, in bytes.
MAX_LINE_BYTES: Final = 65_536

#: Bytes of a list that are read at a time. Its reader takes them in one turn of the event loop.
BLOCK_BYTES: Final = 2_048

BOM: Final = b"\xef\xbb\xbf"
#: What a row can repeat of its item.
Scalar = str | int | float | bool | None
#: What a reference says about its work, by the tags of RIS, and the names of fields, columns and members that say it.
CITED: Final = {
    "TI": ("title", "titles", "article title", "document title"),
    "ST": ("subtitle",),
    "AU": ("author", "authors", "creators", "creator", "collaboration"),
    "ED": ("editor", "editors"),
    "PY": ("year", "date", "issued", "publication year", "publicationyear", "published", "publication_year"),
    "T2": ("journal", "journaltitle", "booktitle", "container-title", "publication title", "publicationtitle",
           "source title", "howpublished"),
    "PB": ("publisher", "school", "institution"),
    "VL": ("volume",),
    "IS": ("number", "issue"),
    "SP": ("pages", "page", "eid", "articleno", "article-number", "page start", "start page"),
}  # fmt: skip
#: The member with a reference as running text, as Crossref has it.
UNSTRUCTURED: Final = "unstructured"
TAG_OF: Final = {name: tag for tag, names in CITED.items() for name in names}
_MAX_CITED: Final = 1_024
#: The beginning of a name, and that of a second one after a separator or a label.
_PREFIX: Final = re.compile(r"10\.[0-9]{4,9}/", re.ASCII)
_NEXT_NAME: Final = re.compile(r"(?:[\s,;|<>\"']|doi\.org/|doi:)\s{0,8}10\.[0-9]{4,9}/", re.ASCII | re.IGNORECASE)
#: The reason of an item without anything that looks like a DOI.
NO_DOI: Final = "no-doi"
WITHOUT_DOI: Final = "This entry has no DOI."
#: Characters of an entry that its items keep.
MAX_ENTRY_CHARACTERS: Final = 4_096


class ListItem(msgspec.Struct, frozen=True, gc=False):
    """The text of one item, and the number of its line, from 1; of a JSON array, the number of the item.

    `line` is 0 outside a list. `key` is the entry's own: the citation key of BibTeX, the number of a RIS reference.
    `echo` is a member or a cell that the row repeats. `entry` is the reference, "" if nothing compares it. `found` is
    the name in the text, if the text was searched for it. `note` is what a reader of the row should know about both.
    """

    text: str
    line: int = 0
    key: str | None = None
    echo: Scalar = None
    entry: str = ""
    found: FoundName | None = None
    note: str | None = None


class UnreadableItem(msgspec.Struct, frozen=True, gc=False):
    """An item whose text cannot be read: its beginning, its place, and the reason as a sentence and as a token."""

    text: str
    line: int
    message: str
    key: str | None = None
    echo: Scalar = None
    reason: str | None = None
    #: Names that follow from an entry by rule. None of them is known to be registered.
    derived: tuple[FoundName, ...] = ()


Item = ListItem | UnreadableItem


class SearchedField(msgspec.Struct, frozen=True, gc=False):
    """A field that is searched. Names in one that `is_distant`, such as an abstract, are mostly of other works."""

    name: str
    text: str
    line: int
    is_distant: bool = False


class SearchedEntry(msgspec.Struct, frozen=True, gc=False):
    """Fields that are searched for names, and what stands for them if there is none.

    If it `is_field`, it is one field of names that can have several. `note` is what a row of its names says too.
    """

    fields: tuple[SearchedField, ...]
    without: Item | None
    key: str | None = None
    echo: Scalar = None
    entry: str = ""
    is_field: bool = False
    note: str = ""


#: What a reader returns.
ReadItem = ListItem | UnreadableItem | SearchedEntry


def divide(item: ListItem, field: str = "") -> ReadItem:
    """The item; to be searched if its text can have more than one name."""
    # A long list has one name in nearly every line.
    if item.text.count("10.") < 2:
        return item
    first = _PREFIX.search(item.text)
    if first is None or _NEXT_NAME.search(item.text, first.end()) is None:
        return item
    return SearchedEntry(
        (SearchedField(field, item.text, item.line),), item, item.key, item.echo, item.entry, is_field=True
    )


class ListReader(Protocol):
    """Reads a list in pieces. The borders of the pieces do not matter."""

    #: Whether items have the reference that they are a part of.
    keeps_entries: bool

    @property
    def column(self) -> str:
        """The column of a table that is read, as people name it. "" in other formats, and before the first record."""

    @property
    def lines(self) -> int:
        """The lines that have ended. 0 for a format without lines."""

    def feed(self, data: bytes) -> list[ReadItem]:
        """The items that end in this piece. Raises UnreadableList."""

    def end(self) -> list[ReadItem]:
        """The items at the end of the list. Raises UnreadableList. The reader is not used afterwards."""


def excerpt(data: bytes) -> str:
    """The beginning of an item as text."""
    return data[:MAX_EXCERPT].decode("utf-8", "replace")


# `gc=False`: the garbage collector does not count lines. Those of a list started full collections, of up to 92 ms.
class Line(msgspec.Struct, frozen=True, gc=False):
    """A line without its end. If `is_cut`, it was longer than the limit, and `data` is its beginning."""

    number: int
    data: bytes
    is_cut: bool = False


class LineCutter:
    """Cuts pieces of bytes into lines of at most `max_bytes`. A longer line is cut, and its rest is dropped."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        #: The number of the last line.
        self.number = 0
        #: Whether the rest of a line that is too long is being dropped.
        self._drops = False

    def feed(self, data: bytes) -> list[Line]:
        """The lines that end in this piece."""
        first, *others = data.split(b"\n")
        if not others:
            self._keep(first)
            return []
        lines = self._finish(first)
        lines += [self._line(line) for line in others[:-1]]
        self._rest = b""
        self._keep(others[-1])
        return lines

    def skip_empty(self, data: bytes) -> bytes:
        """Count the empty lines at the beginning of a piece. Returns the rest of it."""
        if self._rest or self._drops:
            return data
        end = data.rfind(b"\n", 0, len(data) - len(data.lstrip(b"\r\n"))) + 1
        self.number += data.count(b"\n", 0, end)
        return data[end:]

    def end(self) -> list[Line]:
        """The last line, if it has no end."""
        return self._finish(b"") if self._rest else []

    def _keep(self, data: bytes) -> None:
        if not self._drops:
            # One more byte than the limit shows that the line is too long. CR may be another one.
            room = self._max_bytes + 2 - len(self._rest)
            self._rest += data[:room]
            self._drops = len(data) > room

    def _finish(self, data: bytes) -> list[Line]:
        self._keep(data)
        line = self._line(self._rest)
        self._rest, self._drops = b"", False
        return [line]

    def _line(self, data: bytes) -> Line:
        self.number += 1
        if self.number == 1:
            data = data.removeprefix(BOM)
        data = data.removesuffix(b"\r")
        return Line(self.number, data[: self._max_bytes], len(data) > self._max_bytes)


def decode_line(line: Line, max_bytes: int) -> str | UnreadableItem:
    """The text of a line, or the reason why it has none."""
    if line.is_cut:
        message = f"Line {line.number} is longer than {max_bytes} bytes; shorten it."
        return UnreadableItem(excerpt(line.data), line.number, message)
    return decode_bytes(line.data)[0]


def note_encoding(text: str, line: Line) -> str | None:
    """What a row says about a text of a line that is not UTF-8. ASCII is the same in each encoding."""
    if text.isascii() or decode_bytes(line.data)[1]:
        return None
    return f"Line {line.number} is not UTF-8; it was read as Windows-1252."


class LineReader:
    """Reads a list by its lines."""

    def __init__(self, max_line_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        """`column` and `echo` are columns of CSV, or members of JSON objects. Other formats have none."""
        self._max_line_bytes = max_line_bytes
        self._wanted = column
        self._echo = echo
        self._lines = LineCutter(max_line_bytes)
        self.keeps_entries = False
        self.column = ""

    @property
    def lines(self) -> int:
        """See ListReader."""
        return self._lines.number

    def feed(self, data: bytes) -> list[ReadItem]:
        """See ListReader."""
        return self._check(self._lines.feed(data))

    def end(self) -> list[ReadItem]:
        """See ListReader."""
        return self._check(self._lines.end()) + self._finish()

    def _check(self, lines: list[Line]) -> list[ReadItem]:
        # A spreadsheet or a document (APPNOTE 6.3.10, section 4.3.7).
        if lines and lines[0].number == 1 and lines[0].data.startswith(b"PK\x03\x04"):
            raise UnreadableList(
                "The list is a ZIP archive, such as .xlsx or .docx; save it as CSV, or as plain text. `resolve` reads "
                "a document that has the name or the media type of a .docx file."
            )
        return self._read(lines)

    def _read(self, read: list[Line]) -> list[ReadItem]:
        """The items of these lines."""
        raise NotImplementedError

    def _finish(self) -> list[ReadItem]:
        """The items of what is still open at the end. Raises UnreadableList."""
        return []


class LinesReader(LineReader):
    """Reads a list with one name a line. Empty lines and comments, which begin with "#", are not items."""

    def feed(self, data: bytes) -> list[ReadItem]:
        """See ListReader."""
        return super().feed(self._lines.skip_empty(data))

    def _read(self, read: list[Line]) -> list[ReadItem]:
        items: list[ReadItem] = []
        for line in read:
            if not line.data:
                continue
            text = decode_line(line, self._max_line_bytes)
            if isinstance(text, UnreadableItem):
                items.append(text)
            elif text.strip() and (item := self._read_line(line, text)) is not None:
                items.append(item)
        return items

    def _read_line(self, line: Line, text: str) -> ReadItem | None:
        """The item of a line that is not empty. None for a comment."""
        # Begins a comment in a list of lines. No DOI name begins with it.
        if text.lstrip().startswith("#"):
            return None
        return divide(ListItem(text, line.number, note=None if text.isascii() else note_encoding(text, line)))


def write_ris_entry(cited: Iterable[tuple[str, object]]) -> str:
    """A reference in the form of RIS, of names of CITED with their values. Without one, the reference is ""."""
    lines = [
        f"{tag}  - {text}"
        for name, value in cited
        if (tag := TAG_OF.get(name.casefold())) and (text := " ".join(_read_words(value))[:_MAX_CITED])
    ]
    return "\n".join(["TY  - GEN", *lines]) if lines else ""


def write_members(entry: str) -> dict[str, list[str] | str]:
    """A reference as members of a JSON object, which `read_json_item` reads again."""
    if not entry.startswith("TY  - "):
        return {UNSTRUCTURED: entry}
    found: dict[str, list[str] | str] = {}
    for line in entry.splitlines()[1:]:
        tag, _, value = line.partition("  - ")
        if tag in CITED:
            found.setdefault(CITED[tag][0], []).append(value)  # type: ignore[union-attr]
    return found


def _read_words(value: object, depth: int = 0) -> list[str]:
    """The words of a string, a number, a date of CSL, or a list of authors as CSL JSON, DataCite or Zotero has it."""
    if isinstance(value, dict):
        members = ("family", "lastName", "literal", "name", "title", "date-parts", "raw")
        value = next((value[member] for member in members if value.get(member)), None)
    if isinstance(value, list):
        # Four brackets are those of the date of an item.
        return [] if depth > 2 else [word for item in value[:50] for word in (*_read_words(item, depth + 1), ";")][:-1]
    return str(value)[:_MAX_CITED].split() if isinstance(value, (str, int)) else []


def open_gunzip(max_ratio: float) -> Gunzip:
    """The decompressor of a list. It raises UnreadableList."""
    return Gunzip(GzipLimits(ratio=max_ratio, piece_bytes=BLOCK_BYTES), lambda reason: UnreadableList(f"The {reason}."))
