"""Repairs of characters: look-alikes, other scripts, and characters that cannot be seen."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from doi_names.code_point import questionable

# A long dash before a letter separates the parts of a sentence.
# All repetitions are bounded: a search that backtracks over an unbounded one takes quadratic time.
_DASHES: Final = re.compile(
    r"[-\u00ad]{0,4}(?:[\u2010-\u2013\u2043\u2212\ufe58\ufe63]|[\u2014\u2015](?![A-Za-z]))[-\u00ad\u2010-\u2015\u2212]{0,4}(?!\Z|\s\D)"
)
#: U+FF01 to U+FF5E, Fullwidth Exclamation Mark to Fullwidth Tilde, in the order of ASCII; U+3000; dots.
_FULL_WIDTH: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0x3000: " ",
    0x2024: ".",
    0x3002: ".",
    0xFF61: ".",
}
#: RFC 3676, section 4.5.
_QUOTED_LINE: Final = re.compile(r"\n[ \t]{0,8}(?:>[ \t]?){1,8}")
#: A line of an e-mail goes on (RFC 2045, section 6.7).
_SOFT_BREAK: Final = re.compile(r"=\r?\n(?=\S)")
#: The zeros of decimal digits (Unicode, category Nd) of scripts that write numbers with their own, and U+066B, Arabic
#: Decimal Separator.
_ZEROS: Final = (
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040,
    0x17E0, 0x1810,
)  # fmt: skip
OTHER_DIGITS: Final = {zero + digit: str(digit) for zero in _ZEROS for digit in range(10)} | {0x66B: "."}
#: Fraction Slash, Division Slash, Big Solidus, Box Drawings Light Diagonal.
_SLASHES: Final = dict.fromkeys((0x2044, 0x2215, 0x29F8, 0x2571), "/")
#: What is one character for one: a text keeps its places.
PLAIN: Final = _FULL_WIDTH | OTHER_DIGITS | _SLASHES
#: Much Less-Than and Much Greater-Than, angle brackets of mathematics and of East Asia, single angle quotation marks.
_ANGLES: Final = dict.fromkeys("\u226a\u27e8\u2329\u3008\u2039", "<") | dict.fromkeys(
    "\u226b\u27e9\u232a\u3009\u203a", ">"
)
_ANGLE: Final = re.compile(rf"\\{{0,8}}([{''.join(_ANGLES)}])")
#: The end of a line inside a word.
_DIVIDED: Final = re.compile(r"\u00ad\s{1,4}")
#: U+FB00 to U+FB06.
_LIGATURES: Final = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}


def with_plain_blanks(text: str) -> str:
    """The text with one blank for each run of white space, and for the mark of a quoted line of an e-mail."""
    return " ".join(_QUOTED_LINE.sub(" ", _SOFT_BREAK.sub("", text)).split())


def without_full_width(text: str) -> str:
    """１０．１０００／１８２ -> 10.1000/182: the wide forms of East Asian fonts."""
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def with_ascii_digits(text: str) -> str:
    """١٠.١٠٠٠/١٨٢ -> 10.1000/182: the digits of another script."""
    return text if text.isascii() else text.translate(OTHER_DIGITS)


def without_ligatures(text: str) -> str:
    """10.1000/conﬁned -> 10.1000/confined: two letters that a font joins, as PDF has them."""
    return text if text.isascii() else text.translate(_LIGATURES)


def with_slashes(text: str) -> str:
    """10.1000⁄182 -> 10.1000/182: another character that looks like a slash."""
    return text if text.isascii() else text.translate(_SLASHES)


def with_hyphens(text: str) -> str:
    """10.1000/1–8 -> 10.1000/1-8: a typographic dash, with or without soft hyphens beside it."""
    return text if text.isascii() else _DASHES.sub("-", text)


def with_angle_brackets(text: str) -> str:
    """10.1000/a≪b≫c -> 10.1000/a<b>c: other characters that look like angle brackets."""
    return text if text.isascii() else _ANGLE.sub(lambda found: _ANGLES[found[1]], text)


def without_invisible(text: str) -> str:
    """10.1000/1\u200b82 -> 10.1000/182: every character that is not graphic, except white space."""
    if text.isprintable():
        return text
    text = _DIVIDED.sub("", text)
    dropped = {point.character for point in questionable(text)}
    return "".join(c for c in text if c.isspace() or (c not in dropped and unicodedata.category(c) not in ("Cc", "Cs")))
