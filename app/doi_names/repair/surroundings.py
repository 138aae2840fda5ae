"""Repairs of surroundings: a name inside a longer text, a URL or a cell, and names with blanks inside."""

from __future__ import annotations

import re
from typing import Final

from doi_names.repair import sici
from doi_names.repair.prefix import BEGINNING, NAME, NOT_SHORT, PREFIX

_CASELESS: Final = re.IGNORECASE | re.ASCII
_REPETITION: Final = re.compile(r"https?:|doi:|(?:dx\.)?doi\.org/|(?<=[a-z;,|&+\s(\[>/\\])10\.[0-9]{4,9}/", _CASELESS)
# Runs of white space are one blank in the texts that reach these repairs.
#: The next name begins at least this many characters after the first: a prefix and a slash.
_MIN_PREFIX_CHARACTERS: Final = len("10.1000/")
_BLANK_AFTER_PUNCTUATION: Final = re.compile(r"(?<=[/_\u00ad-])\s|(?<=10\.)\s(?=[0-9]{4})", _CASELESS)
_BLANK_BEFORE_PUNCTUATION: Final = re.compile(r"\s(?=/\s?\S)|(?<=10)\s(?=\.\s?[0-9]{4})")
#: Numbers of sections, lists and days that follow a sentence are shorter, or do not begin with zero.
_BLANK_BEFORE_ZERO: Final = re.compile(
    r"(10\.[0-9]{4,9}/\S{1,200}\.)\s(?=0[0-9](?:[0-9]|\.[0-9]{3})|(?<=\.(?:19|20)[0-9]{2}\.\s)1[0-9]{5}(?![0-9]))"
)
#: The check characters of two segments make the number of an article of Elsevier one (Publisher Item Identifier).
_BLANK_IN_PII: Final = re.compile(
    r"\s(?:(?<=[0-9]{4}-[0-9]{3}[0-9X]\s)(?=\([0-9]{2}\)[0-9]{5}-)|(?<=-[0-9]{3}[0-9X]\([0-9]{2}\)\s)(?=[0-9]{5}-[0-9X]))"
)
_BLANK_BESIDE_DOT: Final = re.compile(r"\.\s|\s\.")
#: Programs that split a text into words write blanks on both sides of a dot. Prose does not.
_BLANKS_AROUND_DOT: Final = re.compile(r"(?<=[0-9A-Za-z])\s\.\s(?=[0-9A-Za-z])")
_HYPHENATION: Final = re.compile(r"(?<=[a-z])-\s(?=[a-z])")
#: PDF readers write "_" as a blank. A chapter has the ISBN of its book, "_" and a number.
_CHAPTER: Final = re.compile(r"(10\.[0-9]{4,9}/97[89]-[0-9-]{10,13}-[0-9X])\s([0-9]{1,3})(?=\Z|\s?[.,;)\]](?:\s|\Z))")
#: What ends the cells of a table, outside a SICI.
_CELL_ENDS: Final = {",": re.compile(","), ";": re.compile(r"(?<!\.CO);", _CASELESS)}
_EMPHASIS: Final = "*_~`"
#: Inside a text, only the underscore can be part of a name.
_UNDERSCORES: Final = re.compile(r"(?<![0-9A-Za-z])_(10\.[0-9]{4,9}[./]\S{1,200}?)_(?![0-9A-Za-z/])")
#: In a text, a letter comes first: 10/12 is a date or a fraction. After a digit and a slash it is a date: 2020/10/may.
_SHORT: Final = re.compile(
    rf"(?:(?<![0-9A-Za-z.-])(?<![0-9]/)10/|(?<=doi\.org/){NOT_SHORT})([a-z][0-9a-z]{{2,7}})(?![0-9A-Za-z/_.-]{{2}}|[0-9A-Za-z/_-])",
    re.ASCII,
)


def before_repetition(text: str) -> str:
    """10.1000/182 https://doi.org/10.1000/182 -> 10.1000/182"""
    first = BEGINNING.search(text)
    found = _REPETITION.search(text, first.end()) if first else None
    # A plus sign can end a name: 10.1021/ja003055+.
    return text[: found.start()].removesuffix("+").rstrip(" ;,|([/\\\t\r\n") if found else text


