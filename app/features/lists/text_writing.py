"""Writes rows for people and for scripts: a table with aligned columns, or the URLs alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.doi.code_point import CodePoint

#: Widths of the columns of a table, in characters. A column that is not named here has _USUAL_WIDTH.
_WIDTHS: Final = {"input": 40, "doi": 40, "verdict": 12, "url": 60, "ra": 10, "age": 8, "stale": 5}
_USUAL_WIDTH: Final = 30
_ELLIPSIS: Final = "…"
_TEXT: Final = "text/plain; charset=utf-8"


class AlignedWriter:
    """A table with a line for each row. A long cell is cut, except in the last column."""

    media_type: Final = _TEXT

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def begin(self) -> bytes:
        """See RowWriter."""
        return self._line({name: name.upper() for name in self._fields})

    def write(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """See RowWriter."""
        return b"".join([self._line(row) for row in rows])

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter."""
        return f"error {status}: {_show(detail)}\n".encode("utf-8", "replace")

    def end(self) -> bytes:
        """See RowWriter."""
        return b""

    def _line(self, row: Mapping[str, Any]) -> bytes:
        *first, last = self._fields
        cells = [_fit(_show(row.get(name)), _WIDTHS.get(name, _USUAL_WIDTH)) for name in first]
        line = "  ".join([*cells, _show(row.get(last))]).rstrip()
        return f"{line}\n".encode("utf-8", "replace")


class UrlWriter:
    """One line for each row: its URL, or an empty line."""

    media_type: Final = _TEXT

    def begin(self) -> bytes:
        """See RowWriter."""
        return b""

    def write(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """See RowWriter."""
        return "".join([f"{row['url'] or ''}\n" for row in rows]).encode("utf-8", "replace")

    def fail(self, status: int, detail: str) -> bytes:
        """See RowWriter. The line of a row that has no URL."""
        return b"\n"

    def end(self) -> bytes:
        """See RowWriter."""
        return b""


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + _ELLIPSIS


def _show(value: object) -> str:
    """A value as the text of a cell. A character that is not graphic becomes its notation, such as <U+200B>."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(_show(one["doi"]) for one in value)
    text = str(value)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else f"<{CodePoint(one, 0).notation}>" for one in text)
