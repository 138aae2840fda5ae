"""The Unicode code points of names (The Unicode Standard, section 2.4, table 2-3, types of code points)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_KINDS: Final = {
    "Cc": "a control character",
    "Cs": "a surrogate",
    "Cf": "a formatting character",
    "Zl": "a formatting character",
    "Zp": "a formatting character",
    "Co": "a private-use character",
    "Cn": "an unassigned code point",
}
#: Allowed in a request, although not graphic: formatting, private use, unassigned.
_QUESTIONABLE: Final = frozenset({"Cf", "Zl", "Zp", "Co", "Cn"})


@dataclass(frozen=True, slots=True)
class CodePoint:
    """One character of a name; `place` is its position in characters, counted from 1."""

    character: str
    place: int

    @property
    def notation(self) -> str:
        """The usual notation, at least four hexadecimal digits: U+00AD."""
        return f"U+{ord(self.character):04X}"

    @property
    def name(self) -> str | None:
        """The Unicode name; None if the code point has none."""
        return unicodedata.name(self.character, None)

    @property
    def category(self) -> str:
        """The general category, two letters: Cf."""
        return unicodedata.category(self.character)

    @property
    def kind(self) -> str:
        """The kind of code point in words, with an article: "a control character"."""
        return _KINDS.get(self.category, "a graphic character")

    def __str__(self) -> str:
        named = f"{self.notation} {self.name}" if self.name else self.notation
        return f"{named} at character {self.place}"


def first_not_graphic(text: str) -> CodePoint | None:
    """The first code point that is not graphic. L, M, N, P, S and Zs are graphic (ISO 26324, DOI syntax)."""
    # str.isprintable is false for every code point of the categories C and Z except the ASCII space.
    if text.isprintable():
        return None
    return next((CodePoint(c, place) for place, c in enumerate(text, 1) if unicodedata.category(c) in _KINDS), None)


def questionable(text: str) -> Iterator[CodePoint]:
    """The formatting, private-use and unassigned code points of `text`, by the Unicode tables of this Python."""
    if not text.isprintable():
        for place, character in enumerate(text, 1):
            if unicodedata.category(character) in _QUESTIONABLE:
                yield CodePoint(character, place)
