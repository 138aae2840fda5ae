"""The items of a list: an entry of it becomes one item or more.

A reader yields entries. Those without a field for their name are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from doi_names.derived import derive
from doi_names.find_names import BLOCK_CHARACTERS, FoundName, NameFinder

#: Characters of an unreadable item in its row.
MAX_EXCERPT: Final = 200
#: What a row can repeat of its item.
Scalar = str | int | float | bool | None
#: What a reference says about its work, by the tags of RIS, and the names of fields, columns and members that say it.
CITED: Final = {
    "TI": ("title", "titles", "article title", "document title"),
    "ST": ("subtitle",),
    "AU": ("author", "authors", "creators", "creator", "collaboration"),
    "ED": ("editor", "editors"),
    "PY": ("year", "date", "issued", "publication year", "publicationyear", "published", "publication_year"),
    "T2": ("journal", "journaltitle", "booktitle", "container-title", "publication title", "publicationtitle",
           "source title", "howpublished"),
    "PB": ("publisher", "school", "institution"),
    "VL": ("volume",),
    "IS": ("number", "issue"),
    "SP": ("pages", "page", "eid", "articleno", "article-number", "page start", "start page"),
}  # fmt: skip
#: The member with a reference as running text, as Crossref has it.
UNSTRUCTURED: Final = "unstructured"
TAG_OF: Final = {name: tag for tag, names in CITED.items() for name in names}
#: Characters that are read of each.
_MAX_CITED: Final = 1_024
#: The beginning of a name, and that of a second one after a separator or a label.
_PREFIX: Final = re.compile(r"10\.[0-9]{4,9}/", re.ASCII)
_NEXT_NAME: Final = re.compile(r"(?:[\s,;|<>\"']|doi\.org/|doi:)\s{0,8}10\.[0-9]{4,9}/", re.ASCII | re.IGNORECASE)
#: The reason of an item without anything that looks like a DOI.
NO_DOI: Final = "no-doi"
WITHOUT_DOI: Final = "This entry has no DOI."
#: Characters of an entry that its items keep.
MAX_ENTRY_CHARACTERS: Final = 4_096


class ListItem(msgspec.Struct, frozen=True, gc=False):
    """The text of one item, and the number of its line, from 1; of a JSON array, the number of the item.

    `line` is 0 outside a list. `key` is the entry's own: the citation key of BibTeX, the number of a RIS reference.
    `echo` is a member or a cell that the row repeats. `cited` is the reference, "" if nothing compares it. `found` is
    the name in the text, if the text was searched for it. `note` is what a reader of the row should know about both.
    """

    text: str
    line: int = 0
    key: str | None = None
    echo: Scalar = None
    cited: str = ""
    found: FoundName | None = None
    note: str | None = None


class UnreadableItem(msgspec.Struct, frozen=True, gc=False):
    """An item whose text cannot be read: its beginning, its place, and the reason as a sentence and as a token."""

    text: str
    line: int
    message: str
    key: str | None = None
    echo: Scalar = None
    reason: str | None = None
    #: Names that follow from an entry by rule. None of them is known to be registered.
    derived: tuple[FoundName, ...] = ()


Item = ListItem | UnreadableItem


class EntryField(msgspec.Struct, frozen=True, gc=False):
    """A field that is searched. Names in one that `is_distant`, such as an abstract, are mostly of other works."""

    name: str
    text: str
    line: int
    is_distant: bool = False


class ListEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry without a field for its name: what stands for it, and the fields that are searched.

    Without a name in them, it is an unreadable item with its `title`, or nothing if that is None. `cited` is as in
    ListItem. `note` is what a row of its names says too.
    """

    line: int
    fields: tuple[EntryField, ...]
    title: str | None
    key: str | None = None
    echo: Scalar = None
    cited: str = ""
    note: str = ""


class Several(msgspec.Struct, frozen=True, gc=False):
    """An item whose text seems to have more than one name."""

    item: ListItem


class Paragraph(msgspec.Struct, frozen=True, gc=False):
    """The references of a paragraph, which are read a part at a time."""

    references: Iterator[list[Item]]


#: What a reader returns.
ReadItem = ListItem | UnreadableItem | ListEntry | Several | Paragraph


def divide(item: ListItem) -> ReadItem:
    """The item; to be searched if its text can have more than one name."""
    # A long list has one name in nearly every line.
    if item.text.count("10.") < 2:
        return item
    first = _PREFIX.search(item.text)
    return item if first is None or _NEXT_NAME.search(item.text, first.end()) is None else Several(item)


class OpenEntry:
    """An entry that is being read. `head` is its first line, None if it is not an entry."""

    def __init__(self, line: int = 0, head: str | None = None, key: str | None = None, cited: str = "") -> None:
        self.key = key
        self.cited = cited
        self.title = ""
        #: Whether it has a field for its name. Without, its other fields are searched.
        self.has_name = False
        self._line = line
        self._head = head
        self._fields: list[EntryField] = []
        self._room = MAX_SEARCHED_CHARACTERS

    def add(self, name: str, text: str, line: int, *, is_distant: bool) -> None:
        """Keep a field for the search."""
        if not self.has_name and self._room > 0:
            self._fields.append(EntryField(name, text[: self._room], line, is_distant))
            self._room -= len(text)

    def continue_field(self, text: str) -> None:
        """Keep a line that goes on with the last field."""
        if not self.has_name and self._fields and self._room > 0:
            last = self._fields[-1]
            self._fields[-1] = msgspec.structs.replace(last, text=f"{last.text}\n{text[: self._room]}")
            self._room -= len(text) + 1

    def close(self) -> list[ReadItem]:
        """The entry, if it is to be searched."""
        if self.has_name or (self._head is None and not self._fields):
            return []
        title = None if self._head is None else self.title or self._head
        return [ListEntry(self._line, tuple(self._fields), title, self.key, None, self.cited)]


