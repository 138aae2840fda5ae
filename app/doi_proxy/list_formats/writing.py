"""Writes rows as NDJSON, CSV, a JSON array, a table for people, lines of errors, or URLs alone.

A row is a mapping with the members in the order of the output. CSV cells are written unchanged (RFC 4180). A
spreadsheet may read a cell that begins with "=" as a formula: docs/batch.md says what to do.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any, Final

import msgspec

from doi_proxy.system.files import printable

#: The members of one row.
Members = Mapping[str, Any]
#: What some readers take for the end of a line, and its escape in JSON.
_LINE_ENDS: Final = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\u0085\u2028\u2029")
#: What a line says about a reference whose DOI may not be that of its work.
_MATCHES: Final = {"different": "another work", "related": "related work", "doubtful": "doubtful"}
#: Widths of the columns of a table, in characters. A column that is not named here has 30.
_WIDTHS: Final = {"input": 40, "doi": 40, "verdict": 12, "url": 60, "ra": 10, "age": 8, "stale": 5, "match": 9}


class RowWriter:
    """Writes rows in pieces."""

    #: The media type, for Content-Type.
    media_type = "text/plain; charset=utf-8"

    #: The bytes before the first row, and after the last one.
    opening = b""
    closing = b""

    def write(self, rows: Iterable[Members]) -> bytes:
        """The bytes of these rows."""
        raise NotImplementedError

    def fail(self, status: int, detail: str) -> bytes:
        """The bytes about an error after which no row follows."""
        raise NotImplementedError


def to_json_line(members: Members) -> bytes:
    """A JSON object on one line for every reader, without its end: some end a line at U+0085, U+2028 and U+2029 too."""
    line = msgspec.json.encode(members)
    if not line.isascii():
        for raw, escaped in _LINE_ENDS:
            line = line.replace(raw, escaped)
    return line


class JsonLinesWriter(RowWriter):
    """One JSON object a line. An error is an object with the only member "error"."""

    media_type = "application/x-ndjson"

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        return b"".join([to_json_line(row) + b"\n" for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        return msgspec.json.encode({"error": {"status": status, "detail": detail}}) + b"\n"


class TableWriter(RowWriter):
    """CSV with a header line. An error is a record with an empty verdict and the reason as its message."""

    media_type = "text/csv; charset=utf-8; header=present"

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self.opening = self._write([fields])

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        return self._write([[_cell(row.get(name)) for name in self._fields] for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        text = f"error {status}: {detail}"
        if "message" not in self._fields:
            return self._write([[text]])
        return self._write([[text if name == "message" else "" for name in self._fields]])

    def _write(self, records: Iterable[Sequence[str]]) -> bytes:
        text = StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(records)
        return text.getvalue().encode("utf-8", "replace")


class JsonArrayWriter(RowWriter):
    """A JSON array with one object a line."""

    media_type = "application/json"
    opening = b"["
    closing = b"\n]\n"

    def __init__(self) -> None:
        self._is_first = True

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        return b"".join([self._separator() + to_json_line(row) for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        return self._separator() + msgspec.json.encode({"error": {"status": status, "detail": detail}})

    def _separator(self) -> bytes:
        separator, self._is_first = (b"\n" if self._is_first else b",\n"), False
        return separator


class AlignedWriter(RowWriter):
    """A table with a line for each row. A long cell is cut, except in the last column."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self.opening = self._line({name: name.upper() for name in fields})

    def write(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """See RowWriter."""
        return b"".join([self._line(row) for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        return f"error {status}: {_show(detail)}\n".encode("utf-8", "replace")

    def _line(self, row: Mapping[str, Any]) -> bytes:
        *first, last = self._fields
        cells = [_fit(_show(row.get(name)), _WIDTHS.get(name, 30)) for name in first]
        line = "  ".join([*cells, _show(row.get(last))]).rstrip()
        return f"{line}\n".encode("utf-8", "replace")


class ConciseWriter(RowWriter):
    """One line for each row that is not good, as linters do: file:line, verdict, input, key, reason, suggestion.

    A name that leads to another work is not good: that is its verdict then, with the title of the work. So are a
    related and a doubtful one.
    """

    def __init__(self, next_file: Callable[[], str], good: Container[str], *, has_colour: bool) -> None:
        """`next_file` returns the list of the next row, "" for a name among the arguments."""
        self._next_file = next_file
        self._good = good
        self._bold, self._red, self._end = ("\x1b[1m", "\x1b[31m", "\x1b[0m") if has_colour else ("", "", "")

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        lines = [(self._next_file(), row) for row in rows]
        wrong = [line for line in lines if line[1]["verdict"] not in self._good or line[1].get("match") in _MATCHES]
        return "".join([self._line(file, row) for file, row in wrong]).encode("utf-8", "replace")

    def _line(self, file: str, row: Members) -> str:
        place = f"{self._bold}{_show(file)}:{row['line']}{self._end}: " if file else ""
        key = f" ({_show(row['key'])})" if row["key"] is not None else ""
        match = _MATCHES.get(row.get("match") or "")
        verdict, message = (match, row["title"]) if match else (row["verdict"], row["message"])
        reason = f": {_show(message)}" if message else ""
        names = [suggestion["doi"] for suggestion in row["suggestions"] or ()]
        hint = f"; did you mean {_show(names[0])}?" if names else ""
        return f"{place}{self._red}{verdict}{self._end} {_show(row['input'])}{key}{reason}{hint}\n"


class UrlWriter(RowWriter):
    """One line for each row: its URL, or an empty line."""

    def write(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """See RowWriter."""
        return "".join([f"{row['url'] or ''}\n" for row in rows]).encode("utf-8", "replace")

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter. The line of a row that has no URL."""
        return b"\n"


def _cell(value: object) -> str:
    """A value as the text of a cell. Suggestions are their names, separated by blanks."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return str(value["doi"])
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(suggestion["doi"] for suggestion in value)
    return str(value)


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def _show(value: object) -> str:
    """A value as the text of a cell of a table for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(_cell(value))
