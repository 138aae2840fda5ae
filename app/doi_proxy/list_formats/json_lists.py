"""Reads names from JSON: an array, one value a line (NDJSON), or an object with an array, as services return it.

A value is a string, or an object: CSL JSON, a work of Crossref, DataCite, OpenAlex or Zotero, or any other. Its name is
in a member "doi". An object without one is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec

from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats import entries, lines
from doi_proxy.list_formats.tables import DOI_COLUMN

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

    def _read_line(self, line: lines.Line, text: str) -> entries.ReadItem:
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
        #: Whether the list is an object, and its beginning was searched for its array.
        self._is_object = self._is_searched = False

    def feed(self, data: bytes) -> list[entries.ReadItem]:
        """See ListReader."""
        self._rest += data
        if not self._is_open and not self._open():
            return []
        items: list[entries.ReadItem] = []
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

    def end(self) -> list[entries.ReadItem]:
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
        if len(self._rest) > self._max_item_bytes:
            raise self._too_long(1)
        # A shorter object is searched at its end.
        if self._is_searched or len(self._rest) < _MAX_HEAD_BYTES:
            return False
        self._is_searched, found = True, _find_list(self._rest[:_MAX_HEAD_BYTES])
        if found is None:
            return False
        self._rest, self._is_open, self._depth = self._rest[found:], True, 1
        return True

    def _end_object(self) -> list[entries.ReadItem]:
        """The items of an object that was not opened: it is short, or it is one work."""
        if len(self._rest) <= _MAX_HEAD_BYTES and (found := _find_list(self._rest)) is not None:
            self._rest, self._is_open, self._depth = self._rest[found:], True, 1
            items = self.feed(b"")
            if not self._is_closed:
                raise UnreadableList("The array is not complete: its closing bracket is missing.")
            return items
        item = read_json_item(self._rest, 1, "Item", self._members, keeps_entry=self.keeps_entries)
        if isinstance(item, entries.UnreadableItem):
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

    def _close_value(self, value: bytes, end: bytes, items: list[entries.ReadItem]) -> None:
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
) -> entries.ReadItem:
    """The item of a value. The members of an object are those with the name, and with what its row repeats."""
    text, is_utf8 = lines.decode_bytes(data)
    note = None if is_utf8 else f"{place} {number} is not UTF-8; it was read as Windows-1252."
    try:
        value = msgspec.json.decode(data if is_utf8 else text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return entries.UnreadableItem(
            lines.excerpt(data), number, f"{place} {number} is not JSON: {explain_json(data, error)}."
        )
    if isinstance(value, str):
        return entries.ListItem(value, number, note=None if value.isascii() else note)
    if not isinstance(value, dict):
        return entries.UnreadableItem(
            lines.excerpt(data), number, f"{place} {number} is neither a string nor an object."
        )
    wanted, repeated = members
    echo = _read_scalar(_find_member(value, repeated)) if repeated is not None else None
    work = _find_work(value)
    entry = ""
    if keeps_entry and isinstance(stated := value.get(entries.UNSTRUCTURED), str):
        entry = stated[: entries.MAX_ENTRY_CHARACTERS]
    elif keeps_entry:
        entry = entries.write_ris_entry(work.items())
    key = _find_key(value)
    name = _find_member(value, wanted) if wanted is not None else _find_name(value, work)
    if isinstance(name, str) and (name.strip() or wanted is not None):
        return entries.divide(entries.ListItem(name, number, key, echo, entry, note=None if name.isascii() else note))
    if wanted is not None:
        message = f"{place} {number} has no member {wanted!r} with a string."
        return entries.UnreadableItem(lines.excerpt(data), number, message, key, echo)
    title = " ".join(_list_words(_find_member(work, "title"))) or lines.excerpt(data)
    return entries.ListEntry(number, tuple(_list_fields(value, number)), title, key, echo, entry)


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
        if isinstance(key, (str, int)) and not isinstance(key, bool) and 0 < len(str(key)) <= entries.MAX_EXCERPT:
            return str(key)
    return None


def _list_fields(value: dict[str, Any], number: int) -> Iterator[entries.EntryField]:
    members = sorted(value.items(), key=lambda member: member[0].casefold() in _DISTANT)
    texts = chain.from_iterable(_list_texts(name, member) for name, member in members)
    # Texts of an object that are searched, those about other works last.
    for path, text in islice(texts, 200):
        is_distant = any(part.casefold() in _DISTANT for part in path.split("."))
        yield entries.EntryField(path, text, number, is_distant)


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


def _read_scalar(value: object) -> entries.Scalar:
    """What a row can repeat: the beginning of a string, a number of 64 bits, a truth value. None of anything else."""
    if isinstance(value, str):
        return value[: entries.MAX_EXCERPT]
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
