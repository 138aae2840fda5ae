"""Reads the names of the files of reference managers: BibTeX and RIS. All text except names is ignored.

BibTeX: Patashnik, "BibTeXing" (1988), for entries and fields. RIS: RIS Format Specifications (Research Information
Systems, 2001). A line is a tag of two characters, two blanks, a hyphen, a blank, and the value. A reference begins with
TY and ends with ER. DO has the DOI name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from app.errors import NotUTF8
from app.features.lists.lines import MAX_EXCERPT, Item, Line, LineReader, ListItem, UnreadableItem

#: Limit of an entry, in characters. A longer entry is read in pieces.
MAX_ENTRY_CHARACTERS: Final = 1024 * 1024
#: Limit of the value of a field, in characters. The rest is ignored.
_MAX_VALUE_CHARACTERS: Final = 32_768

_DOI_FIELD: Final = re.compile(r"(?<![\w-])doi\s*=\s*", re.IGNORECASE)
_BIBTEX_URL: Final = re.compile(r"https?://(?:(?:dx|www)\.)?doi\.org/[^\s{}\"]+", re.IGNORECASE)
_NOT_AN_ENTRY: Final = re.compile(r"\s*@\s*(?:comment|string|preamble)\b", re.IGNORECASE)
_BARE_VALUE: Final = re.compile(r"[^\s,{}\"]*")
#: TeX commands for characters that occur in names.
_TEX: Final = re.compile(
    r"\\(?P<escaped>[_%&#$<>])|\$(?P<math>[<>])\$|\\text(?P<word>less|greater|underscore)\b\s*(?:\{\})?"
)
_TEX_WORDS: Final = {"less": "<", "greater": ">", "underscore": "_"}
_TEX_URL: Final = re.compile(r"\\(?:url|href|nolinkurl|path)\s*\{")
_WHITE_SPACE: Final = re.compile(r"\s+")
#: A field. Some programs write fewer blanks than the specification has.
_FIELD: Final = re.compile(r"([A-Z][A-Z0-9]) {0,2}-(?: +(.*))?", re.DOTALL)
_RIS_URL: Final = re.compile(r"https?://(?:(?:dx|www)\.)?doi\.org/\S+", re.IGNORECASE)
#: The tags of a DOI name, of links, and of the two ends of a reference.
_DOI: Final = "DO"
_LINKS: Final = frozenset({"UR", "L1", "L2", "L3", "L4", "LK", "M1", "M3"})
_ENDS: Final = frozenset({"TY", "ER"})
#: Links of one reference that are remembered.
MAX_LINKS: Final = 100
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class BibtexReader(LineReader):
    """Reads the `doi` fields of each entry. An entry without one is searched for DOI URLs.

    Text before the first `@` is a comment. A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int, column: str | None = None) -> None:
        super().__init__(max_line_bytes, column)
        #: The lines of the entry that is being read, the number of its first line, and its characters.
        self._entry: list[str] = []
        self._first = 0
        self._size = 0

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
        return [_read_item(ListItem(text, first + entry.count("\n", 0, at))) for at, text in _find(entry)]


class RisReader(LineReader):
    """Reads the DO fields of each reference. A reference without one is searched for DOI URLs.

    A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int, column: str | None = None) -> None:
        super().__init__(max_line_bytes, column)
        self._has_doi = False
        self._links: list[Item] = []

    def _read(self, lines: list[Line]) -> list[Item]:
        items: list[Item] = []
        for line in lines:
            found = _FIELD.match(line.data.decode("utf-8", "replace").lstrip())
            if found is None:
                continue
            tag, value = found[1], (found[2] or "").strip()
            if tag in _ENDS:
                items += self._finish()
            elif tag == _DOI and value:
                self._has_doi = True
                items.append(_read_item(ListItem(value, line.number)))
            elif tag in _LINKS and len(self._links) < MAX_LINKS and (url := _RIS_URL.search(value)):
                self._links.append(_read_item(ListItem(_trim_url(url[0]), line.number)))
        return items

    def _finish(self) -> list[Item]:
        """The links of a reference that has no DOI name of its own."""
        links = [] if self._has_doi else self._links
        self._has_doi, self._links = False, []
        return links


def _find(entry: str) -> Iterator[tuple[int, str]]:
    """The names of an entry, and where they are in it."""
    is_found = False
    for match in _DOI_FIELD.finditer(entry):
        if value := _strip_tex(_read_value(entry, match.end())):
            is_found = True
            yield match.start(), value
    if not is_found:
        for match in _BIBTEX_URL.finditer(entry):
            yield match.start(), _strip_tex(_trim_url(match[0]))


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


def _read_item(item: ListItem) -> Item:
    """The item; unreadable if its bytes are not UTF-8. In the other fields of a file, such bytes do not matter."""
    if _REPLACEMENT not in item.text:
        return item
    return UnreadableItem(item.text[:MAX_EXCERPT], item.line, NotUTF8().message)


def _trim_url(url: str) -> str:
    """Remove the punctuation after a URL in running text."""
    url = url.rstrip(".,;")
    return url.rstrip(")") if "(" not in url else url
