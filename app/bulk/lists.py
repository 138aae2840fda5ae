"""Reads lists of names as a stream: text with one name per line, BibTeX and CSV.

BibTeX: Patashnik, "BibTeXing" (1988), for entries and fields. CSV: RFC 4180, also with `;` or a tab as the separator.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from app.doi.name import DOIName, HandleName
from app.doi.presentation import read_typed
from app.errors import ConfigurationError, InvalidName, NotUTF8

#: Standard input in place of a file.
STANDARD_INPUT: Final = "-"
#: Limit of a line, in bytes. A longer line is left out.
MAX_LINE_BYTES: Final = 1024 * 1024
#: Limit of a BibTeX entry, in characters. A longer entry is read in pieces.
MAX_ENTRY_CHARACTERS: Final = 1024 * 1024
#: Limit of the value of a BibTeX field, in characters. The rest is ignored.
_MAX_VALUE_CHARACTERS: Final = 32_768
#: Limit of the names that are remembered to find repeated ones: about 120 MB. Then the memory starts empty again.
MAX_REMEMBERED: Final = 1_000_000
#: Characters of an unreadable item that a message shows.
_SHOWN: Final = 80

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_SEPARATORS: Final = (",", ";", "\t")
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


@dataclass(frozen=True, slots=True)
class UnreadableItem:
    """An item of a list that is not a name: its place, its text, cut short, and the reason."""

    place: str
    text: str
    reason: str


Item = HandleName | UnreadableItem


class UniqueNames:
    """The items of a list, with each name once: in its first spelling, compared by its canonical key."""

    def __init__(self, items: Iterable[Item], most: int = MAX_REMEMBERED) -> None:
        self._items = items
        self._most = most
        #: Names left out so far because they are repeated.
        self.repeated = 0

    def __iter__(self) -> Iterator[Item]:
        seen: set[str] = set()
        for item in self._items:
            if isinstance(item, HandleName):
                if item.key in seen:
                    self.repeated += 1
                    continue
                if len(seen) >= self._most:
                    seen.clear()
                seen.add(item.key)
            yield item


def read_lists(paths: Sequence[str], *, column: str | None = None, any_handle: bool = False) -> Iterator[Item]:
    """Read the names of lists, one list after the other. `-` is standard input.

    The file name decides the format: `.bib`, or `.csv` and `.tsv`, each also with `.gz` at the end. Any other file is
    text, or CSV if a `column` is named. Without `column`, the first column "doi", in any letter case, has the names.
    Handles that are not DOI names or shortDOIs need `any_handle`.

    Raises ConfigurationError now if a file does not exist, and during the iteration if it cannot be read to its end.
    """
    for path in paths:
        if path != STANDARD_INPUT and (not Path(path).exists() or Path(path).is_dir()):
            raise ConfigurationError(f"{path}: there is no such file; check the path")
    return (item for path in paths for item in _read_list(path, column, any_handle))


def _read_list(path: str, column: str | None, any_handle: bool) -> Iterator[Item]:
    form = Path(path.lower().removesuffix(".gz")).suffix
    try:
        with _open(path) as file:
            lines = _Lines(path, file)
            if form == ".bib":
                texts = _read_bibtex(lines)
            elif form in (".csv", ".tsv") or column is not None:
                texts = _read_table(lines, column)
            else:
                texts = ((line.number, line.text) for line in lines if not line.text.lstrip().startswith("#"))
            for number, text in texts:
                yield from lines.take_refused()
                yield from _read_item(f"{path}, line {number}", text, any_handle)
            yield from lines.take_refused()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read to its end: {error}") from error


def _open(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    return cast(BinaryIO, gzip.open(path, "rb")) if path.lower().endswith(".gz") else Path(path).open("rb")


def _read_item(place: str, text: str, any_handle: bool) -> Iterator[Item]:
    if not text.strip():
        return
    try:
        yield read_name(text, any_handle=any_handle)
    except InvalidName as error:
        yield UnreadableItem(place, text.strip()[:_SHOWN], error.message)


def read_name(text: str, *, any_handle: bool = False) -> HandleName:
    """Read a name in any presentation form. Raises InvalidName; without `any_handle`, NotADOI for other handles."""
    if _REPLACED in text:
        raise NotUTF8
    name = read_typed(text)
    if any_handle or name.is_doi or name.is_short_doi:
        return name
    return DOIName.parse(name.text)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str


class _Lines:
    """The lines of a file, with their line ends. Bytes that are not UTF-8 become U+FFFD. Long lines are left out."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._refused: list[UnreadableItem] = []

    def refuse(self, number: int, shown: str, reason: str) -> None:
        """Record an item that is left out, by its line."""
        self._refused.append(UnreadableItem(f"{self._path}, line {number}", shown, reason))

    def take_refused(self) -> list[UnreadableItem]:
        """Return and clear the items left out since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def __iter__(self) -> Iterator[_Line]:
        number = 0
        while raw := self._file.readline(MAX_LINE_BYTES):
            number += 1
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                shown = raw[:_SHOWN].decode("utf-8", "replace")
                self.refuse(number, shown, f"The line is longer than {MAX_LINE_BYTES} bytes.")
                self._skip_rest()
                continue
            yield _Line(number, raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace"))

    def _skip_rest(self) -> None:
        while (raw := self._file.readline(MAX_LINE_BYTES)) and not raw.endswith(b"\n"):
            pass


# --- CSV ----------------------------------------------------------------------------------------------------------


def _read_table(lines: _Lines, column: str | None) -> Iterator[tuple[int, str]]:
    numbered = iter(lines)
    header = next((line for line in numbered if line.text.strip()), None)
    if header is None:
        return
    separator, place = _find_column(header.text, column)
    rows = csv.reader((line.text for line in numbered), delimiter=separator, strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            # For example, a quote is not closed. The next row begins on the next line.
            lines.refuse(header.number + rows.line_num, "", f"The row is not valid CSV: {error}.")
            continue
        if place < len(row):
            yield header.number + rows.line_num, row[place]


def _find_column(header: str, column: str | None) -> tuple[str, int]:
    """Find the separator and the place of a column. Raises ConfigurationError with the names of the columns."""
    shown: list[str] = []
    for separator in _SEPARATORS:
        try:
            names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
        except csv.Error:
            continue
        for place, name in enumerate(names):
            if name == column or (column is None and name.lower() == "doi"):
                return separator, place
        shown = max(shown, names, key=len)
    wanted = "doi" if column is None else column
    there = ", ".join(shown)[:500]
    raise ConfigurationError(f"--column: the list has no column {wanted!r}; its columns are: {there}")


# --- BibTeX -------------------------------------------------------------------------------------------------------


def _read_bibtex(lines: _Lines) -> Iterator[tuple[int, str]]:
    """Read the `doi` fields of each entry. An entry without one is searched for DOI URLs."""
    for number, entry in _split_entries(lines):
        if _NOT_AN_ENTRY.match(entry):
            continue
        fields = [(match.start(), _read_value(entry, match.end())) for match in _DOI_FIELD.finditer(entry)]
        doi_fields = [(at, text) for at, text in fields if text]
        for at, text in doi_fields or [(match.start(), _trim_url(match[0])) for match in _DOI_URL.finditer(entry)]:
            yield number + entry.count("\n", 0, at), _strip_tex(text)


def _split_entries(lines: _Lines) -> Iterator[tuple[int, str]]:
    """Split a file into entries, with the line on which each begins. Text before the first `@` is a comment."""
    first, parts, length = 0, list[str](), 0
    for line in lines:
        begins = line.text.lstrip().startswith("@")
        if parts and (begins or length >= MAX_ENTRY_CHARACTERS):
            yield first, "".join(parts)
            first, parts, length = line.number, [], 0
        if begins or first:
            first = first or line.number
            parts.append(line.text)
            length += len(line.text)
    if parts:
        yield first, "".join(parts)


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


def _trim_url(url: str) -> str:
    """Remove the punctuation after a URL in running text."""
    url = url.rstrip(".,;")
    return url.rstrip(")") if "(" not in url else url


def _strip_tex(text: str) -> str:
    # A line break inside a value is not part of the name.
    text = _WHITE_SPACE.sub(lambda match: "" if set(match[0]) & {"\r", "\n"} else match[0], text.strip())
    text = _TEX_URL.sub("{", text)
    text = _TEX.sub(lambda match: match["escaped"] or match["math"] or _TEX_WORDS[match["word"]], text)
    return text.replace("{", "").replace("}", "")
