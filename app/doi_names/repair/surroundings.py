"""Repairs of surroundings: a name inside a longer text, a URL or a cell, and names with blanks inside."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from doi_names.carriers import read_carrier
from doi_names.name import questionable
from doi_names.repair import ends
from doi_names.repair.prefix import BEGINNING, NAME, NOT_SHORT, PREFIX

# A long dash before a letter separates the parts of a sentence.
# All repetitions are bounded: a search that backtracks over an unbounded one takes quadratic time.
_DASHES: Final = re.compile(
    r"[-\u00ad]{0,4}(?:[\u2010-\u2013\u2043\u2212\ufe58\ufe63]|[\u2014\u2015](?![A-Za-z]))[-\u00ad\u2010-\u2015\u2212]{0,4}(?!\Z|\s\D)"
)
#: U+FF01 to U+FF5E, Fullwidth Exclamation Mark to Fullwidth Tilde, in the order of ASCII; U+3000; dots.
FULL_WIDTH: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0x3000: " ",
    0x2024: ".",
    0x3002: ".",
    0xFF61: ".",
}
#: RFC 3676, section 4.5.
_QUOTED_LINE: Final = re.compile(r"\n[ \t]{0,8}(?:>[ \t]?){1,8}")
#: The zeros of decimal digits (Unicode, category Nd) of scripts that write numbers with their own, and U+066B, Arabic
#: Decimal Separator.
_ZEROS: Final = (
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040,
    0x17E0, 0x1810,
)  # fmt: skip
OTHER_DIGITS: Final = {zero + digit: str(digit) for zero in _ZEROS for digit in range(10)} | {0x66B: "."}
#: Fraction Slash, Division Slash, Big Solidus, Box Drawings Light Diagonal.
SLASHES: Final = dict.fromkeys((0x2044, 0x2215, 0x29F8, 0x2571), "/")
#: What is one character for one: a text keeps its places.
PLAIN: Final = FULL_WIDTH | OTHER_DIGITS | SLASHES
#: The end of a line inside a word.
_DIVIDED: Final = re.compile(r"\u00ad\s{1,4}")
#: U+FB00 to U+FB06.
LIGATURES: Final = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}


def with_plain_blanks(text: str) -> str:
    """The text with one blank for each run of white space, and for the mark of a quoted line of an e-mail."""
    return " ".join(_QUOTED_LINE.sub(" ", text).split())


def write_as(characters: Mapping[int, int | str], text: str) -> str:
    """A text with other characters for some that look like them."""
    return text if text.isascii() else text.translate(characters)


def with_hyphens(text: str) -> str:
    """10.1000/1–8 -> 10.1000/1-8: a typographic dash, with or without soft hyphens beside it."""
    return text if text.isascii() else _DASHES.sub("-", text)


def without_invisible(text: str) -> str:
    """10.1000/1\u200b82 -> 10.1000/182: every character that is not graphic, except white space."""
    if text.isprintable():
        return text
    text = _DIVIDED.sub("", text)
    dropped = {point.character for point in questionable(text)}
    return "".join(c for c in text if c.isspace() or (c not in dropped and unicodedata.category(c) not in ("Cc", "Cs")))


_CASELESS: Final = re.IGNORECASE | re.ASCII
_REPETITION: Final = re.compile(r"https?:|doi:|(?:dx\.)?doi\.org/|(?<=[a-z;,|&+\s(\[>/\\])10\.[0-9]{4,9}/", _CASELESS)
_BLANK_AFTER_PUNCTUATION: Final = re.compile(
    r"(?<=[/_\u00ad-])\s(?!(?<=\s/\s)(?-i:[A-Z][a-z]{2}))|(?<=10\.)\s(?=[0-9]{4})", _CASELESS
)
_BLANK_BEFORE_PUNCTUATION: Final = re.compile(r"\s(?=/(?!\s[A-Z][a-z]{2})\s?\S)|(?<=10)\s(?=\.\s?[0-9]{4})")
#: Numbers of sections, lists and days that follow a sentence are shorter, or do not begin with zero.
_BLANK_BEFORE_ZERO: Final = re.compile(
    r"(10\.[0-9]{4,9}/\S{1,200}\.)\s(?=0[0-9](?:[0-9]|\.[0-9]{3})|(?<=[0-9]\.\s)(?!(?:19|20)[0-9]{2}\.)[0-9]{3,5}\.[0-9]{2,5}(?![0-9.])|(?<=\.(?:19|20)[0-9]{2}\.\s)1[0-9]{5}(?![0-9]))"
)
#: The check characters of two segments make the number of an article of Elsevier one (Publisher Item Identifier).
_BLANK_IN_PII: Final = re.compile(
    r"\s(?:(?<=[0-9]{4}-[0-9]{3}[0-9X]\s)(?=\([0-9]{2}\)[0-9]{5}-)|(?<=-[0-9]{3}[0-9X]\([0-9]{2}\)\s)(?=[0-9]{5}-[0-9X]))"
)
_BLANK_BESIDE_DOT: Final = re.compile(r"\.\s|\s\.")
#: Programs that split a text into words write blanks on both sides of a dot. Prose does not.
_BLANKS_AROUND_DOT: Final = re.compile(r"(?<=[0-9A-Za-z])\s\.\s(?=[0-9A-Za-z])")
HYPHENATION: Final = re.compile(r"(?<=[a-z])-\s(?=[a-z])")
#: PDF readers write "_" as a blank. A chapter has the ISBN of its book, "_" and a number.
CHAPTER: Final = re.compile(r"(10\.[0-9]{4,9}/97[89]-[0-9-]{10,13}-[0-9X])\s([0-9]{1,3})(?=\Z|\s?[.,;)\]](?:\s|\Z))")
#: What ends the cells of a table, outside a SICI.
_CELL_ENDS: Final = {",": re.compile(","), ";": re.compile(r"(?<!\.CO);", _CASELESS)}
#: The path of a badge of shields.io is label-message-colour (shields.io, Static Badge).
_IN_BADGE: Final = re.compile(r"badge/[^\s/]{0,40}\Z", _CASELESS)
_BADGE: Final = re.compile(r"([^\s?]{1,200}?[^\s?-])-[0-9A-Za-z]{3,20}(?:\.(?:svg|png))?(?![0-9A-Za-z.-])")
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
    text = ends.join_segments(_BLANK_IN_PII.sub("", text))
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
    return CHAPTER.sub(r"\1_\2", text)


def without_inner_blank(text: str) -> str:
    """10.1000/18 2 -> 10.1000/182: a blank or a line break inside the name."""
    words = text.split(maxsplit=2)
    return "".join(words) if len(words) == 2 and "/" not in words[1] and _has_digit(words[1]) else text


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def name_inside(text: str) -> str:
    """http://example.org/doi/10.1000/182 -> 10.1000/182: the first name inside a longer text."""
    found = None if PREFIX.match(text) else NAME.search(text, 1)
    return within_cell(text[: found.start()], found[0]) if found else text