def without_emphasis(text: str) -> str:
    """_10.1000/182_ -> 10.1000/182: emphasis of Markdown around the name."""
    text = text.strip(_EMPHASIS) if text.startswith(tuple(_EMPHASIS)) else text
    return _UNDERSCORES.sub(r"\1", text)


def first_word(text: str) -> str:
    """10.1000/182 PMCID: PMC1 -> 10.1000/182: also the first line of a cell."""
    word = next(iter(text.split(maxsplit=1)), "")
    return word if NAME.search(word) else text


def without_blanks(text: str) -> str:
    """10.1000/ 182 -> 10.1000/182: a line was broken at a punctuation mark."""
    if " " not in text:
        return text
    text = _BLANK_BEFORE_PUNCTUATION.sub("", _BLANK_AFTER_PUNCTUATION.sub("", text))
    text = _BLANKS_AROUND_DOT.sub(".", text)
    text = sici.join_segments(_BLANK_IN_PII.sub("", text))
    text = _BLANK_BEFORE_ZERO.sub(r"\1", text)
    found = PREFIX.search(text)
    begin = found.start() if found else 0
    words = text[begin:].split(maxsplit=2)
    # "10.1000/journal. 182" is one name; "10.1000/182. 2020" is a name and a year.
    if len(words) == 2 and not _has_digit(words[0].partition("/")[2]) and _has_digit(words[1]):
        return text[:begin] + _BLANK_BESIDE_DOT.sub(".", text[begin:])
    return text


def with_chapter(text: str) -> str:
    """10.1000/978-1-4939-0000-1 12 -> 10.1000/978-1-4939-0000-1_12: the underscore before the number of a chapter."""
    return _CHAPTER.sub(r"\1_\2", text)


def without_hyphenation(text: str) -> str:
    """10.1000/jour- nal.182 -> 10.1000/journal.182: a hyphen that typesetting added at the end of a line."""
    return _HYPHENATION.sub("", text) if "- " in text else text


def without_inner_blank(text: str) -> str:
    """10.1000/18 2 -> 10.1000/182: a blank or a line break inside the name."""
    words = text.split(maxsplit=2)
    return "".join(words) if len(words) == 2 and "/" not in words[1] and _has_digit(words[1]) else text


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def name_inside(text: str) -> str:
    """http://example.org/doi/10.1000/182 -> 10.1000/182: the first name inside a longer text."""
    found = None if PREFIX.match(text) else NAME.search(text, 1)
    return within_cell(text[found.start() - 1], found[0]) if found else text


def within_cell(before: str, name: str) -> str:
    """The part of a name that is in the cell of a table, if the character before it ends a cell."""
    if before not in _CELL_ENDS:
        return name
    end = _CELL_ENDS[before].search(name)
    return name[: end.start()] if end else name


def next_name(text: str) -> str:
    """10.1000/182,10.1000/183 -> 10.1000/183: the next name of a list."""
    first = NAME.search(text)
    following = NAME.search(text, first.start() + _MIN_PREFIX_CHARACTERS) if first else None
    return text[following.start() :] if following else text


def short_doi_inside(text: str) -> str:
    """see https://example.org/10/aabbe -> 10/aabbe: a shortDOI inside a longer text."""
    found = _SHORT.search(text)
    return f"10/{found[1]}" if found else text


def without_own_url(text: str, own_hosts: frozenset[str]) -> str:
    """https://doi.example.org/aabbe -> 10/aabbe: a URL of this resolver. `own_hosts` may have ports and paths."""
    head, scheme, rest = text.strip().partition("://")
    if not scheme:
        rest = head
    elif head.lower() not in ("http", "https"):
        return text
    for host in own_hosts:
        if not host or rest[: len(host)].lower() != host.lower():
            continue
        after = rest[len(host) :].removeprefix(":443").removeprefix(":80")
        if after.startswith("/"):
            return after.lstrip("/")
    return text
