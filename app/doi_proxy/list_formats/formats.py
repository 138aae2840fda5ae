"""The formats of lists: their names, the names of their files, their media types, and how each begins."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from doi_names.derived import derive
from doi_names.find_names import BLOCK_CHARACTERS, FoundName, NameFinder
from doi_proxy.list_formats import bibliographies, entries, lines
from doi_proxy.list_formats.bibliographies import BibtexReader
from doi_proxy.list_formats.entries import Item, ListItem, ReadItem
from doi_proxy.list_formats.json_lists import JsonLinesReader, JsonListReader
from doi_proxy.list_formats.lines import LinesReader, ListReader, open_decoder
from doi_proxy.list_formats.tables import ColumnReader
from doi_proxy.web import media_types


class RunningTextReader:
    """Every name in a text, in its order. See ListReader."""

    column = ""

    def __init__(self) -> None:
        self.keeps_entries = False
        self._decoder = open_decoder()
        self._finder = NameFinder()
        #: The characters that were read, and the places of line ends after the last name.
        self._read = 0
        self._ends = deque[int]()
        self._line = 1

    @property
    def lines(self) -> int:
        """See ListReader."""
        return self._line + len(self._ends)

    def feed(self, data: bytes) -> list[ReadItem]:
        """See ListReader."""
        return self._find(self._decoder.decode(data))

    def end(self) -> list[ReadItem]:
        """See ListReader."""
        items = self._find(self._decoder.decode(b"", final=True))
        for names in self._finder.end():
            items += self._number(names)
        return items

    def _find(self, text: str) -> list[ReadItem]:
        items: list[ReadItem] = []
        for start in range(0, len(text), BLOCK_CHARACTERS):
            block = text[start : start + BLOCK_CHARACTERS]
            self._ends.extend(self._read + at for at, character in enumerate(block) if character == "\n")
            self._read += len(block)
            items += self._number(self._finder.feed(block))
        return items

    def _number(self, names: Iterable[FoundName]) -> list[ReadItem]:
        items: list[ReadItem] = []
        for name in names:
            while self._ends and self._ends[0] < name.start:
                self._ends.popleft()
                self._line += 1
            items.append(ListItem(name.text, self._line, found=name))
        return items


class ReferencesReader(lines.LineReader):
    """The references of a text: one in each paragraph, or up to each line with a name if a paragraph has several."""

    def __init__(self, max_line_bytes: int) -> None:
        super().__init__(max_line_bytes)
        self._paragraph: list[str] = []
        self._first = self._characters = 0

    def _read(self, read: list[lines.Line]) -> list[ReadItem]:
        items: list[ReadItem] = []
        for line in read:
            text = lines.decode_bytes(line.data)[0]
            if not text.strip() or self._characters > entries.MAX_ENTRY_CHARACTERS:
                items += self._finish()
            if text.strip():
                self._first = self._first if self._paragraph else line.number
                self._paragraph.append(text)
                self._characters += len(text)
        return items

    def _finish(self) -> list[ReadItem]:
        paragraph, self._paragraph, self._characters = self._paragraph, [], 0
        return [entries.Paragraph(_read_paragraph(paragraph, self._first))] if paragraph else []


def _read_paragraph(paragraph: list[str], first: int) -> Iterator[list[Item]]:
    """The references of a paragraph, of which `first` is the number of the first line, from a part of it at a time."""
    whole = "\n".join(paragraph)
    found: dict[tuple[str, int], FoundName] = {}
    for names in entries.find_in_turns(whole[: 4 * entries.MAX_ENTRY_CHARACTERS]):
        for name in names:
            at = whole.count("\n", 0, name.start)
            # A line that begins with the name again, as "doi:" and as a URL, goes on with its reference.
            is_again = (name.name.key, at - 1) in found and name.start - whole.rfind("\n", 0, name.start) < 40
            found.setdefault((name.name.key, at - is_again), name)
        yield []
    items: list[Item] = []
    begin = 0
    for (_, at), name in found.items():
        reference = whole if len(found) == 1 else "\n".join(paragraph[min(begin, at) : at + 1])
        entry = reference[: entries.MAX_ENTRY_CHARACTERS]
        items.append(ListItem(name.text, first + at, cited=entry, found=name))
        begin = at + 1
    if not items:
        shown, others = whole[: entries.MAX_EXCERPT], derive(whole[:2_048])
        items = [entries.UnreadableItem(shown, first, entries.WITHOUT_DOI, reason=entries.NO_DOI, derived=others)]
    yield items


#: Makes a reader, given the limit of a line, and the columns or members with the names and with what rows repeat.
OpenReader = Callable[[int, str | None, str | None], ListReader]


@dataclass(frozen=True, slots=True)
class ListFormat:
    """A format. The first suffix is that of a corrected file, the first media type the usual one."""

    name: str
    open: OpenReader
    suffixes: tuple[str, ...]
    media_types: tuple[str, ...]
    #: How a list of this format begins. None if the beginning does not tell.
    begins: re.Pattern[str] | None = None
    #: Whether it is read as a whole, by docx. A reader of lines refuses it.
    is_document: bool = False


#: In the order in which the beginning of a list is compared with them.
FORMATS: Final = (
    ListFormat("text", LinesReader, ("txt",), (media_types.TEXT,)),
    ListFormat(
        "bibtex",
        BibtexReader,
        ("bib", "bibtex"),
        (media_types.BIBTEX, "application/x-bibtex"),
        # Comments come first in files of some programs.
        re.compile(r"(?:[^@\n]{0,200}\n){0,40}\s*@\s*[A-Za-z]{3,20}\s*[{(]"),
    ),
    ListFormat(
        "ris",
        partial(bibliographies.TaggedReader, bibliographies.RIS),
        ("ris",),
        (media_types.RIS,),
        re.compile(r"(?:(?:Provider|Database|Content):[^\n]*\n\s*){0,8}TY {0,2}- "),
    ),
    ListFormat(
        "medline",
        partial(bibliographies.TaggedReader, bibliographies.MEDLINE),
        ("nbib", "medline"),
        ("application/nbib", "application/x-medline"),
        re.compile(r"\s*PMID *- ?[0-9]"),
    ),
    ListFormat(
        "endnote",
        partial(bibliographies.TaggedReader, bibliographies.ENDNOTE),
        ("enw",),
        ("application/x-endnote-refer",),
        re.compile(r"\s*%0 "),
    ),
    ListFormat(
        "wos",
        partial(bibliographies.TaggedReader, bibliographies.WEB_OF_SCIENCE),
        ("ciw", "isi"),
        ("application/x-isi",),
        re.compile(r"\s*(?:FN [^\n]*\n|VR [^\n]*\n){1,2}PT [A-Z]"),
    ),
    # The names of the work, and those of its references (Citation File Format 1.2.0).
    ListFormat(
        "cff",
        lambda most, column, echo: RunningTextReader(),
        ("cff",),
        ("application/x-cff",),
        re.compile(r"(?:#[^\n]{0,200}\n){0,20}cff-version:"),
    ),
    ListFormat(
        "json",
        # Lines of a JSON value. A work of Crossref with 500 references has about 150,000 bytes.
        lambda most, column, echo: JsonListReader(8 * most, column, echo),
        ("json", "jsonld"),
        (media_types.JSON,),
        re.compile(r"\s*[\[{]\s*[\[{\"\]}]"),
    ),
    ListFormat(
        "jsonl",
        JsonLinesReader,
        ("jsonl", "ndjson"),
        (media_types.NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"),
    ),
    ListFormat("docx", LinesReader, ("docx",), (media_types.DOCX,), is_document=True),
    ListFormat(
        "csv",
        ColumnReader,
        ("csv", "tsv", "tab"),
        (media_types.CSV, "text/tab-separated-values"),
        re.compile(
            r"(?:sep=.\s*\n|[^\n]*[,;\t][\s\"]{0,8}doi[\s\"]{0,8}(?:[,;\t\n]|$)|[\s\"]{0,8}doi[\s\"]{0,8}[,;\t])",
            re.IGNORECASE,
        ),
    ),
)
BY_NAME: Final = {form.name: form for form in FORMATS}
BY_MEDIA_TYPE: Final = {media_type: form for form in FORMATS for media_type in form.media_types}
_BY_SUFFIX: Final = {suffix: form for form in FORMATS for suffix in form.suffixes}
TEXT: Final = BY_NAME["text"]
#: Characters at the beginning of a list that tell its format.
HEAD_CHARACTERS: Final = 4_096


def format_of_name(name: str) -> ListFormat | None:
    """The format by the end of a file name. None if it tells none, or says that it is any text."""
    _, dot, suffix = name.lower().rpartition(".")
    found = _BY_SUFFIX.get(suffix) if dot else None
    return None if found is TEXT else found


def format_of_head(head: str) -> ListFormat | None:
    """The format by the beginning of a list, at most HEAD_CHARACTERS. None for any other text."""
    begin = head.lstrip()
    return next((form for form in FORMATS if form.begins is not None and form.begins.match(begin)), None)
