"""Numbers as a reader of a language writes them. A language without a rule here gets that of English."""

from __future__ import annotations

from typing import Final

from doi_proxy.web.languages import Catalogue

#: The decimal mark and the mark between groups of three digits (Unicode CLDR, `numbers`).
_MARKS: Final = {"de": (",", "."), "es": (",", "."), "fr": (",", "\N{NARROW NO-BREAK SPACE}")}
_ENGLISH_MARKS: Final = (".", ",")
#: Languages in which every number below two takes the singular, as in "0 entrée" (Unicode CLDR, plural rules).
_SINGULAR_BELOW_TWO: Final = frozenset({"fr"})
#: A number with more digits is written without a fraction.
_WHOLE_FROM: Final = 100


def write_number(language: str, value: float, digits: int = 1) -> str:
    """A number with at most so many digits after the decimal mark, without zeros at its end."""
    mark, group = _MARKS.get(_main_tag(language), _ENGLISH_MARKS)
    text = f"{value:,.{0 if abs(value) >= _WHOLE_FROM else digits}f}"
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return text.translate({ord(","): group, ord("."): mark})


def write_share(language: str, share: float) -> str:
    """A share from 0 to 1 in per cent. German, French and Spanish have a space before the sign."""
    space = "\N{NO-BREAK SPACE}" if _main_tag(language) in _MARKS else ""
    return f"{write_number(language, 100 * share)}{space}%"


def write_count(texts: Catalogue, key: str, count: float) -> str:
    """A count with its noun. The noun is the text `key` with `_one` or `_many` at its end."""
    is_singular = count == 1 or (count < 2 and _main_tag(texts.language) in _SINGULAR_BELOW_TWO)
    return str(texts(key + ("_one" if is_singular else "_many"), count=write_number(texts.language, count)))


def _main_tag(language: str) -> str:
    return language.partition("-")[0]
