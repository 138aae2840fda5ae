"""Reads the names of the files of reference managers: BibTeX and RIS. An entry without a name is an item too.

BibTeX: Patashnik, "BibTeXing" (1988), for entries and fields. RIS: RIS Format Specifications (Research Information
Systems, 2001). A line is a tag of two characters, two blanks, a hyphen, a blank, and the value. A reference begins with
TY and ends with ER. DO has the DOI name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from doi_names.errors import NotUTF8
from doi_proxy.features.texts.lines import MAX_EXCERPT, NO_DOI, Item, Line, LineReader, ListItem, UnreadableItem

#: Limit of the part of an entry that is read at a time, in characters. A longer entry is read in several parts.
MAX_PART_CHARACTERS: Final = 16_384
#: Fields of one part that are read. The rest is ignored.
MAX_FIELDS: Final = 2_000
#: Limit of the value of a field, in characters. The rest is ignored.
_MAX_VALUE_CHARACTERS: Final = 32_768

_DOI_FIELD: Final = re.compile(r"(?<![\w-])doi\s*=\s*", re.IGNORECASE)
_BIBTEX_URL: Final = re.compile(r"https?://(?:(?:dx|www)\.)?doi\.org/[^\s{}\"]+", re.IGNORECASE)
#: The beginning of an entry, with its citation key.
_ENTRY: Final = re.compile(r"\s*@\s*\w{1,40}\s*[{(]\s*([^\s,{}()]{0,200})")
_NOT_AN_ENTRY: Final = re.compile(r"\s*@\s*(?:comment|string|preamble)\b", re.IGNORECASE)
_BRACE_OR_QUOTE: Final = re.compile(r'(?<!\\)[{}]|"')
#: What begins a value that is not bare.
_OPENING: Final = frozenset('{"')
_BARE_VALUE: Final = re.compile(r"[^\s,{}\"]*")
#: A value as it is in most files.
_PLAIN: Final = re.compile(r"[^\s\\{}$]*+")
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
_START: Final = "TY"
_ENDS: Final = frozenset({_START, "ER"})
#: Characters of an entry that its items keep, and names of a RIS reference that do.
MAX_ENTRY_CHARACTERS: Final = 4_096
_MAX_KEPT: Final = 100
#: Links of one reference that are remembered.
MAX_LINKS: Final = 100
#: The tags of titles, authors and years.
_CITED: Final = frozenset({"TI", "T1", "AU", "A1", "PY", "Y1", "DA"})
#: The title of a reference, which stands for one without a name.
_TITLES: Final = frozenset({"TI", "T1"})
_WITHOUT_DOI: Final = "This entry has no DOI."
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class BibtexReader(LineReader):
    """Reads the `doi` fields of each entry. An entry without one is searched for DOI URLs.

    Text before the first `@` is a comment. A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        super().__init__(max_line_bytes, column, echo)
        #: The lines of the part of an entry that is being read, the number of its first line, and its characters.
        self._part: list[str] = []
        self._first = 0
        self._size = 0
        self._is_entry = self._has_doi = False
        self._key: str | None = None
        #: What stands for the entry if it has no name.
        self._without: UnreadableItem | None = None
        #: The first links of an entry, which count if it has no field.
        self._links: list[Item] = []

    def _read(self, lines: list[Line]) -> list[Item]:
        items: list[Item] = []
        for line in lines:
            text = line.data.decode("utf-8", "replace")
            if text.lstrip().startswith("@"):
                items += self._finish()
                self._is_entry = not _NOT_AN_ENTRY.match(text)
                self._begin(text, line.number)
            elif self._size >= MAX_PART_CHARACTERS:
                items += self._read_part()
            if self._is_entry:
                self._first = self._first or line.number
                self._part.append(text)
                self._size += len(text) + 1
        return items

    def _begin(self, text: str, line: int) -> None:
        """Begin the entry of a line."""
        head = _ENTRY.match(text) if self._is_entry else None
        self._key = (head[1] or None) if head else None
        self._without = head and UnreadableItem(text.strip()[:MAX_EXCERPT], line, _WITHOUT_DOI, self._key, None, NO_DOI)

    def _read_part(self) -> list[Item]:
        """The names in the fields of a part. Its links are kept until the end of the entry."""
        if not self._part:
            return []
        part, line = "\n".join(self._part), self._first
        self._part, self._first, self._size = [], 0, 0
        found = islice(_find_fields(part), MAX_FIELDS)
        entry = part[:MAX_ENTRY_CHARACTERS] if self.keeps_entries else ""
        fields = [_read_item(item) for item in _number_lines(part, line, found, self._key, entry)]
        self._has_doi = self._has_doi or bool(fields)
        if not self._has_doi:
            links = islice(_find_links(part), MAX_LINKS - len(self._links))
            self._links += map(_read_item, _number_lines(part, line, links, self._key, entry))
        return fields

    def _finish(self) -> list[Item]:
        fields = self._read_part()
        links = [] if self._has_doi else self._links
        without = self._without if not self._has_doi and not links else None
        self._has_doi, self._links, self._without = False, [], None
        return fields + links + ([] if without is None else [without])


