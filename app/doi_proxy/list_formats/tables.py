"""Reads names from tables: CSV, and text that other characters separate (RFC 4180)."""

from __future__ import annotations

import csv
import re
from typing import Final

import msgspec

from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats import entries, lines

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

    def _finish(self) -> list[entries.ReadItem]:
        if self._open:
            raise self._unclosed()
        return []

    def _read(self, read: list[lines.Line]) -> list[entries.ReadItem]:
        items: list[entries.ReadItem] = []
        for line in read:
            text = lines.decode_line(line, self._max_line_bytes)
            self._line = line
            if isinstance(text, entries.UnreadableItem):
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

    def _take(self, record: str) -> list[entries.ReadItem]:
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
            return [entries.UnreadableItem(record[: entries.MAX_EXCERPT], self._opened_at, message)]
        if is_head and self._read_head(cells):
            return []
        item = self._read_record(cells)
        if self._note is not None and isinstance(item, entries.ListItem):
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

    def _read_record(self, cells: list[str]) -> entries.ReadItem:
        line = self._opened_at
        echo = cells[self._echo_index][: entries.MAX_EXCERPT] if 0 <= self._echo_index < len(cells) else None
        entry = entries.write_ris_entry(zip(self._names, cells, strict=False)) if self.keeps_entries else ""
        text = _find_cell(cells, self._index) if self._index >= 0 else ""
        if text.strip() or self._wanted is not None:
            note = lines.note_encoding(text, self._line)
            return entries.divide(entries.ListItem(_read_cell(text), line, None, echo, entry, note=note))
        fields = [entries.EntryField(self._name(at), cell, line) for at, cell in enumerate(cells) if cell.strip()]
        title = _find_cell(cells, self._title) or " ".join(field.text for field in fields)
        return entries.ListEntry(line, tuple(fields), title, None, echo, entry, self._search_note)

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
