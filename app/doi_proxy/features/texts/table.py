"""Reads CSV (RFC 4180), also with `;` or a tab as the separator. The first record has the names of the columns."""

from __future__ import annotations

import csv
from typing import Final

from doi_proxy.features.texts.feature import UnreadableList
from doi_proxy.features.texts.lines import (
    CITED,
    MAX_EXCERPT,
    Item,
    Line,
    LineReader,
    ListItem,
    UnreadableItem,
    decode_line,
    write_ris_entry,
)

#: The column that is read if none is named, in any letter case.
DOI_COLUMN: Final = "doi"
_SEPARATORS: Final = (",", ";", "\t")
#: Column names in a message, and characters of each.
_MESSAGE_COLUMNS: Final = 10
_MESSAGE_CHARACTERS: Final = 40
_LONE_RETURN: Final = "it has a carriage return without a line feed; save the list with line ends of Windows or Unix"


class ColumnReader(LineReader):
    """Reads one column. Each record is an item, also if its cell is empty. Empty lines are not records."""

    def __init__(self, max_line_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        """`max_line_bytes` is the limit of a record too. A column is compared exactly, then in any case."""
        super().__init__(max_line_bytes, column, echo)
        self._separator = ""
        self._index = self._echo_index = -1
        self._cited: list[int] = []
        #: The lines of a record with an open quote, its first line, and its characters.
        self._open: list[str] = []
        self._opened_at = 0
        self._size = 0

    def feed(self, data: bytes) -> list[Item]:
        """See ListReader."""
        # Inside quotes, an empty line belongs to its field.
        return super().feed(data if self._open else self._lines.skip_empty(data))

    def _finish(self) -> list[Item]:
        if self._open:
            raise self._unclosed()
        return []

    def _read(self, lines: list[Line]) -> list[Item]:
        items: list[Item] = []
        for line in lines:
            text = decode_line(line, self._max_line_bytes)
            if isinstance(text, UnreadableItem):
                if self._index < 0 or self._open:
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

    def _take(self, record: str) -> list[Item]:
        is_head = self._index < 0
        if is_head:
            self._separator = max(_SEPARATORS, key=record.count)
        try:
            cells = self._cells(record)
        except csv.Error as error:
            # Python's own reason, to open the file in another mode, is not for the owner of a list.
            reason = _LONE_RETURN if "\r" in record else str(error)
            message = f"Line {self._opened_at} is not CSV: {reason}."
            if is_head:
                raise UnreadableList(message) from error
            return [UnreadableItem(record[:MAX_EXCERPT], self._opened_at, message)]
        if is_head:
            self._index = self._find_column(cells, self._column)
            self._echo_index = -1 if self._echo is None else self._find_column(cells, self._echo)
            folded = [name.strip().casefold() for name in cells]
            self._cited = [folded.index(name) if name in folded else len(cells) for name in CITED]
            return []
        echo = cells[self._echo_index][:MAX_EXCERPT] if 0 <= self._echo_index < len(cells) else None
        entry = write_ris_entry([_find_cell(cells, index) for index in self._cited]) if self.keeps_entries else ""
        return [ListItem(_find_cell(cells, self._index), self._opened_at, None, echo, entry)]

    def _cells(self, record: str) -> list[str]:
        return next(csv.reader([record], delimiter=self._separator), [])

    def _find_column(self, names: list[str], column: str | None) -> int:
        names = [name.strip() for name in names]
        wanted = column or DOI_COLUMN
        if column is not None and wanted in names:
            return names.index(wanted)
        folded = [name.casefold() for name in names]
        if wanted.casefold() in folded:
            return folded.index(wanted.casefold())
        found = ", ".join(repr(name[:_MESSAGE_CHARACTERS]) for name in names[:_MESSAGE_COLUMNS])
        raise UnreadableList(f"Line {self._opened_at} has no column {wanted!r}; name one of its columns: {found}.")


def _find_cell(cells: list[str], index: int) -> str:
    """The cell of a column. A record can be shorter than the first."""
    return cells[index] if index < len(cells) else ""