def within_cell(before: str, name: str) -> str:
    """The part of a name that is in the cell of a table or in a part of a badge, if what is before it begins one."""
    if before[-1:] not in _CELL_ENDS:
        badge = _BADGE.match(name) if _IN_BADGE.search(before) else None
        return badge[1] if badge else name
    end = _CELL_ENDS[before[-1:]].search(name)
    return name[: end.start()] if end else name


def next_name(text: str) -> str:
    """10.1000/182,10.1000/183 -> 10.1000/183: the next name of a list."""
    first = NAME.search(text)
    # Runs of white space are one blank in the texts that reach these repairs. The next name begins at least this many
    # characters after the first: a prefix and a slash.
    following = NAME.search(text, first.start() + len("10.1000/")) if first else None
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


_BACKSLASH: Final = re.compile(r"(10\.[0-9]{4,9}(?:\.[0-9]{1,9}){0,5})\\{1,4}/?(?=[0-9A-Za-z(])")


def with_slash_for_backslash(text: str) -> str:
    r"""10.1000\182 -> 10.1000/182"""
    found = _BACKSLASH.search(text) if "\\" in text else None
    # Inside a suffix, 10.2889 is a page, and its backslash begins an escape.
    if not found or PREFIX.search(text, 0, found.start()):
        return text
    return f"{text[: found.start()].replace(chr(92), '/')}{found[1]}/{text[found.end() :]}"


def decode_again(text: str) -> str:
    """10.1000%2F182 -> 10.1000/182: a name that was encoded twice. Malformed escapes are left as they are."""
    if "%" not in text:
        return text
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeError:
        return text
    return decoded if decoded == text else with_plain_blanks(read_carrier(decoded).text)
