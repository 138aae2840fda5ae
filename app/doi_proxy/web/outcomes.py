"""The outcomes that pages show, each by a colour, a sign and a word."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

Outcome = Literal["registered", "corrected", "other", "unknown", "without", "missing", "gone"]
#: The sign of each outcome, which says the same as its colour: that of the class `is-…` in style.css.
SIGNS: Final = MappingProxyType[Outcome, str](
    {
        "registered": "\N{CHECK MARK}",
        "corrected": "\N{RIGHTWARDS ARROW}",
        "other": "!",
        "unknown": "?",
        "without": "\N{EN DASH}",
        "missing": "\N{BALLOT X}",
        "gone": "\N{EN DASH}",
    }
)
