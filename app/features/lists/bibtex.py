"""Reads the names of a BibTeX file: Patashnik, "BibTeXing" (1988), for entries and fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from app.features.lists.item import Item, ListItem
from app.features.lists.lines import Line, LineCutter
from app.features.lists.reference_text import read_reference, trim_url

#: Limit of an entry, in characters. A longer entry is read in pieces.
MAX_ENTRY_CHARACTERS: Final = 1024 * 1024
#: Limit of the value of a field, in characters. The rest is ignored.
_MAX_VALUE_CHARACTERS: Final = 32_768

_DOI_FIELD: Final = re.compile(r"(?<![\w-])doi\s*=\s*", re.IGNORECASE)
_DOI_URL: Final = re.compile(r"https?://(?:(?:dx|www)\.)?doi\.org/[^\s{}\"]+", re.IGNORECASE)
_NOT_AN_ENTRY: Final = re.compile(r"\s*@\s*(?:comment|string|preamble)\b", re.IGNORECASE)
_BARE_VALUE: Final = re.compile(r"[^\s,{}\"]*")
#: TeX commands for characters that occur in names.
_TEX: Final = re.compile(
    r"\\(?P<escaped>[_%&#$<>])|\$(?P<math>[<>])\$|\\text(?P<word>less|greater|underscore)\b\s*(?:\{\})?"
)
_TEX_WORDS: Final = {"less": "<", "greater": ">", "underscore": "_"}
_TEX_URL: Final = re.compile(r"\\(?:url|href|nolinkurl|path)\s*\{")
_WHITE_SPACE: Final = re.compile(r"\s+")


class BibtexReader:
    """Reads the `doi` fields of each entry. An entry without one is searched for DOI URLs.

    Text before the first `@` is a comment. A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._lines = LineCutter(max_line_bytes)
        #: The lines of the entry that is being read, the number of its first line, and its characters.
        self._entry: list[str] = []
        self._first = 0
        self._size = 0

    def feed(self, data: bytes) -> list[Item]:
        """See ListReader."""
        return self._read(self._lines.feed(data))

    def end(self) -> list[Item]:
        """See ListReader."""
        return self._read(self._lines.end()) + self._finish()

    def _read(self, lines: list[Line]) -> list[Item]:
        items: list[Item] = []
        for line in lines:
            text = line.data.decode("utf-8", "replace")
            begins = text.lstrip().startswith("@")
            if self._entry and (begins or self._size >= MAX_ENTRY_CHARACTERS):
                items += self._finish()
                self._first = line.number
            if begins or self._first:
                self._first = self._first or line.number
                self._entry.append(text)
                self._size += len(text) + 1
        return items

    def _finish(self) -> list[Item]:
        entry, first = "\n".join(self._entry), self._first
        self._entry, self._size = [], 0
        if _NOT_AN_ENTRY.match(entry):
            return []
        return [read_reference(ListItem(text, first + entry.count("\n", 0, at))) for at, text in _find(entry)]


def _find(entry: str) -> Iterator[tuple[int, str]]:
    """The names of an entry, and where they are in it."""
    is_found = False
    for match in _DOI_FIELD.finditer(entry):
        if value := _strip_tex(_read_value(entry, match.end())):
            is_found = True
            yield match.start(), value
    if not is_found:
        for match in _DOI_URL.finditer(entry):
            yield match.start(), _strip_tex(trim_url(match[0]))


def _read_value(entry: str, start: int) -> str:
    """Read the value of a field: in braces, in quotes, or bare. A value that is not closed ends with its line."""
    opening = entry[start : start + 1]
    if opening not in ("{", '"'):
        found = _BARE_VALUE.match(entry, start)
        return found[0] if found else ""
    depth, end = 0, min(len(entry), start + _MAX_VALUE_CHARACTERS)
    for at in range(start + 1, end):
        one = entry[at]
        if one in "{}" and entry[at - 1] == "\\":
            continue
        if depth == 0 and one == ("}" if opening == "{" else '"'):
            return entry[start + 1 : at]
        depth += (one == "{") - (one == "}")
    return entry[start + 1 : end].partition("\n")[0]


def _strip_tex(text: str) -> str:
    # A line break inside a value is not part of the name.
    text = _WHITE_SPACE.sub(lambda match: "" if set(match[0]) & {"\r", "\n"} else match[0], text.strip())
    text = _TEX_URL.sub("{", text)
    text = _TEX.sub(lambda match: match["escaped"] or match["math"] or _TEX_WORDS[match["word"]], text)
    return text.replace("{", "").replace("}", "")