class RisReader(LineReader):
    """Reads the DO fields of each reference. A reference without one is searched for DOI URLs.

    A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        super().__init__(max_line_bytes, column, echo)
        self._has_doi = False
        #: The number of the reference, and what stands for it if it has no name.
        self._number = 0
        self._without: UnreadableItem | None = None
        self._links: list[Item] = []
        #: The fields of the reference, and its items, which wait for them.
        self._entry = ""
        self._kept: list[Item] = []

    def _read(self, lines: list[Line]) -> list[Item]:
        items: list[Item] = []
        for line in lines:
            found = _FIELD.match(line.data.decode("utf-8", "replace").lstrip())
            if found is None:
                continue
            tag, value = found[1], (found[2] or "").strip()
            if self.keeps_entries and tag in _CITED and len(self._entry) < MAX_ENTRY_CHARACTERS:
                self._entry += f"{tag}  - {value[:MAX_ENTRY_CHARACTERS]}\n"
            if tag in _ENDS:
                items += self._finish()
                if tag == _START:
                    self._number += 1
                    self._without = self._stand_in(f"{tag}  - {value}", line.number)
            elif tag == _DOI and value:
                self._has_doi = True
                self._kept.append(_read_item(ListItem(value, line.number, self._key)))
                if not self.keeps_entries or len(self._kept) >= _MAX_KEPT:
                    items += self._release(self._kept)
            elif tag in _LINKS and len(self._links) < MAX_LINKS and (url := _RIS_URL.search(value)):
                self._links.append(_read_item(ListItem(_trim_url(url[0]), line.number, self._key)))
            elif tag in _TITLES and value and self._without is not None:
                self._without = self._stand_in(value, self._without.line)
        return items

    @property
    def _key(self) -> str | None:
        return str(self._number) if self._number else None

    def _stand_in(self, text: str, line: int) -> UnreadableItem:
        return UnreadableItem(text[:MAX_EXCERPT], line, _WITHOUT_DOI, self._key, None, NO_DOI)

    def _finish(self) -> list[Item]:
        """The items that wait for their reference, or the links of one that has no DOI name of its own."""
        found = self._kept if self._has_doi else self._links
        without = self._without if not self._has_doi and not found else None
        found = self._release(found)
        self._has_doi, self._links, self._without, self._kept, self._entry = False, [], None, [], ""
        return found if without is None else [without]

    def _release(self, items: list[Item]) -> list[Item]:
        """The items, with what is known of their reference if it is kept."""
        self._kept = []
        if not self.keeps_entries:
            return items
        entry = f"TY  - \n{self._entry}"
        return [msgspec.structs.replace(item, entry=entry) if isinstance(item, ListItem) else item for item in items]


def _number_lines(
    part: str, line: int, found: Iterable[tuple[int, str]], key: str | None, entry: str
) -> Iterator[ListItem]:
    """Texts as items of an entry, given their places in a part that begins with a line."""
    counted = 0
    for at, text in found:
        line += part.count("\n", counted, at)
        counted = at
        yield ListItem(text, line, key, None, entry)


def _find_links(part: str) -> Iterator[tuple[int, str]]:
    """The DOI URLs in a part of an entry, and their places."""
    return ((match.start(), _strip_tex(_trim_url(match[0]))) for match in _BIBTEX_URL.finditer(part))


def _find_fields(part: str) -> Iterator[tuple[int, str]]:
    """The values of the `doi` fields in a part of an entry, and their places.

    A value is in braces, in quotes, or bare. One that is not closed ends with its line.
    """
    ends: dict[int, int] | None = None
    after = 0
    while match := _DOI_FIELD.search(part, after):
        start = match.end()
        if part[start : start + 1] in _OPENING:
            ends = _find_ends(part) if ends is None else ends
            start += 1
            after = ends.get(start - 1, len(part))
            if after - start >= _MAX_VALUE_CHARACTERS or start - 1 not in ends:
                line_end = part.find("\n", start, start + _MAX_VALUE_CHARACTERS)
                after = line_end if line_end >= 0 else min(start + _MAX_VALUE_CHARACTERS, len(part))
        else:
            bare = _BARE_VALUE.match(part, start)
            after = bare.end() if bare else start
        if value := _strip_tex(part[start:after]):
            yield match.start(), value


def _find_ends(part: str) -> dict[int, int]:
    """The places of braces and quotes that begin a value, with those of the ends. Takes one pass."""
    ends: dict[int, int] = {}
    braces: list[int] = []
    #: The last quote at each depth of braces. A value in quotes ends with the next one of its depth.
    quotes: dict[int, int] = {}
    depth = 0
    for match in _BRACE_OR_QUOTE.finditer(part):
        at = match.start()
        if part[at] == '"':
            if depth in quotes:
                ends[quotes[depth]] = at
            quotes[depth] = at
        elif part[at] == "{":
            braces.append(at)
            depth += 1
        else:
            depth -= 1
            if braces:
                ends[braces.pop()] = at
    return ends


def _strip_tex(text: str) -> str:
    # A line break inside a value is not part of the name.
    if _PLAIN.fullmatch(text):
        return text
    text = _WHITE_SPACE.sub(lambda match: "" if set(match[0]) & {"\r", "\n"} else match[0], text.strip())
    text = _TEX_URL.sub("{", text)
    text = _TEX.sub(lambda match: match["escaped"] or match["math"] or _TEX_WORDS[match["word"]], text)
    return text.replace("{", "").replace("}", "")


def _read_item(item: ListItem) -> Item:
    """The item; unreadable if its bytes are not UTF-8. In the other fields of a file, such bytes do not matter."""
    if _REPLACEMENT not in item.text:
        return item
    return UnreadableItem(item.text[:MAX_EXCERPT], item.line, NotUTF8().message, item.key)


def _trim_url(url: str) -> str:
    """Remove the punctuation after a URL in running text."""
    url = url.rstrip(".,;")
    return url.rstrip(")") if "(" not in url else url
