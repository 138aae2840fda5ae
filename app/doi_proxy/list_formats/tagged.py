"""Reads the names of references whose lines begin with tags: RIS, MEDLINE, EndNote and Web of Science.

RIS: RIS Format Specifications (Research Information Systems, 2001). A line is a tag of two characters, two blanks, a
hyphen, a blank, and the value; a reference begins with TY and ends with ER; DO has the DOI name.
MEDLINE: MEDLINE/PubMed Data Element (Field) Descriptions (National Library of Medicine). A tag of up to four
characters, a hyphen; a value goes on in lines that begin with blanks; LID and AID have the DOI name, marked "[doi]".
EndNote: refer(1) of Unix with the tags of EndNote; %0 begins a reference, and %R has the DOI name.
Web of Science: Field Tags (Clarivate); PT begins a reference, ER ends it, and DI has the DOI name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from doi_proxy.list_formats.encodings import decode_bytes
from doi_proxy.list_formats.lines import (
    MAX_ENTRY_CHARACTERS,
    MAX_EXCERPT,
    NO_DOI,
    WITHOUT_DOI,
    Line,
    LineReader,
    ListItem,
    ReadItem,
    SearchedEntry,
    SearchedField,
    UnreadableItem,
    divide,
    note_encoding,
)

#: Names of one reference that wait for its end, and characters of its other fields that do.
_MAX_KEPT: Final = 100
_MAX_FIELD_CHARACTERS: Final = 16_384


@dataclass(frozen=True, slots=True)
class TagFormat:
    """How a format writes a field, and what its tags mean. `field` has the groups of the tag and of the value."""

    field: re.Pattern[str]
    starts: frozenset[str]
    names: frozenset[str]
    #: Tags of titles, authors and years, with those of RIS.
    cited: dict[str, str]
    ends: frozenset[str] = frozenset()
    #: Tags of fields that name other works.
    distant: frozenset[str] = frozenset()
    #: What a value has that is a name, where the field has other identifiers too.
    mark: str = ""
    #: The tag whose value is the key of a reference. Without it, references are numbered.
    key: str = ""


RIS: Final = TagFormat(
    # Some programs write fewer blanks than the specification has.
    field=re.compile(r"\s*([A-Z][A-Z0-9]) {0,2}-(?: +(.*))?", re.DOTALL),
    starts=frozenset({"TY"}),
    ends=frozenset({"ER"}),
    names=frozenset({"DO"}),
    cited={"TI": "TI", "T1": "TI", "AU": "AU", "A1": "AU", "PY": "PY", "Y1": "PY", "DA": "PY"},
    distant=frozenset({"AB", "N2", "RN"}),
)
MEDLINE: Final = TagFormat(
    field=re.compile(r"([A-Z]{2,4}) {0,2}-(?: +(.*))?", re.DOTALL),
    starts=frozenset({"PMID"}),
    names=frozenset({"LID", "AID"}),
    cited={"TI": "TI", "FAU": "AU", "DP": "PY"},
    distant=frozenset({"AB", "CIN", "CON", "EIN", "EFR", "CRI", "CRF", "RIN", "ROF", "UIN", "UOF"}),
    mark="[doi]",
    key="PMID",
)
ENDNOTE: Final = TagFormat(
    field=re.compile(r"(%[0-9A-Z@!#$&()*+=<>?^~\[\]]) ?(.*)", re.DOTALL),
    starts=frozenset({"%0"}),
    names=frozenset({"%R"}),
    cited={"%T": "TI", "%A": "AU", "%D": "PY"},
    distant=frozenset({"%X"}),
    mark="10.",
)
WEB_OF_SCIENCE: Final = TagFormat(
    field=re.compile(r"([A-Z][A-Z0-9])(?: (.*))?", re.DOTALL),
    starts=frozenset({"PT"}),
    ends=frozenset({"ER"}),
    names=frozenset({"DI"}),
    cited={"TI": "TI", "AU": "AU", "PY": "PY"},
    distant=frozenset({"AB", "CR"}),
)


class _Reference:
    """The reference that is being read."""

    def __init__(self, number: int, line: int, first: str) -> None:
        self.key = str(number) if number else None
        self.line = line
        #: What stands for the reference: its title, else its first line. "" before the first reference.
        self.shown = first
        self.names: list[ListItem] = []
        self.fields: list[SearchedField] = []
        self.room = _MAX_FIELD_CHARACTERS
        self.cited = ""
        self.has_name = False

    @property
    def entry(self) -> str:
        """The reference in the form of RIS."""
        return f"TY  - \n{self.cited}"


class TaggedReader(LineReader):
    """Reads the fields for names of each reference. One without is searched. A line that is too long is cut."""

    def __init__(
        self, tags: TagFormat, max_line_bytes: int, column: str | None = None, echo: str | None = None
    ) -> None:
        super().__init__(max_line_bytes, column, echo)
        self._tags = tags
        self._number = 0
        self._reference = _Reference(0, 0, "")

    def _read(self, lines: list[Line]) -> list[ReadItem]:
        items: list[ReadItem] = []
        for line in lines:
            text = decode_bytes(line.data)[0]
            found = self._tags.field.match(text)
            if found is None:
                self._continue(text)
                continue
            tag, value = found[1], (found[2] or "").strip()
            if tag in self._tags.starts:
                items += self._finish()
                self._number += 1
                self._reference = _Reference(self._number, line.number, text.strip())
            elif tag in self._tags.ends:
                items += self._finish()
                continue
            items += self._take(tag, value, line)
        return items

    def _take(self, tag: str, value: str, line: Line) -> list[ReadItem]:
        """Read a field. Returns the names that wait no longer."""
        tags, reference = self._tags, self._reference
        if tag == tags.key and value:
            reference.key = value[:MAX_EXCERPT]
        kind = tags.cited.get(tag)
        if kind is not None and value:
            if kind == "TI" and reference.shown:
                reference.shown = value
            if self.keeps_entries and len(reference.cited) < MAX_ENTRY_CHARACTERS:
                reference.cited += f"{kind}  - {value[:MAX_ENTRY_CHARACTERS]}\n"
        if tag in tags.names and value and tags.mark in value:
            return self._add_name(value.removesuffix(tags.mark).rstrip() if tags.key else value, line)
        if not reference.has_name and reference.room > 0:
            text = value[: reference.room]
            reference.room -= len(text)
            reference.fields.append(SearchedField(tag, text, line.number, tag in tags.distant))
        return []

    def _add_name(self, value: str, line: Line) -> list[ReadItem]:
        reference = self._reference
        reference.has_name = True
        reference.fields = []
        # MEDLINE has the same name in two fields.
        if self._tags is not MEDLINE or all(item.text.casefold() != value.casefold() for item in reference.names):
            reference.names.append(ListItem(value, line.number, reference.key, note=note_encoding(value, line)))
        return self._release() if len(reference.names) >= _MAX_KEPT else []

    def _continue(self, text: str) -> None:
        """A line without a tag goes on with the field before it."""
        reference = self._reference
        if reference.fields and reference.room > 0 and text.strip():
            last, more = reference.fields[-1], text.strip()[: reference.room]
            reference.room -= len(more) + 1
            reference.fields[-1] = msgspec.structs.replace(last, text=f"{last.text}\n{more}")

    def _finish(self) -> list[ReadItem]:
        """The names of the reference, or the reference to be searched."""
        reference = self._reference
        items = self._release()
        if not reference.has_name and (reference.fields or reference.shown):
            without = UnreadableItem(
                reference.shown[:MAX_EXCERPT], reference.line, WITHOUT_DOI, reference.key, None, NO_DOI
            )
            fields = tuple(sorted(reference.fields, key=lambda field: field.is_distant))
            entry = reference.entry if self.keeps_entries else ""
            items.append(SearchedEntry(fields, without if reference.shown else None, reference.key, None, entry))
        self._reference = _Reference(0, 0, "")
        return items

    def _release(self) -> list[ReadItem]:
        """The names, with what is known of their reference if it is kept."""
        reference = self._reference
        names, reference.names = reference.names, []
        if self.keeps_entries:
            names = [msgspec.structs.replace(name, entry=reference.entry) for name in names]
        return [divide(name) for name in names]
