"""Reads a table of names and URLs: CSV (RFC 4180), also with semicolons or tabs, one row on each line.

The first line names the columns: `doi` and `url`, and optionally `agency` and `date`. Without such a line, the columns
have this order.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Final

from doi_proxy.features.registry import record
from doi_proxy.features.registry.reading import Findings

_BOM: Final = b"\xef\xbb\xbf"
_DELIMITERS: Final = (",", ";", "\t")
_COLUMNS: Final = ("doi", "url", "agency", "date")


class InvalidTable(ValueError):
    """The first line does not say which columns hold the names and the URLs. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """The delimiter of a table, and the positions of its columns. -1 means that the table does not have the column."""

    delimiter: str
    doi: int
    url: int
    agency: int
    date: int
    #: Whether the first line names the columns.
    has_header: bool


def read_table_form(first_line: bytes) -> TableForm:
    """The form of a table, from its first line. Raises InvalidTable."""
    text = first_line.removeprefix(_BOM).decode("utf-8", "replace").strip("\r\n")
    delimiter = max(_DELIMITERS, key=text.count)
    try:
        cells = [cell.strip().lower() for cell in _cells(text, delimiter)]
    except csv.Error as error:
        raise InvalidTable(f"the first line cannot be read: {error}") from error
    if "doi" in cells:
        doi, url, agency, date = (cells.index(column) if column in cells else -1 for column in _COLUMNS)
        if url < 0:
            raise InvalidTable("the table has no column `url`; name the columns doi,url in its first line")
        return TableForm(delimiter, doi, url, agency, date, has_header=True)
    if not cells[0].startswith("10.") or len(cells) < 2:
        raise InvalidTable("the first line does not name the columns; begin the table with a line `doi,url`")
    doi, url, agency, date = (place if place < len(cells) else -1 for place in range(len(_COLUMNS)))
    return TableForm(delimiter, doi, url, agency, date, has_header=False)


class TableReader:
    """Reads the blocks of a table, from its first line."""

    def __init__(self, form: TableForm) -> None:
        self._form = form
        self._is_header_due = form.has_header

    def read(self, block: bytes, dates: record.RecordDates, findings: Findings) -> None:
        """See BlockReader."""
        lines = block.removeprefix(_BOM).split(b"\n")
        if self._is_header_due:
            del lines[0]
            self._is_header_due = False
        for line in lines:
            if not line.strip():
                continue
            findings.read += 1
            try:
                findings.records.append(self._record(line, dates))
            except record.InvalidRegistryRecord as error:
                findings.refuse(str(error))

    def _record(self, line: bytes, dates: record.RecordDates) -> record.RegistryRecord:
        form = self._form
        try:
            cells = _cells(line.decode().rstrip("\r"), form.delimiter)
        except UnicodeDecodeError as error:
            raise record.InvalidRegistryRecord("the row is not UTF-8") from error
        except csv.Error as error:
            raise record.InvalidRegistryRecord(f"the row cannot be read: {error}") from error

        def cell(place: int) -> str:
            return cells[place] if 0 <= place < len(cells) else ""

        agency = cell(form.agency).strip()
        if len(agency) > record.MAX_AGENCY_CHARACTERS or not agency.isprintable():
            raise record.InvalidRegistryRecord(f"{record.show(agency)} is not the name of an agency")
        date = record.parse_date(text) if (text := cell(form.date).strip()) else None
        if text and date is None:
            raise record.InvalidRegistryRecord(f"{record.show(text)} is not a date of ISO 8601")
        return record.make_record(cell(form.doi), cell(form.url), agency, dates.of(date))


def _cells(line: str, delimiter: str) -> list[str]:
    """The cells of a row. A quoted cell cannot contain the end of a line. Raises csv.Error."""
    if '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter), [""])
