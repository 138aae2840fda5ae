"""Reads names from JSON: an array, or one value a line (NDJSON).

A value is a string, or an object with a member "doi".
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from doi_proxy.features.texts.feature import UnreadableList
from doi_proxy.features.texts.lines import (
    BOM,
    CITED,
    MAX_EXCERPT,
    Item,
    Line,
    LinesReader,
    ListItem,
    Scalar,
    UnreadableItem,
    excerpt,
    write_ris_entry,
)
from doi_proxy.features.texts.table import DOI_COLUMN

#: Brackets that may be open inside one value. Deeper values are refused before they are parsed.
MAX_DEPTH: Final = 32
#: The bytes that decide where a value ends, outside and inside strings (RFC 8259, sections 4, 5 and 7).
_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_INSIDE: Final = re.compile(rb'["\\]')
_BLANKS: Final = b" \t\r\n"
#: Everything before the first escape of a surrogate without its other half, and that escape (RFC 8259, section 7).
_LONE_SURROGATE: Final = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\(?!u[dD][89a-fA-F]).)*+(\\u[dD][89a-fA-F]..)", re.DOTALL
)


class JsonLinesReader(LinesReader):
    """Reads one JSON value a line. Empty lines are not items. A line that is not JSON is an unreadable item."""

    def _read_line(self, line: Line, text: str) -> Item:
        return _read_value(line.data, line.number, "Line", (self._column, self._echo), keeps_entry=self.keeps_entries)


class JsonArrayReader:
    """Reads an array, value by value. The values of one array need not be of one kind."""

    lines = 0

    def __init__(self, max_item_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        self.keeps_entries = False
        self._max_item_bytes = max_item_bytes
        self._members = column, echo
        self._rest = b""
        #: Where the scan of `_rest` continues, the number of open brackets, and whether it is inside a string.
        self._at, self._depth, self._in_string = 0, 0, False
        self._number = 0
        self._is_open = self._is_closed = False

    def feed(self, data: bytes) -> list[Item]:
        """See ListReader."""
        self._rest += data
        if not self._is_open and not self._open():
            return []
        items: list[Item] = []
        start = 0
        while not self._is_closed and (end := self._find_end()) is not None:
            self._close_value(self._rest[start:end], self._rest[end : end + 1], items)
            start = end + 1
        self._rest, self._at = self._rest[start:], self._at - start
        if self._is_closed:
            if self._rest.strip(_BLANKS):
                raise UnreadableList("There is text after the array; send one array.")
            self._rest = b""
        if len(self._rest) > self._max_item_bytes:
            raise self._too_long(self._number + 1)
        return items

    def end(self) -> list[Item]:
        """See ListReader."""
        if not self._is_closed:
            raise UnreadableList("The array is not complete: its closing bracket is missing.")
        return []

    def _open(self) -> bool:
        """Remove the bracket that opens the array. Returns False if it has not arrived."""
        if BOM.startswith(self._rest):
            return False
        body = self._rest.removeprefix(BOM).lstrip(_BLANKS)
        if not body:
            self._rest = b" "
            return False
        if not body.startswith(b"["):
            raise UnreadableList("The list is not a JSON array; send an array, or set the media type of the list.")
        self._rest, self._is_open, self._depth = body[1:], True, 1
        return True

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

    def _close_value(self, value: bytes, end: bytes, items: list[Item]) -> None:
        if end == b"}":
            raise UnreadableList(f"Item {self._number + 1} is not JSON: a brace is closed that is not open.")
        if end == b"]":
            self._is_closed = True
            if not value.strip(_BLANKS) and not self._number:
                return
        self._number += 1
        if len(value) > self._max_item_bytes:
            raise self._too_long(self._number)
        items.append(_read_value(value, self._number, "Item", self._members, keeps_entry=self.keeps_entries))

    def _too_long(self, number: int) -> UnreadableList:
        return UnreadableList(f"Item {number} is longer than {self._max_item_bytes} bytes; shorten it.")


def _read_value(
    data: bytes, number: int, place: str, members: tuple[str | None, str | None], *, keeps_entry: bool
) -> Item:
    """The item of a value. The members of an object are those with the name, and with what its row repeats."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return UnreadableItem(excerpt(data), number, f"{place} {number} is not JSON: {explain_json(data, error)}.")
    wanted, echo, entry = members[0] or DOI_COLUMN, None, ""
    if isinstance(value, dict):
        echo = _read_scalar(_find_member(value, members[1])) if members[1] is not None else None
        entry = write_ris_entry([_find_member(value, name) for name in CITED]) if keeps_entry else ""
        value = _find_member(value, wanted)
    if isinstance(value, str):
        return ListItem(value, number, None, echo, entry)
    message = f"{place} {number} is neither a string nor an object with a string {wanted!r}."
    return UnreadableItem(excerpt(data), number, message, None, echo)


def _read_scalar(value: object) -> Scalar:
    """What a row can repeat: the beginning of a string, a number of 64 bits, a truth value. None of anything else."""
    if isinstance(value, str):
        return value[:MAX_EXCERPT]
    is_number = isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**63)
    return value if is_number else None  # type: ignore[return-value]


def explain_json(data: bytes, error: Exception) -> str:
    """Why data is not JSON. `error` comes from msgspec, which reports half a surrogate pair as truncated data."""
    lone = _LONE_SURROGATE.match(data)
    if lone is None:
        return str(error)
    return f"{excerpt(lone[1])} is half a surrogate pair, not a character; send both halves"


def _find_member(value: dict[str, Any], wanted: str) -> object:
    if wanted in value:
        return value[wanted]
    return next((member for name, member in value.items() if name.casefold() == wanted.casefold()), None)
