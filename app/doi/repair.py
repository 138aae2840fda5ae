"""Repairs for text that does not name what its writer meant.

Each function undoes one copying error, or returns the text unchanged. Its docstring begins with an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from typing import Final

from app.doi.code_point import questionable
from app.doi.percent import decode
from app.errors import InvalidName

# All repetitions are bounded: a search that backtracks over an unbounded one takes quadratic time.
#: The most characters that are cut from the end.
_MAX_ENDINGS: Final = 16
_ENDINGS: Final = frozenset(".,;:\"'")
_OPENERS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}
_CASELESS: Final = re.IGNORECASE | re.ASCII
_PAGE_PART: Final = re.compile(r"(?:/(?:abstract|full|fulltext|pdf|epdf|html|meta)|\.pdf)\Z", _CASELESS)
_THREE_DIGITS: Final = re.compile(r"\A10\.([0-9]{3})/")
_REPETITION: Final = re.compile(r"https?:|doi:|(?:dx\.)?doi\.org/", _CASELESS)
_DASHES: Final = re.compile("[-\u00ad]{0,4}[\u2010-\u2015\u2212][-\u00ad\u2010-\u2015\u2212]{0,4}")
_BLANK_AFTER_PUNCTUATION: Final = re.compile(r"(?<=[/._-])\s{1,16}")
_QUERY_OR_FRAGMENT: Final = re.compile(r"(?:[?#&](?=[A-Za-z])|\?\Z).*", re.DOTALL)
_LATEX_ESCAPE: Final = re.compile(r"\\{1,4}(?=[_&%#${}<>])")
_NAME_INSIDE: Final = re.compile(r'(?<![0-9])10\.[0-9]{4,9}(?:\.[0-9]{1,9}){0,5}/[^\s?#&"]+')


def without_trailing_slash(text: str) -> str:
    """10.1000/182/ -> 10.1000/182"""
    return text.rstrip("/")


def without_trailing_punctuation(text: str) -> str:
    """10.1000/182). -> 10.1000/182; a closing bracket is cut only if its opening bracket is missing."""
    for _ in range(_MAX_ENDINGS):
        last = text[-1:]
        opener = _OPENERS.get(last)
        if last not in _ENDINGS and not (opener and text.count(last) > text.count(opener)):
            break
        text = text[:-1].rstrip()
    return text


def without_page_part(text: str) -> str:
    """10.1000/182/abstract -> 10.1000/182: the part that a publisher's URL adds after the name."""
    return _PAGE_PART.sub("", text)


def without_questionable(text: str) -> str:
    """The text without formatting, private-use and unassigned code points."""
    dropped = {point.character for point in questionable(text)}
    return "".join(c for c in text if c not in dropped) if dropped else text


def decode_again(text: str) -> str:
    """10.1000%2F182 -> 10.1000/182: a name that was encoded twice."""
    try:
        return decode(text)
    except InvalidName:
        return text


def with_lost_zero(text: str) -> str:
    """10.231/x -> 10.2310/x: a spreadsheet read the prefix as a decimal number."""
    return _THREE_DIGITS.sub(r"10.\g<1>0/", text)


def before_repetition(text: str) -> str:
    """10.1000/182 https://doi.org/10.1000/182 -> 10.1000/182"""
    found = _REPETITION.search(text, 1)
    return text[: found.start()].rstrip(" ;,|(") if found else text


def with_hyphens(text: str) -> str:
    """Replace typographic dashes, with or without soft hyphens beside them, by one HYPHEN-MINUS."""
    return _DASHES.sub("-", text)


def without_blanks(text: str) -> str:
    """10.1000/ 182 -> 10.1000/182: a line was broken after punctuation."""
    return _BLANK_AFTER_PUNCTUATION.sub("", text)


def first_word(text: str) -> str:
    """10.1000/182 PMCID: PMC1 -> 10.1000/182"""
    return text.split(maxsplit=1)[0] if text.strip() else text


def without_html_entities(text: str) -> str:
    """10.1000/a&lt;b -> 10.1000/a<b"""
    return unescape(text)


def without_query_or_fragment(text: str) -> str:
    """10.1000/182#page -> 10.1000/182"""
    return _QUERY_OR_FRAGMENT.sub("", text)


def without_latex_escapes(text: str) -> str:
    r"""10.1000/18\_2 -> 10.1000/18_2"""
    return _LATEX_ESCAPE.sub("", text)


def name_inside(text: str) -> str:
    """http://example.org/doi/10.1000/182 -> 10.1000/182: the first name inside a longer text."""
    found = _NAME_INSIDE.search(text, 1)
    return found[0] if found else text


@dataclass(frozen=True, slots=True)
class Repair:
    """A function that undoes one copying error. `rule` is its stable name in suggestions, in kebab case."""

    rule: str
    apply: Callable[[str], str]


#: In order of likelihood.
REPAIRS: Final = (
    Repair("trailing-slash", without_trailing_slash),
    Repair("trailing-punctuation", without_trailing_punctuation),
    Repair("page-part", without_page_part),
    Repair("dash", with_hyphens),
    Repair("invisible-character", without_questionable),
    Repair("percent-encoding", decode_again),
    Repair("lost-zero", with_lost_zero),
    Repair("repetition", before_repetition),
    Repair("first-word", first_word),
    Repair("blank", without_blanks),
    Repair("html-entity", without_html_entities),
    Repair("query-or-fragment", without_query_or_fragment),
    Repair("latex-escape", without_latex_escapes),
    Repair("name-in-text", name_inside),
)
