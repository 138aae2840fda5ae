"""Likely mistakes in a name: look-alikes, mixed scripts, invisible characters, a reserved form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from doi_names.code_point import CodePoint, questionable
from doi_names.name import HandleName

#: The most warnings about one name: 8 kB of soft hyphens would be 4,000.
MAX_WARNINGS: Final = 10

#: The prefixes that agencies assign (ISO 26324, section 4.2, allows others), those of ISBN-As, which begin with 978 or
#: 979 (DOI Handbook, ISBN-A), and that of shortDOIs.
USUAL_PREFIX: Final = re.compile(r"10(?:\.(?:[0-9]{4,9}|97[89])(?:\.[0-9]{1,9})*)?")
_MAX_SHOWN: Final = 40

#: What looks like an ASCII character. Full-width forms are computed.
_LOOK_ALIKES: Final = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63", "-"),
    **dict.fromkeys("\u2044\u2215\u29f8", "/"),
    **dict.fromkeys("\u2024\u3002", "."),
}
_FULL_WIDTH: Final = range(0xFF01, 0xFF5F)
_FULL_WIDTH_OFFSET: Final = 0xFF01 - 0x21
#: Scripts with letters that look alike (Unicode Technical Standard 39, section 4, confusable detection).
_CONFUSABLE_SCRIPTS: Final = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC"})
#: Codes of warnings by the general category of a code point.
_CODES: Final = {
    "Cf": "formatting-character",
    "Zl": "formatting-character",
    "Zp": "formatting-character",
    "Co": "private-use-character",
    "Cn": "unassigned-code-point",
}


@dataclass(frozen=True, slots=True)
class NameWarning:
    """A likely mistake. `code` is a stable token; `message` has the position in the name, counted from 1."""

    code: str
    message: str


def find_warnings(name: HandleName) -> tuple[NameWarning, ...]:
    """The likely mistakes in a name, at most MAX_WARNINGS."""
    return tuple(islice(_find_all(name), MAX_WARNINGS))


def _find_all(name: HandleName) -> Iterator[NameWarning]:
    if name.is_doi and name.is_reserved:
        place = len(name.prefix) + 2
        message = f"The suffix begins with one character and a slash, at character {place}; this form is reserved."
        yield NameWarning("reserved-form", message)
    if name.is_doi and not USUAL_PREFIX.fullmatch(name.prefix):
        message = f"The prefix {name.prefix[:_MAX_SHOWN]} is unlikely: after 10. it has four to nine digits."
        yield NameWarning("unlikely-prefix", message)
    if name.text.isascii():
        return
    yield from _find_mixed_scripts(name.text)
    yield from _find_look_alikes(name.text)
    for point in questionable(name.text):
        yield NameWarning(_CODES[point.category], f"{point} is {point.kind}, which is likely a copying error.")


def _find_look_alikes(text: str) -> Iterator[NameWarning]:
    for place, character in enumerate(text, 1):
        if (plain := _look_alike(character)) is not None:
            point = CodePoint(character, place)
            yield NameWarning("look-alike", f'{point} looks like "{plain}".')


def _look_alike(character: str) -> str | None:
    """The ASCII character that another one looks like."""
    code = ord(character)
    return chr(code - _FULL_WIDTH_OFFSET) if code in _FULL_WIDTH else _LOOK_ALIKES.get(character)


def _find_mixed_scripts(text: str) -> Iterator[NameWarning]:
    """One warning at the first letter of another script than the letters before it."""
    first = None
    for place, character in enumerate(text, 1):
        script = _script(character)
        if script is None:
            continue
        first = first or script
        if script != first:
            point = CodePoint(character, place)
            yield NameWarning(
                "mixed-scripts", f"{point} is {script.title()}; the letters before it are {first.title()}."
            )
            return


def _script(character: str) -> str | None:
    """The script of a letter, by its Unicode name; None if no other script has letters that look like it."""
    if not character.isalpha():
        return None
    word = unicodedata.name(character, "").partition(" ")[0]
    return word if word in _CONFUSABLE_SCRIPTS else None
