"""Reads the names of bibliographies: BibTeX files (Patashnik, "BibTeXing", 1988), and those whose lines have tags.

An entry without a name is an item too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from doi_proxy.list_formats import entries, lines

#: Limit of the part of an entry that is read at a time, in characters. A longer entry is read in several parts.
MAX_PART_CHARACTERS: Final = 16_384
#: Fields of one part that are read. The rest is ignored.
MAX_FIELDS: Final = 2_000
#: Limit of the value of a field, in characters. The rest is ignored.
_MAX_VALUE_CHARACTERS: Final = 32_768

_DOI_FIELD: Final = re.compile(r"(?<![\w-])doi\s*=\s*", re.IGNORECASE)
_CITED_FIELD: Final = re.compile(rf"(?<![\w-])({'|'.join(entries.TAG_OF)})\s{{0,8}}=\s{{0,80}}", re.IGNORECASE)
_ANY_FIELD: Final = re.compile(r"(?:^|[,{\n])[^\S\n]{0,40}([A-Za-z][\w-]{0,40})\s{0,8}=(?=\s{0,80}[{\"\w])")
#: The fields of an archive's identifier, and those that name the archive (biblatex, section 3.14.7).
_EPRINT: Final = re.compile(r"(?<![\w-])(?:archiveprefix|eprinttype)\s{0,8}=\s{0,8}[{\"]?\s{0,8}arxiv", re.IGNORECASE)
#: The beginning of an entry, with its citation key.
_ENTRY: Final = re.compile(r"\s*@\s*\w{1,40}\s*[{(]\s*([^\s,{}()]{0,200})")
_STRING: Final = re.compile(r"\s*@\s*string\s*[{(]\s*([^\s={}\"#,]{1,80})\s*=\s*", re.IGNORECASE)
_NOT_AN_ENTRY: Final = re.compile(r"\s*@\s*(?:comment|string|preamble)\b", re.IGNORECASE)
_BRACE_OR_QUOTE: Final = re.compile(r'(?<!\\)[{}]|"')
#: What begins a value that is not bare.
_OPENING: Final = frozenset('{"')
_BARE_VALUE: Final = re.compile(r"[^\s,{}\"]*")
_JOIN: Final = re.compile(r"\s{0,80}#\s{0,80}")
#: A value as it is in most files.
_PLAIN: Final = re.compile(r"[^\s\\{}$]*+")
#: TeX commands for characters that occur in names.
_TEX: Final = re.compile(
    r"\\(?P<escaped>[_%&#$<>])|\$(?P<math>[<>])\$|\\text(?P<word>less|greater|underscore)\b\s*(?:\{\})?"
)
_TEX_COMMAND: Final = re.compile(r"\\(?:url|href|nolinkurl|path|ensuremath|text\w{2}|mbox)\s*\{")
_WHITE_SPACE: Final = re.compile(r"\s+")


class BibtexReader(lines.LineReader):
    """Reads the `doi` fields of each entry. An entry without one is searched.

    Text before the first `@` is a comment. A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int, column: str | None = None, echo: str | None = None) -> None:
        super().__init__(max_line_bytes, column, echo)
        #: The lines of the part of an entry that is being read, the number of its first line, and its characters.
        self._part: list[str] = []
        self._first = 0
        self._size = 0
        self._is_entry = self._is_utf8 = False
        self._entry, self._line = entries.OpenEntry(), 0
        #: The abbreviations that `@string` defines, in lower case.
        self._strings: dict[str, str] = {}

    def _read(self, read: list[lines.Line]) -> list[entries.ReadItem]:
        items: list[entries.ReadItem] = []
        for line in read:
            text, is_utf8 = lines.decode_bytes(line.data)
            if text.lstrip().startswith("@"):
                items += self._finish()
                self._begin(text, line.number)
            elif self._size >= MAX_PART_CHARACTERS:
                items += self._read_part()
            self._is_utf8 = self._is_utf8 and is_utf8
            if self._is_entry:
                self._first = self._first or line.number
                self._part.append(text)
                self._size += len(text) + 1
        return items

    def _begin(self, text: str, line: int) -> None:
        """Begin the entry of a line."""
        self._is_entry, self._is_utf8 = not _NOT_AN_ENTRY.match(text), True
        head = _ENTRY.match(text) if self._is_entry else None
        self._line = line
        self._entry = entries.OpenEntry(line, text.strip(), head[1] or None) if head else entries.OpenEntry()
        abbreviation = _STRING.match(text)
        # Abbreviations of a file that are kept, and the characters of each.
        if abbreviation and len(self._strings) < 2_000:
            value, _ = _read_value(text, abbreviation.end(), _find_ends(text), self._strings)
            self._strings[abbreviation[1].lower()] = value[:256]

    def _read_part(self) -> list[entries.ReadItem]:
        """The names in the `doi` fields of a part. Its other fields are kept until the end of the entry."""
        if not self._part:
            return []
        part, line, entry = "\n".join(self._part), self._first, self._entry
        self._part, self._first, self._size = [], 0, 0
        if self.keeps_entries and not entry.cited:
            entry.cited = entries.write_ris_entry(_read_fields(part, self._strings))
        names: list[entries.ReadItem] = []
        counted = 0
        for at, value in islice(_find_names(part, self._strings), MAX_FIELDS):
            line += part.count("\n", counted, at)
            counted = at
            is_plain = self._is_utf8 or value.isascii()
            note = None if is_plain else f"The entry at line {self._line} is not UTF-8; it was read as Windows-1252."
            names.append(entries.divide(entries.ListItem(value, line, entry.key, None, entry.cited, note=note)))
        entry.has_name = entry.has_name or bool(names)
        if not entry.has_name:
            self._keep_fields(part, line)
        return names

    def _keep_fields(self, part: str, line: int) -> None:
        marks = list(islice(_ANY_FIELD.finditer(part), MAX_FIELDS))
        counted = 0
        prefix = "arXiv:" if _EPRINT.search(part) else ""
        for number, mark in enumerate(marks):
            end = marks[number + 1].start() if number + 1 < len(marks) else len(part)
            name = mark[1].lower()
            value = _read_tex(part[mark.end() : end].strip().rstrip(",} \t\n")).strip().strip('"')
            line += part.count("\n", counted, mark.start(1))
            counted = mark.start(1)
            if name == "title":
                self._entry.title = self._entry.title or value
            # Fields whose names are mostly those of other works.
            distant = {"abstract", "annote", "annotation", "related", "crossref", "keywords", "cites"}
            self._entry.add(name, prefix + value if name == "eprint" else value, line, is_distant=name in distant)

    def _finish(self) -> list[entries.ReadItem]:
        names = self._read_part() + self._entry.close()
        self._entry = entries.OpenEntry()
        return names


