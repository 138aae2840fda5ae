"""Where the references are in a text: the list after its heading, and in it the lines of each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Separates the notes of a document from its text.
NOTES: Final = "\f"
#: A heading of a list of references: in English, German, French and Spanish.
_NAMES: Final = (
    *("references?", "reference list", "list of references", "bibliography", "works cited", "sources"),
    *("literature(?: cited)?", "cited literature", "literatur", "literaturverzeichnis", "quellen", "literaturangaben"),
    *(
        "literatur- und quellenverzeichnis",
        "quellen- und literaturverzeichnis",
        "quellenverzeichnis",
        "bibliogra(?:ph|f)ie",
    ),
    *("références(?: bibliographiques)?", "ouvrages cités", "liste des références", "referencias(?: bibliográficas)?"),
    *("bibliografía", "obras citadas", "lista de referencias", "fuentes"),
)
#: What can stand before the words of a heading: markup and a number.
_BEFORE: Final = r"^[ \t#*_>]{0,8}(?:[0-9]{1,2}(?:\.[0-9]{1,2}){0,3}\.?[ \t]{1,4}|[IVX]{1,5}\.?[ \t]{1,4})?"
_HEADING: Final = re.compile(rf"{_BEFORE}(?:{'|'.join(_NAMES)})[ \t*_:.]{{0,8}}$", re.IGNORECASE | re.MULTILINE)
#: A heading of what follows the list.
_FOLLOWING: Final = (
    *("appendi(?:x|ces)", "anhang", "annexes?", "anexos?", "apéndice", "acknowledge?ments?", "danksagung"),
    *("remerciements", "agradecimientos", "eidesstattliche", "declaration of", "erklärung", "curriculum vitae"),
    *("lebenslauf", "list of (?:figures|tables)"),
)
_NEXT_PART: Final = re.compile(rf"{_BEFORE}(?:{'|'.join(_FOLLOWING)})\b[^\n]{{0,60}}$", re.IGNORECASE | re.MULTILINE)
#: The number of a reference at the beginning of its line: "[1] ", "1. ", "(1) ".
_NUMBER: Final = re.compile(r"[ \t]{0,8}(?:\[([0-9]{1,4})\]|\(([0-9]{1,4})\)|([0-9]{1,4})[.)])[ \t]+(?=\S)")
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]{0,80}\n")
_YEAR: Final = re.compile(r"(?<![0-9])(?:1[5-9]|20)[0-9]{2}[a-z]?(?![0-9])")
_TRACE: Final = re.compile(r"10\.[0-9]{4,9}/|doi[.:]|arxiv", re.IGNORECASE)
#: How a reference begins that goes on in the next lines: with a family name.
_AUTHOR: Final = re.compile(r"[A-ZÀ-ÖØ-Þ][\w’'-]{1,40}(?:[ -][A-ZÀ-ÖØ-Þ][\w’'-]{1,40}){0,2}(?:,| [A-Z]{1,3}\b)")
#: Characters of a line that is broken because it is full.
_FULL_LINE: Final = 50


@dataclass(frozen=True, slots=True)
class ReferencePlaces:
    """Where the list of references begins and ends in a text, and the places of its references, in their order.

    `left_out` counts the other paragraphs of a long list without a heading: they do not look like references.
    """

    begin: int
    end: int
    places: tuple[tuple[int, int], ...]
    left_out: int


def find_references(text: str, *, is_document: bool) -> ReferencePlaces:
    """The places of the references of a text.

    In a document, each paragraph is one line. In a text, a number begins a reference; else a blank line does, or
    each line, unless lines are broken where they are full.
    """
    begin, end, has_heading = _find_list(text)
    blocks = list(_divide(text, (begin, end), is_document=is_document))
    # Longer lists without a heading are texts: only paragraphs that look like references count.
    is_short = has_heading or len(blocks) <= 50
    places: list[tuple[int, int]] = []
    left_out = 0
    for start, stop in blocks:
        block = text[start:stop]
        if not block.strip() or _HEADING.fullmatch(block.strip()):
            continue
        if is_short or _is_reference(block):
            places.append((start, stop))
        else:
            left_out += 1
    return ReferencePlaces(begin, end, tuple(places), left_out)


def _find_list(text: str) -> tuple[int, int, bool]:
    """Where the list of references begins and ends, and whether it has a heading. Without one, it is the whole text.

    The last heading counts that has something after it: a table of contents names the list too.
    """
    end = text.find(NOTES)
    end = len(text) if end < 0 else end
    begin, last = -1, len(text[:end].rstrip())
    for heading in _find_in_lines(_HEADING, text, 0, end):
        if heading.end() < last:
            begin = heading.end()
    if begin < 0:
        return 0, end, False
    following = next(_find_in_lines(_NEXT_PART, text, begin, end), None)
    return begin, following.start() if following else end, True


def _find_in_lines(pattern: re.Pattern[str], text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    """What matches in a line. Each search is of a block: no other thread runs during one of 2 million characters."""
    while begin < end:
        line_end = text.find("\n", min(begin + 16_384, end), end)
        after = end if line_end < 0 else line_end + 1
        yield from pattern.finditer(text, begin, after)
        begin = after


def _is_reference(block: str) -> bool:
    """Whether a paragraph of any text looks like a reference: it has a name or a year, or begins with a number."""
    return bool(_TRACE.search(block) or _YEAR.search(block) or _NUMBER.match(block.lstrip()))


def _divide(text: str, place: tuple[int, int], *, is_document: bool) -> Iterator[tuple[int, int]]:
    lines = list(_find_lines(text, place))
    if numbered := _find_numbered(text, lines):
        return _join(lines, numbered)
    if is_document:
        return iter(lines)
    if _BLANK_LINE.search(text[place[0] : place[1]].strip()):
        return _split_at_blanks(text, place)
    if _is_wrapped(text, lines):
        return _join(lines, [at for at, line in enumerate(lines) if at == 0 or _begins(text, lines[at - 1], line)])
    return iter(lines)


def _find_lines(text: str, place: tuple[int, int]) -> Iterator[tuple[int, int]]:
    start, end = place
    while start < end:
        line_end = text.find("\n", start, end)
        after = end if line_end < 0 else line_end + 1
        yield start, after
        start = after


def _find_numbered(text: str, lines: list[tuple[int, int]]) -> list[int]:
    """The lines that begin with the numbers of a list, one after the other. Empty if it is not numbered."""
    found: list[int] = []
    last: int | None = None
    for at, (start, end) in enumerate(lines):
        match = _NUMBER.match(text, start, end)
        number = int(match[1] or match[2] or match[3]) if match else None
        if number is not None and (number == (last or 0) + 1 if last is not None else number <= 1):
            found.append(at)
            last = number
    return found if len(found) > 1 else []


def _join(lines: list[tuple[int, int]], firsts: list[int]) -> Iterator[tuple[int, int]]:
    """The lines from each first one to the next. Lines before the first one are references of their own."""
    for at in range(firsts[0]):
        yield lines[at]
    for first, following in zip(firsts, [*firsts[1:], len(lines)], strict=True):
        yield lines[first][0], lines[following - 1][1]


def _split_at_blanks(text: str, place: tuple[int, int]) -> Iterator[tuple[int, int]]:
    done = place[0]
    for found in _BLANK_LINE.finditer(text, *place):
        yield done, found.end()
        done = found.end()
    yield done, place[1]


def _is_wrapped(text: str, lines: list[tuple[int, int]]) -> bool:
    """Whether lines are broken where they are full, as in the text of a PDF."""
    # Lines of a list that are looked at to find out how it is written.
    sample = [text[start:end].strip() for start, end in lines[:200]]
    sample = [line for line in sample if line]
    whole = sum(bool(_YEAR.search(line) or _TRACE.search(line)) for line in sample)
    full = sum(len(line) >= _FULL_LINE for line in sample)
    # In a list of one reference a line, at least three quarters of the lines have a year or a name.
    return len(sample) > 2 and whole < 0.75 * len(sample) and 2 * full >= len(sample)


def _begins(text: str, before: tuple[int, int], line: tuple[int, int]) -> bool:
    """Whether a line begins a reference: with a name, after a line that ends one."""
    previous = text[before[0] : before[1]].strip()
    is_end = previous.endswith((".", ")", "]")) or len(previous) < _FULL_LINE or _TRACE.search(previous) is not None
    return is_end and _AUTHOR.match(text[line[0] : line[1]].strip()) is not None
