"""Lists of names: text with one a line, BibTeX, CSV; read as a stream, tolerant of what surrounds the names.

BibTeX: Patashnik, "BibTeXing" (1988), for entries and fields. CSV: RFC 4180, and `;` or a tab as the separator.
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
#: A longer line is left out, in bytes.
LONGEST_LINE: Final = 1024 * 1024
#: A longer BibTeX entry is read in pieces, in characters.
LONGEST_ENTRY: Final = 1024 * 1024
#: A longer value of a BibTeX field is no name, in characters.
_LONGEST_VALUE: Final = 32_768
#: Names remembered to tell repeated ones; about 120 MB. Beyond them a repeated name may be given again.
MAX_REMEMBERED: Final = 1_000_000
#: Characters of a line that cannot be read which are shown.
_SHOWN: Final = 80

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_SEPARATORS: Final = (",", ";", "\t")
_DOI_FIELD: Final = re.compile(r"(?<![\w-])doi\s*=\s*", re.IGNORECASE)
_DOI_URL: Final = re.compile(r"https?://(?:(?:dx|www)\.)?doi\.org/[^\s{}\"]+", re.IGNORECASE)
_NO_ENTRY: Final = re.compile(r"\s*@\s*(?:comment|string|preamble)\b", re.IGNORECASE)
_BARE_VALUE: Final = re.compile(r"[^\s,{}\"]*")
#: What TeX writes for characters that a name may hold.
_TEX: Final = re.compile(
    r"\\(?P<plain>[_%&#$<>])|\$(?P<math>[<>])\$|\\text(?P<word>less|greater|underscore)\b\s*(?:\{\})?"
)
_TEX_WORDS: Final = {"less": "<", "greater": ">", "underscore": "_"}
_TEX_URL: Final = re.compile(r"\\(?:url|href|nolinkurl|path)\s*\{")
_WHITE_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class NotRead:
    """An item of a list that is no name: where it stands, what is written there (cut short), and why."""

    place: str
    text: str
    reason: str


Item = HandleName | NotRead


class Distinct:
    """Each name once, by its canonical key, in its first spelling; at most MAX_REMEMBERED are remembered."""

    def __init__(self, items: Iterable[Item], most: int = MAX_REMEMBERED) -> None:
        self._items = items
        self._most = most
        #: Names left out so far because they were given before.
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
    """The names of lists, one list behind the other; `-` is standard input.

    A name ending in `.bib` or `.csv` (or `.tsv`), also with `.gz` behind it, tells the form; all else is text, or CSV
    where a `column` is named. Without one, a CSV file's column is the first called "doi" in any case. Only DOI names
    and shortDOIs are names here, unless `any_handle`. Raises ConfigurationError: for a file that is not there at once,
    for one that cannot be read to its end while it is read.
    """
    for path in paths:
        if path != STANDARD_INPUT and (not Path(path).exists() or Path(path).is_dir()):
            raise ConfigurationError(f"{path}: there is no such file")
    return (item for path in paths for item in _read_list(path, column, any_handle))


def _read_list(path: str, column: str | None, any_handle: bool) -> Iterator[Item]:
    form = Path(path.lower().removesuffix(".gz")).suffix
    try:
        with _opened(path) as file:
            lines = _Lines(path, file)
            if form == ".bib":
                found = _in_bibtex(lines)
            elif form in (".csv", ".tsv") or column is not None:
                found = _in_table(lines, column)
            else:
                found = ((line.number, line.text) for line in lines if not line.text.lstrip().startswith("#"))
            for number, text in found:
                yield from lines.refused()
                yield from _named(f"{path}, line {number}", text, any_handle)
            yield from lines.refused()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read to its end: {error}") from error


def _opened(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    return cast(BinaryIO, gzip.open(path, "rb")) if path.lower().endswith(".gz") else Path(path).open("rb")


def _named(place: str, text: str, any_handle: bool) -> Iterator[Item]:
    if not text.strip():
        return
    try:
        yield read_name(text, any_handle=any_handle)
    except InvalidName as error:
        yield NotRead(place, text.strip()[:_SHOWN], error.message)


def read_name(text: str, *, any_handle: bool = False) -> HandleName:
    """The name in any presentation form of it. Raises InvalidName, NotADOI for handles too unless `any_handle`."""
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
    """The lines of a file, with their ends; what is no UTF-8 becomes U+FFFD, lines too long are left out."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._refused: list[NotRead] = []

    def refuse(self, number: int, shown: str, reason: str) -> None:
        """Leave out what begins or ends on a line."""
        self._refused.append(NotRead(f"{self._path}, line {number}", shown, reason))

    def refused(self) -> list[NotRead]:
        """The lines left out since the last time."""
        refused, self._refused = self._refused, []
        return refused

    def __iter__(self) -> Iterator[_Line]:
        number = 0
        while raw := self._file.readline(LONGEST_LINE):
            number += 1
            if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                shown = raw[:_SHOWN].decode("utf-8", "replace")
                self.refuse(number, shown, f"The line is longer than {LONGEST_LINE} bytes.")
                self._skip_rest()
                continue
            yield _Line(number, raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace"))

    def _skip_rest(self) -> None:
        while (raw := self._file.readline(LONGEST_LINE)) and not raw.endswith(b"\n"):
            pass


# --- CSV ----------------------------------------------------------------------------------------------------------


def _in_table(lines: _Lines, column: str | None) -> Iterator[tuple[int, str]]:
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
            # Such as a quote that is never closed; the next row begins on the next line.
            lines.refuse(header.number + rows.line_num, "", f"The row is no CSV: {error}.")
            continue
        if place < len(row):
            yield header.number + rows.line_num, row[place]


def _find_column(header: str, column: str | None) -> tuple[str, int]:
    """The separator and the place of the column. Raises ConfigurationError that names the columns there are."""
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
    raise ConfigurationError(f"--column: no column is called {wanted!r}; there are: {there}")


# --- BibTeX -------------------------------------------------------------------------------------------------------


def _in_bibtex(lines: _Lines) -> Iterator[tuple[int, str]]:
    """The `doi` fields of each entry; of an entry without one, the DOI URLs in any of its fields."""
    for number, entry in _entries(lines):
        if _NO_ENTRY.match(entry):
            continue
        fields = [(found.start(), _value(entry, found.end())) for found in _DOI_FIELD.finditer(entry)]
        given = [(at, text) for at, text in fields if text]
        for at, text in given or [(found.start(), _trimmed(found[0])) for found in _DOI_URL.finditer(entry)]:
            yield number + entry.count("\n", 0, at), _without_tex(text)


def _entries(lines: _Lines) -> Iterator[tuple[int, str]]:
    """The entries by the lines on which they begin; what stands before the first `@` is a comment."""
    first, parts, length = 0, list[str](), 0
    for line in lines:
        begins = line.text.lstrip().startswith("@")
        if parts and (begins or length >= LONGEST_ENTRY):
            yield first, "".join(parts)
            first, parts, length = line.number, [], 0
        if begins or first:
            first = first or line.number
            parts.append(line.text)
            length += len(line.text)
    if parts:
        yield first, "".join(parts)


def _value(entry: str, start: int) -> str:
    """The value of a field: in braces, in quotes, or bare; what is never closed ends with the entry."""
    opening = entry[start : start + 1]
    if opening not in ("{", '"'):
        found = _BARE_VALUE.match(entry, start)
        return found[0] if found else ""
    depth, end = 0, min(len(entry), start + _LONGEST_VALUE)
    for at in range(start + 1, end):
        one = entry[at]
        if one in "{}" and entry[at - 1] == "\\":
            continue
        if depth == 0 and one == ("}" if opening == "{" else '"'):
            return entry[start + 1 : at]
        depth += (one == "{") - (one == "}")
    return entry[start + 1 : end].partition("\n")[0]


def _trimmed(url: str) -> str:
    """A URL in running text without the punctuation behind it."""
    url = url.rstrip(".,;")
    return url.rstrip(")") if "(" not in url else url


def _without_tex(text: str) -> str:
    # A value that is wrapped over lines is one text.
    text = _WHITE_SPACE.sub(lambda found: "" if set(found[0]) & {"\r", "\n"} else found[0], text.strip())
    text = _TEX_URL.sub("{", text)
    plain = _TEX.sub(lambda found: found["plain"] or found["math"] or _TEX_WORDS[found["word"]], text)
    return plain.replace("{", "").replace("}", "")