def _find_names(part: str, strings: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The values of the `doi` fields in a part of an entry, and their places."""
    ends: dict[int, int] | None = None
    after = 0
    while match := _DOI_FIELD.search(part, after):
        ends = _find_ends(part) if ends is None else ends
        value, after = _read_value(part, match.end(), ends, strings)
        if value:
            yield match.start(), value


def _read_fields(part: str, strings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The fields of an entry that say what its work is. A line break in one is a blank."""
    part = part.replace("\n", " ")
    ends, after = _find_ends(part), 0
    while match := _CITED_FIELD.search(part, after):
        value, after = _read_value(part, match.end(), ends, strings, is_name=False)
        yield match[1], value


def _read_value(
    part: str, start: int, ends: Mapping[int, int], strings: Mapping[str, str], *, is_name: bool = True
) -> tuple[str, int]:
    """The value at a place, and where it ends: pieces in braces, in quotes or bare, which "#" joins."""
    value, after = "", start
    # Parts of a value that are joined by "#".
    for _ in range(16):
        is_bare = part[after : after + 1] not in _OPENING
        piece, after, following = _read_piece(part, after, ends, strings)
        known = strings.get(piece.lower()) if is_bare else None
        if known is None:
            # A blank at the end of a piece belongs to a title, and not to a name.
            known = _strip_tex(piece) if is_name else _read_tex(piece)
        value += known
        joined = _JOIN.match(part, following)
        if joined is None:
            break
        after = joined.end()
    return value, after


def _read_piece(part: str, start: int, ends: Mapping[int, int], strings: Mapping[str, str]) -> tuple[str, int, int]:
    """One piece of a value, where it ends, and what follows it. One that is not closed ends with its line."""
    if part[start : start + 1] not in _OPENING:
        bare = _BARE_VALUE.match(part, start)
        after = bare.end() if bare else start
        word, joint, _ = part[start:after].partition("#")
        after = start + len(word) if joint and word.lower() in strings else after
        return part[start:after], after, after
    end = ends.get(start)
    start += 1
    after = len(part) if end is None else end
    if end is None or after - start >= _MAX_VALUE_CHARACTERS:
        line_end = part.find("\n", start, start + _MAX_VALUE_CHARACTERS)
        after = line_end if line_end >= 0 else min(start + _MAX_VALUE_CHARACTERS, len(part))
        return part[start:after], after, after
    return part[start:after], after, after + 1


def _find_ends(part: str) -> dict[int, int]:
    """The places of braces and quotes that begin a value, with those of the ends."""
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
    return _read_tex(text)


def _read_tex(text: str) -> str:
    """The text without the TeX commands and braces that occur in names."""
    text = _TEX_COMMAND.sub("{", text)
    words = {"less": "<", "greater": ">", "underscore": "_"}
    text = _TEX.sub(lambda match: match["escaped"] or match["math"] or words[match["word"]], text)
    return text.replace("{", "").replace("}", "")


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


def _read_tags(tags: str) -> dict[str, str]:
    """The tags of a format, each with that of RIS."""
    return {tag: kind for part in tags.split() for kind, _, own in [part.partition(":")] for tag in own.split(",")}


RIS: Final = TagFormat(
    # Some programs write fewer blanks than the specification has.
    field=re.compile(r"\s*([A-Z][A-Z0-9]) {0,2}-(?: +(.*))?", re.DOTALL),
    starts=frozenset({"TY"}),
    ends=frozenset({"ER"}),
    names=frozenset({"DO"}),
    cited=_read_tags("TI:TI,T1 AU:AU,A1 ED:ED,A2 PY:PY,Y1,DA T2:T2,JO,JF,JA,BT PB:PB VL:VL IS:IS SP:SP"),
    distant=frozenset({"AB", "N2", "RN"}),
)
MEDLINE: Final = TagFormat(
    field=re.compile(r"([A-Z]{2,4}) {0,2}-(?: +(.*))?", re.DOTALL),
    starts=frozenset({"PMID"}),
    names=frozenset({"LID", "AID"}),
    cited=_read_tags("TI:TI AU:FAU,CN PY:DP T2:JT,TA VL:VI IS:IP SP:PG"),
    distant=frozenset({"AB", "CIN", "CON", "EIN", "EFR", "CRI", "CRF", "RIN", "ROF", "UIN", "UOF"}),
    mark="[doi]",
    key="PMID",
)
ENDNOTE: Final = TagFormat(
    field=re.compile(r"(%[0-9A-Z@!#$&()*+=<>?^~\[\]]) ?(.*)", re.DOTALL),
    starts=frozenset({"%0"}),
    names=frozenset({"%R"}),
    cited=_read_tags("TI:%T AU:%A ED:%E PY:%D T2:%J,%B PB:%I VL:%V IS:%N SP:%P"),
    distant=frozenset({"%X"}),
    mark="10.",
)
WEB_OF_SCIENCE: Final = TagFormat(
    field=re.compile(r"([A-Z][A-Z0-9])(?: (.*))?", re.DOTALL),
    starts=frozenset({"PT"}),
    ends=frozenset({"ER"}),
    names=frozenset({"DI"}),
    cited=_read_tags("TI:TI AU:AU PY:PY T2:SO PB:PU VL:VL IS:IS SP:BP,AR"),
    distant=frozenset({"AB", "CR"}),
)


class TaggedReader(lines.LineReader):
    """Reads the fields for names of each reference. One without is searched. A line that is too long is cut."""

    def __init__(
        self, tags: TagFormat, max_line_bytes: int, column: str | None = None, echo: str | None = None
    ) -> None:
        super().__init__(max_line_bytes, column, echo)
        self._tags = tags
        self._number = 0
        self._entry = entries.OpenEntry()
        #: The names of the reference.
        self._names: list[entries.ListItem] = []

    def _read(self, read: list[lines.Line]) -> list[entries.ReadItem]:
        items: list[entries.ReadItem] = []
        for line in read:
            text = lines.decode_bytes(line.data)[0]
            found = self._tags.field.match(text)
            if found is None:
                if more := text.strip():
                    self._entry.continue_field(more)
                continue
            tag, value = found[1], (found[2] or "").strip()
            if tag in self._tags.starts:
                items += self._finish()
                self._number += 1
                cited = "TY  - \n" if self.keeps_entries else ""
                self._entry = entries.OpenEntry(line.number, text.strip(), str(self._number), cited)
            elif tag in self._tags.ends:
                items += self._finish()
                continue
            items += self._take(tag, value, line)
        return items

    def _take(self, tag: str, value: str, line: lines.Line) -> list[entries.ReadItem]:
        """Read a field. Returns the names that wait no longer."""
        tags, entry = self._tags, self._entry
        if tag == tags.key and value:
            entry.key = value[: entries.MAX_EXCERPT]
        kind = tags.cited.get(tag)
        if kind is not None and value:
            if kind == "TI":
                entry.title = value
            if self.keeps_entries and len(entry.cited) < entries.MAX_ENTRY_CHARACTERS:
                entry.cited += f"{kind}  - {value[: entries.MAX_ENTRY_CHARACTERS]}\n"
        if tag not in tags.names or not value or tags.mark not in value:
            entry.add(tag, value, line.number, is_distant=tag in tags.distant)
            return []
        entry.has_name = True
        name = value.removesuffix(tags.mark).rstrip() if tags.key else value
        # MEDLINE has the same name in two fields.
        if tags is not MEDLINE or all(item.text.casefold() != name.casefold() for item in self._names):
            self._names.append(entries.ListItem(name, line.number, entry.key, note=lines.note_encoding(name, line)))
        # Names of one reference that wait for its end.
        return self._release() if len(self._names) >= 100 else []

    def _finish(self) -> list[entries.ReadItem]:
        """The names of the reference, or the reference to be searched."""
        items = self._release() + self._entry.close()
        self._entry = entries.OpenEntry()
        return items

    def _release(self) -> list[entries.ReadItem]:
        """The names, with what is known of their reference if it is kept."""
        names, self._names = self._names, []
        return [entries.divide(msgspec.structs.replace(name, cited=self._entry.cited)) for name in names]