def write_ris_entry(cited: Iterable[tuple[str, object]]) -> str:
    """A reference in the form of RIS, of names of CITED with their values. Without one, the reference is ""."""
    lines = [
        f"{tag}  - {text}"
        for name, value in cited
        if (tag := TAG_OF.get(name.casefold())) and (text := " ".join(_read_words(value))[:_MAX_CITED])
    ]
    return "\n".join(["TY  - GEN", *lines]) if lines else ""


def write_members(entry: str) -> dict[str, list[str] | str]:
    """A reference as members of a JSON object, which `read_json_item` reads again."""
    if not entry.startswith("TY  - "):
        return {UNSTRUCTURED: entry}
    found: dict[str, list[str] | str] = {}
    for line in entry.splitlines()[1:]:
        tag, _, value = line.partition("  - ")
        if tag in CITED:
            found.setdefault(CITED[tag][0], []).append(value)  # type: ignore[union-attr]
    return found


def _read_words(value: object, depth: int = 0) -> list[str]:
    """The words of a string, a number, a date of CSL, or a list of authors as CSL JSON, DataCite or Zotero has it."""
    if isinstance(value, dict):
        members = ("family", "lastName", "literal", "name", "title", "date-parts", "raw")
        value = next((value[member] for member in members if value.get(member)), None)
    if isinstance(value, list):
        # Four brackets are those of the date of an item.
        return [] if depth > 2 else [word for item in value[:50] for word in (*_read_words(item, depth + 1), ";")][:-1]
    return str(value)[:_MAX_CITED].split() if isinstance(value, (str, int)) else []


#: Characters of an entry that are searched: all but those of the longest abstracts.
MAX_SEARCHED_CHARACTERS: Final = 16_384
#: Names of one entry that become rows.
MAX_NAMES: Final = 100
_LAST_NAME: Final = f"Of one entry, at most {MAX_NAMES} names are read."


def expand(items: Iterable[ReadItem]) -> Iterator[list[Item]]:
    """The items, with those inside entries. A caller in an event loop gives way to other work after each group."""
    group: list[Item] = []
    for item in items:
        if isinstance(item, (ListEntry, Several, Paragraph)):
            yield group
            group = []
            if isinstance(item, Paragraph):
                yield from item.references
            else:
                yield from _search(item) if isinstance(item, ListEntry) else _divide(item.item)
        else:
            group.append(item)
    yield group


def _divide(item: ListItem) -> Iterator[list[Item]]:
    """The names in the text of an item, if there are several; otherwise the item as it stands."""
    items: list[Item] = []
    keys = set[str]()
    for names in find_in_turns(item.text[:MAX_SEARCHED_CHARACTERS]):
        sure = [name for name in names if name.confidence != "doubtful"]
        items += [msgspec.structs.replace(item, text=name.text, found=name) for name in sure]
        keys.update(name.name.key for name in sure)
        yield []
    if len(items) > MAX_NAMES:
        items[MAX_NAMES - 1 :] = [msgspec.structs.replace(items[MAX_NAMES - 1], note=_LAST_NAME)]
    yield items if len(keys) > 1 else [item]


def _search(entry: ListEntry) -> Iterator[list[Item]]:
    """Each name in the fields of an entry once; what stands for the entry, if there is none."""
    seen: set[str] = set()
    room = MAX_SEARCHED_CHARACTERS
    for field in sorted(entry.fields, key=lambda field: field.is_distant):
        if field.is_distant and seen:
            break
        text, room = field.text[:room], max(0, room - len(field.text))
        for names in find_in_turns(text):
            group: list[Item] = []
            for name in names:
                if name.confidence == "doubtful" or name.name.key in seen or len(seen) >= MAX_NAMES:
                    continue
                seen.add(name.name.key)
                note = f"Found in the field “{field.name}”.{entry.note}"
                note = note if len(seen) < MAX_NAMES else f"{note} {_LAST_NAME}"
                is_sure = name.confidence in ("literal", "sure")
                # The rule of a name that stands in a field for something else.
                known = replace(name, confidence="likely", rule=name.rule or "other-field") if is_sure else name
                group.append(ListItem(name.text, field.line, entry.key, entry.echo, entry.cited, known, note))
            yield group
    if not seen and entry.title is not None:
        near = "\n".join(field.text for field in entry.fields if not field.is_distant)
        # Characters of an entry in which other identifiers are searched.
        derived, shown = derive(near[:2_048]), entry.title[:MAX_EXCERPT]
        yield [UnreadableItem(shown, entry.line, WITHOUT_DOI, entry.key, entry.echo, NO_DOI, derived)]


def find_in_turns(text: str) -> Iterator[list[FoundName]]:
    """The names in a text, from BLOCK_CHARACTERS at a time."""
    finder = NameFinder()
    for start in range(0, len(text), BLOCK_CHARACTERS):
        yield finder.feed(text[start : start + BLOCK_CHARACTERS])
    yield from finder.end()
