"""Writes rows as NDJSON, CSV or a JSON array. A row is a mapping with the members in the order of the output.

CSV cells are written unchanged (RFC 4180). A spreadsheet may read a cell that begins with "=" as a formula:
docs/batch.md says what to do.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

#: The members of one row.
Members = Mapping[str, Any]
_CRLF: Final = "\r\n"


class RowWriter(Protocol):
    """Writes rows in pieces."""

    @property
    def media_type(self) -> str:
        """The media type, for Content-Type."""

    def begin(self) -> bytes:
        """The bytes before the first row."""

    def write(self, rows: Iterable[Members]) -> bytes:
        """The bytes of these rows."""

    def fail(self, status: int, detail: str) -> bytes:
        """The bytes about an error after which no row follows."""

    def end(self) -> bytes:
        """The bytes after the last row."""


class JsonLinesWriter:
    """One JSON object a line. An error is an object with the only member "error"."""

    media_type: Final = "application/x-ndjson"

    def begin(self) -> bytes:
        """See RowWriter."""
        return b""

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        return b"".join([msgspec.json.encode(row) + b"\n" for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        return msgspec.json.encode({"error": {"status": status, "detail": detail}}) + b"\n"

    def end(self) -> bytes:
        """See RowWriter."""
        return b""


class TableWriter:
    """CSV with a header line. An error is a record with an empty verdict and the reason as its message."""

    media_type: Final = "text/csv; charset=utf-8; header=present"

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def begin(self) -> bytes:
        """See RowWriter."""
        return self._write([self._fields])

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        return self._write([[_cell(row.get(name)) for name in self._fields] for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        text = f"error {status}: {detail}"
        if "message" not in self._fields:
            return self._write([[text]])
        return self._write([[text if name == "message" else "" for name in self._fields]])

    def end(self) -> bytes:
        """See RowWriter."""
        return b""

    def _write(self, records: Iterable[Sequence[str]]) -> bytes:
        text = _Text()
        csv.writer(text, lineterminator=_CRLF).writerows(records)
        return "".join(text.pieces).encode("utf-8", "replace")


class _Text:
    """The part of a text file that csv.writer uses."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.write = self.pieces.append


class JsonArrayWriter:
    """A JSON array with one object a line."""

    media_type: Final = "application/json"

    def __init__(self) -> None:
        self._is_first = True

    def begin(self) -> bytes:
        """See RowWriter."""
        return b"["

    def write(self, rows: Iterable[Members]) -> bytes:
        """See RowWriter."""
        return b"".join([self._separator() + msgspec.json.encode(row) for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        return self._separator() + msgspec.json.encode({"error": {"status": status, "detail": detail}})

    def end(self) -> bytes:
        """See RowWriter."""
        return b"\n]\n"

    def _separator(self) -> bytes:
        separator, self._is_first = (b"\n" if self._is_first else b",\n"), False
        return separator


def _cell(value: object) -> str:
    """A value as the text of a cell. Suggestions are their names, separated by blanks."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(one["doi"] for one in value)
    return str(value)
