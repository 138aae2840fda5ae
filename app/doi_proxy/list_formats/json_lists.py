"""Reads names from JSON: an array, one value a line (NDJSON), or an object with an array, as services return it.

A value is a string, or an object: CSL JSON, a work of Crossref, DataCite, OpenAlex or Zotero, or any other. Its name is
in a member "doi". An object without one is searched.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec

from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats import lines

#: The column that is read if none is named, in any letter case.
DOI_COLUMN: Final = "doi"
#: Else the first whose name has this word, or is the tag of Web of Science: "DOI Link", "Article DOI", "DI".
_DOI_WORD: Final = re.compile(r"(?:^|.*[^a-z])doi(?:[^a-z]|$)|di$", re.IGNORECASE | re.ASCII | re.DOTALL)
_SEPARATOR_LINE: Final = re.compile(r"sep=(.)\s*", re.IGNORECASE)
#: The beginning of a DOI name in a cell, also in a URL that escapes its slash.
_NAME: Final = re.compile(r"10\.[0-9]{4,9}[0-9.]{0,40}(?:/|%2f)", re.IGNORECASE | re.ASCII)
#: A text inside a formula: ="10.1000/182", =HYPERLINK("https://doi.org/10.1000/182";"10.1000/182").
_FORMULA_TEXT: Final = re.compile(r'"([^"]*)"')
_MESSAGE_CHARACTERS: Final = 40
_LONE_RETURN: Final = "it has a carriage return without a line feed; save the list with line ends of Windows or Unix"


class ColumnReader(lines.LineReader):
    """Reads one column. Each record is an item. Empty lines are not records.

    A record whose cell is empty is searched, as is every record of a table without such a column.
    """

    def __init__(self, max_line_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        """`max_line_bytes` is the limit of a record too. A column is compared exactly, then in any case."""
        super().__init__(max_line_bytes, column, echo)
        self._separator = ""
        self._index = self._echo_index = -1
        #: The names of the columns. Empty before the first record.
        self._names: list[str] = []
        #: What the first row says, and what each row of a table says of which no column has the names.
        self._note: str | None = None
        self._search_note = ""
        self._line = lines.Line(0, b"")
        self._title = 0
        #: The lines of a record with an open quote, its first line, and its characters.
        self._open: list[str] = []
        self._opened_at = 0
        self._size = 0

    def feed(self, data: bytes) -> list[lines.ReadItem]:
        """See ListReader."""
        # Inside quotes, an empty line belongs to its field.
        return super().feed(data if self._open else self._lines.skip_empty(data))

    def _finish(self) -> list[lines.ReadItem]:
        if self._open:
            raise self._unclosed()
        return []

    def _read(self, read: list[lines.Line]) -> list[lines.ReadItem]:
        items: list[lines.ReadItem] = []
        for line in read:
            text = lines.decode_line(line, self._max_line_bytes)
            self._line = line
            if isinstance(text, lines.UnreadableItem):
                if not self._names or self._open:
                    raise UnreadableList(text.message)
                items.append(text)
            elif (record := self._join(text, line.number)) is not None:
                items += self._take(record)
        return items

    def _join(self, text: str, number: int) -> str | None:
        """The whole record that ends with this line; None if a quote is open, or the line is empty.

        A line break inside quotes belongs to the field (RFC 4180, section 2, rule 6). A doubled quote is two quotes.
        """
        if not self._open:
            if not text.strip():
                return None
            self._opened_at, self._size = number, 0
        is_odd = text.count('"') % 2 == 1
        if not self._open and not is_odd:
            return text
        self._open.append(text)
        self._size += len(text)
        if self._size > self._max_line_bytes:
            raise self._unclosed()
        if not is_odd or len(self._open) == 1:
            return None
        record, self._open = "\n".join(self._open), []
        return record

    def _unclosed(self) -> UnreadableList:
        return UnreadableList(
            f"Line {self._opened_at}: a quote is not closed within {self._max_line_bytes} bytes; close or double it."
        )

    def _take(self, record: str) -> list[lines.ReadItem]:
        is_head = not self._names
        if is_head and (chosen := _SEPARATOR_LINE.fullmatch(record)):
            self._separator = chosen[1]
            return []
        if is_head:
            self._separator = self._separator or max((",", ";", "\t"), key=record.count)
        try:
            cells = next(csv.reader([record], delimiter=self._separator), [])
        except csv.Error as error:
            # Python's own reason, to open the file in another mode, is not for the owner of a list.
            reason = _LONE_RETURN if "\r" in record else str(error)
            message = f"Line {self._opened_at} is not CSV: {reason}."
            if is_head:
                raise UnreadableList(message) from error
            return [lines.UnreadableItem(record[: lines.MAX_EXCERPT], self._opened_at, message)]
        if is_head and self._read_head(cells):
            return []
        item = self._read_record(cells)
        if self._note is not None and isinstance(item, lines.ListItem):
            item = msgspec.structs.replace(item, note=" ".join(filter(None, (item.note, self._note))))
            self._note = None
        return [item]

    def _read_head(self, cells: list[str]) -> bool:
        """Find the columns by the first record. Returns whether it is a heading."""
        self._names = [name.strip() for name in cells] or [""]
        folded = [name.casefold() for name in self._names]
        first = next((at for at, cell in enumerate(cells) if _NAME.search(cell)), -1)
        has_heading = self._wanted is not None or self._echo is not None or first < 0
        if not has_heading:
            self._index, self.column = first, str(first + 1)
            self._note = f"The table has no heading; its column {first + 1} was read."
            folded = self._names = [f"column {at}" for at in range(1, len(cells) + 1)]
        elif self._wanted is not None:
            self._index = self._find_column(self._wanted)
        else:
            words = (at for at, name in enumerate(self._names) if _DOI_WORD.match(name))
            self._index = folded.index(DOI_COLUMN) if DOI_COLUMN in folded else next(words, -1)
        if self._index < 0:
            self._search_note = f" Line {self._opened_at} was read as the names of the columns."
        elif has_heading:
            self.column = f"\N{LEFT DOUBLE QUOTATION MARK}{self._name(self._index)}\N{RIGHT DOUBLE QUOTATION MARK}"
        self._echo_index = -1 if self._echo is None else self._find_column(self._echo)
        self._title = folded.index("title") if "title" in folded else len(cells)
        return has_heading

    def _read_record(self, cells: list[str]) -> lines.ReadItem:
        line = self._opened_at
        echo = cells[self._echo_index][: lines.MAX_EXCERPT] if 0 <= self._echo_index < len(cells) else None
        entry = lines.write_ris_entry(zip(self._names, cells, strict=False)) if self.keeps_entries else ""
        text = _find_cell(cells, self._index) if self._index >= 0 else ""
        if text.strip() or self._wanted is not None:
            return lines.divide(
                lines.ListItem(_read_cell(text), line, None, echo, entry, note=lines.note_encoding(text, self._line))
            )
        shown = _find_cell(cells, self._title) or " ".join(cell for cell in cells if cell.strip())
        without = lines.UnreadableItem(shown[: lines.MAX_EXCERPT], line, lines.WITHOUT_DOI, None, echo, lines.NO_DOI)
        fields = [lines.SearchedField(self._name(at), cell, line) for at, cell in enumerate(cells) if cell.strip()]
        return lines.SearchedEntry(tuple(fields), without, None, echo, entry, note=self._search_note)

    def _name(self, at: int) -> str:
        return self._names[at][:_MESSAGE_CHARACTERS] if at < len(self._names) else f"column {at + 1}"

    def _find_column(self, wanted: str) -> int:
        if wanted in self._names:
            return self._names.index(wanted)
        folded = [name.casefold() for name in self._names]
        if wanted.casefold() in folded:
            return folded.index(wanted.casefold())
        # Column names in a message, and characters of each.
        found = ", ".join(repr(name[:_MESSAGE_CHARACTERS]) for name in self._names[:10])
        raise UnreadableList(f"Line {self._opened_at} has no column {wanted!r}; name one of its columns: {found}.")


def _read_cell(text: str) -> str:
    """The text of a cell that a spreadsheet wrote as a formula, or as a text after an apostrophe."""
    bare = text.lstrip()
    if bare.startswith("'"):
        return bare[1:]
    if not bare.startswith("="):
        return text
    texts = _FORMULA_TEXT.findall(bare)
    # The last one of a link is what its cell shows. An address that shows "link" has the DOI itself.
    return next((found for found in reversed(texts) if _NAME.search(found)), texts[0] if texts else text)


def _find_cell(cells: list[str], index: int) -> str:
    """The cell of a column. A record can be shorter than the first."""
    return cells[index] if index < len(cells) else ""


#: Brackets that may be open inside one value. Deeper values are refused before they are parsed.
MAX_DEPTH: Final = 32
#: The bytes that decide where a value ends, outside and inside strings (RFC 8259, sections 4, 5 and 7).
_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_INSIDE: Final = re.compile(rb'["\\]')
_BLANKS: Final = b" \t\r\n"
#: Bytes at the beginning of an object in which its array is searched.
_MAX_HEAD_BYTES: Final = 65_536
#: The members that hold the works of an answer: of Crossref, DataCite, OpenAlex, Scopus, Springer Nature, Europe PMC,
#: Solr, Elasticsearch and Better BibTeX. Each is at most in one other object.
_LISTS: Final = frozenset({b"items", b"data", b"results", b"result", b"records", b"entry", b"docs", b"hits", b"works"})
_TOKEN: Final = re.compile(
    rb'"((?:[^"\\]|\\.){0,64}+)"(?:\s{0,32}:\s{0,32}(\[)?)?|"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL
)
#: Where services keep the identifiers of a work, besides the work itself.
_RECORDS: Final = ("attributes", "data", "message", "externalIds", "ids", "item", "_source")
#: Members with texts about other works, and with the names of works that are cited.
_DISTANT: Final = frozenset(
    {
        "abstract", "reference", "references", "relation", "relations", "relationships", "relatedidentifiers",
        "related_identifiers", "cited-by", "citations", "referenced_works", "related_works", "update-to",
    }
)  # fmt: skip
#: Everything before the first escape of a surrogate without its other half, and that escape (RFC 8259, section 7).
_LONE_SURROGATE: Final = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\(?!u[dD][89a-fA-F]).)*+(\\u[dD][89a-fA-F]..)", re.DOTALL
)


class JsonLinesReader(lines.LinesReader):
    """Reads one JSON value a line. Empty lines are not items. A line that is not JSON is an unreadable item."""

    def _read_line(self, line: lines.Line, text: str) -> lines.ReadItem:
        return read_json_item(
            line.data, line.number, "Line", (self._wanted, self._echo), keeps_entry=self.keeps_entries
        )


class JsonListReader:
    """Reads an array, value by value, also one inside an object. The values of one array need not be of one kind."""

    column = ""

    def __init__(self, max_item_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        self.keeps_entries, self.lines = False, 0
        self._max_item_bytes = max_item_bytes
        self._members = column, echo
        self._rest = b""
        #: Where the scan of `_rest` continues, the number of open brackets, and whether it is inside a string.
        self._at, self._depth, self._in_string = 0, 0, False
        self._number = 0
        self._is_open = self._is_closed = False
        #: Whether the list is an object, and the bytes of it after which its array is searched again.
        self._is_object = False
        self._next_search = 1_024

    def feed(self, data: bytes) -> list[lines.ReadItem]:
        """See ListReader."""
        self._rest += data
        if not self._is_open and not self._open():
            return []
        items: list[lines.ReadItem] = []
        start = 0
        while not self._is_closed and (end := self._find_end()) is not None:
            self._close_value(self._rest[start:end], self._rest[end : end + 1], items)
            start = end + 1
        self._rest, self._at = self._rest[start:], self._at - start
        if self._is_closed:
            if self._rest.strip(_BLANKS) and not self._is_object:
                raise UnreadableList("There is text after the array; send one array.")
            self._rest = b""
        if len(self._rest) > self._max_item_bytes:
            raise self._too_long(self._number + 1)
        return items

    def end(self) -> list[lines.ReadItem]:
        """See ListReader."""
        if self._is_object and not self._is_open:
            return self._end_object()
        if not self._is_closed:
            raise UnreadableList("The array is not complete: its closing bracket is missing.")
        return []

    def _open(self) -> bool:
        """Remove the bracket that opens the array. Returns False if it has not arrived."""
        if lines.BOM.startswith(self._rest):
            return False
        if self._is_object:
            return self._open_object()
        body = self._rest.removeprefix(lines.BOM).lstrip(_BLANKS)
        if not body:
            self._rest = b" "
            return False
        self._rest = body
        if body.startswith(b"{"):
            self._is_object = True
            return self._open_object()
        if not body.startswith(b"["):
            raise UnreadableList("The list is not JSON; send an array or an object, or set the media type of the list.")
        self._rest, self._is_open, self._depth = body[1:], True, 1
        return True

    def _open_object(self) -> bool:
        """Remove what is before the array of an object. Returns False if there is none so far."""
        size = len(self._rest)
        if size > self._max_item_bytes:
            raise self._too_long(1)
        if size < self._next_search or self._next_search > _MAX_HEAD_BYTES:
            return False
        # The head is searched again whenever it is twice as long: at the same lengths, however it is cut.
        found = None
        while found is None and self._next_search <= min(size, _MAX_HEAD_BYTES):
            found = _find_list(self._rest[: self._next_search])
            self._next_search *= 2
        if found is None:
            return False
        self._rest, self._is_open, self._depth = self._rest[found:], True, 1
        return True

    def _end_object(self) -> list[lines.ReadItem]:
        """The items of an object that was not opened: it is short, or it is one work."""
        if len(self._rest) <= _MAX_HEAD_BYTES and (found := _find_list(self._rest)) is not None:
            self._rest, self._is_open, self._depth = self._rest[found:], True, 1
            items = self.feed(b"")
            if not self._is_closed:
                raise UnreadableList("The array is not complete: its closing bracket is missing.")
            return items
        item = read_json_item(self._rest, 1, "Item", self._members, keeps_entry=self.keeps_entries)
        if isinstance(item, lines.UnreadableItem) and item.reason != lines.NO_DOI:
            raise UnreadableList(item.message)
        return [item]

    def _find_end(self) -> int | None:
        """The index of the comma or the bracket after a value. None if it has not arrived."""
        while self._skip_string():
            found = _OUTSIDE.search(self._rest, self._at)
            if found is None:
                self._at = len(self._rest)
                return None
            character, self._at = found[0], found.end()
            if character == b'"':
                self._in_string = True
            elif character in b"[{":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise UnreadableList(f"Item {self._number + 1} has more than {MAX_DEPTH} open brackets.")
            elif self._depth == 1:
                return found.start()
            elif character in b"]}":
                self._depth -= 1
        return None

    def _skip_string(self) -> bool:
        """Go on to the end of a string. Returns False if its end has not arrived."""
        while self._in_string:
            found = _INSIDE.search(self._rest, self._at)
            if found is None:
                self._at = len(self._rest)
                return False
            if found[0] == b'"':
                self._in_string, self._at = False, found.end()
            elif found.end() == len(self._rest):
                self._at = found.start()  # the escaped character has not arrived
                return False
            else:
                self._at = found.end() + 1
        return True

    def _close_value(self, value: bytes, end: bytes, items: list[lines.ReadItem]) -> None:
        if end == b"}":
            raise UnreadableList(f"Item {self._number + 1} is not JSON: a brace is closed that is not open.")
        if end == b"]":
            self._is_closed = True
            if not value.strip(_BLANKS) and not self._number:
                return
        self._number += 1
        if len(value) > self._max_item_bytes:
            raise self._too_long(self._number)
        items.append(read_json_item(value, self._number, "Item", self._members, keeps_entry=self.keeps_entries))

    def _too_long(self, number: int) -> UnreadableList:
        return UnreadableList(f"Item {number} is longer than {self._max_item_bytes} bytes; shorten it.")


def _find_list(head: bytes) -> int | None:
    """Where the first value of an object's array begins. None if the object has none in this head."""
    depth = 0
    for token in _TOKEN.finditer(head):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif token[2]:
            if depth <= 2 and token[1].lower() in _LISTS:
                return token.end()
            depth += 1
    return None


def read_json_item(
    data: bytes, number: int, place: str, members: tuple[str | None, str | None], *, keeps_entry: bool
) -> lines.ReadItem:
    """The item of a value. The members of an object are those with the name, and with what its row repeats."""
    text, is_utf8 = lines.decode_bytes(data)
    note = None if is_utf8 else f"{place} {number} is not UTF-8; it was read as Windows-1252."
    try:
        value = msgspec.json.decode(data if is_utf8 else text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return lines.UnreadableItem(
            lines.excerpt(data), number, f"{place} {number} is not JSON: {explain_json(data, error)}."
        )
    if isinstance(value, str):
        return lines.ListItem(value, number, note=None if value.isascii() else note)
    if not isinstance(value, dict):
        return lines.UnreadableItem(lines.excerpt(data), number, f"{place} {number} is neither a string nor an object.")
    wanted, repeated = members
    echo = _read_scalar(_find_member(value, repeated)) if repeated is not None else None
    work = _find_work(value)
    entry = ""
    if keeps_entry:
        stated = value.get(lines.UNSTRUCTURED)
        entry = stated[: lines.MAX_ENTRY_CHARACTERS] if isinstance(stated, str) else lines.write_ris_entry(work.items())
    key = _find_key(value)
    name = _find_member(value, wanted) if wanted is not None else _find_name(value, work)
    if isinstance(name, str) and (name.strip() or wanted is not None):
        item = lines.ListItem(name, number, key, echo, entry, note=None if name.isascii() else note)
        return lines.divide(item)
    if wanted is not None:
        message = f"{place} {number} has no member {wanted!r} with a string."
        return lines.UnreadableItem(lines.excerpt(data), number, message, key, echo)
    title = " ".join(_list_words(_find_member(work, "title")))[: lines.MAX_EXCERPT]
    without = lines.UnreadableItem(title or lines.excerpt(data), number, lines.WITHOUT_DOI, key, echo, lines.NO_DOI)
    return lines.SearchedEntry(_list_fields(value, number), without, key, echo, entry)


def _find_work(value: dict[str, Any]) -> dict[str, Any]:
    """The object with the title of a work: the value itself, or the one inside it."""
    for name in _RECORDS:
        inner = value.get(name)
        if isinstance(inner, dict) and ("title" in inner or "titles" in inner):
            return inner
    return value


def _find_name(value: dict[str, Any], work: dict[str, Any]) -> str | None:
    """The text of the first member "doi" with one, also with a namespace: "prism:doi"."""
    insides = [inner for name in _RECORDS if isinstance(inner := value.get(name), dict)]
    for place in (value, work, *insides):
        for name, member in place.items():
            if name.rpartition(":")[2].casefold() == DOI_COLUMN:
                text = (
                    ", ".join(part for part in member if isinstance(part, str)) if isinstance(member, list) else member
                )
                if isinstance(text, str) and text.strip():
                    return text
    return None


def _find_key(value: dict[str, Any]) -> str | None:
    """The citation key or the identifier of a work."""
    for name in ("citation-key", "citekey", "id", "key"):
        key = value.get(name)
        if isinstance(key, (str, int)) and not isinstance(key, bool) and 0 < len(str(key)) <= lines.MAX_EXCERPT:
            return str(key)
    return None


def _list_fields(value: dict[str, Any], number: int) -> tuple[lines.SearchedField, ...]:
    """The texts of an object, those about other works last."""
    members = sorted(value.items(), key=lambda member: member[0].casefold() in _DISTANT)
    texts = chain.from_iterable(_list_texts(name, member) for name, member in members)
    # Texts of an object that are searched.
    fields = [
        lines.SearchedField(path, text, number, any(part.casefold() in _DISTANT for part in path.split(".")))
        for path, text in islice(texts, 200)
    ]
    return tuple(sorted(fields, key=lambda field: field.is_distant))


def _list_texts(path: str, member: object) -> Iterator[tuple[str, str]]:
    """The strings of a member, with their places. Brackets are bounded by MAX_DEPTH."""
    if isinstance(member, str):
        yield path, member
    elif isinstance(member, dict):
        for name, inner in member.items():
            yield from _list_texts(f"{path}.{name}", inner)
    elif isinstance(member, list):
        for inner in member:
            yield from _list_texts(path, inner)


def _list_words(title: object) -> list[str]:
    """The words of a title, which is a string, a list of strings, or a list of objects with one."""
    while isinstance(title, list | dict):
        title = (title[0] if title else "") if isinstance(title, list) else title.get("title", "")
    return title.split() if isinstance(title, str) else []


def _read_scalar(value: object) -> lines.Scalar:
    """What a row can repeat: the beginning of a string, a number of 64 bits, a truth value. None of anything else."""
    if isinstance(value, str):
        return value[: lines.MAX_EXCERPT]
    is_number = isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**63)
    return value if is_number else None  # type: ignore[return-value]


def explain_json(data: bytes, error: Exception) -> str:
    """Why data is not JSON. `error` comes from msgspec, which reports half a surrogate pair as truncated data."""
    lone = _LONE_SURROGATE.match(data)
    if lone is None:
        return str(error)
    return f"{lines.excerpt(lone[1])} is half a surrogate pair, not a character; send both halves"


def _find_member(value: dict[str, Any], wanted: str) -> object:
    if wanted in value:
        return value[wanted]
    return next((member for name, member in value.items() if name.casefold() == wanted.casefold()), None)
