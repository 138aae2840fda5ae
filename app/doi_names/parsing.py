"""What a text is, decided from its form alone: a DOI name, a shortDOI, a handle, a prefix or none of them.

A text is read as in a request path and in the form (doi_names.presentation). Whether a name exists is not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from doi_names.candidates import suggest_unchecked
from doi_names.confusable import NameWarning, find_warnings
from doi_names.errors import InvalidName
from doi_names.name import DOIName, HandleName
from doi_names.suggestion import Reading, Suggestion
from doi_names.typed_name import is_marked_handle, read_with_rules

Kind = Literal["doi", "short_doi", "handle", "prefix", "not_a_doi"]

#: Naming authorities in use begin with a number. Without this rule "and/or" would be a handle.
_NUMBERED_PREFIX: Final = re.compile(r"[0-9]+(?:\.[^\s./]+)*")
_ANY_PREFIX: Final = re.compile(r"[^\s./]+(?:\.[^\s./]+)*")
#: The only plus sign of a name: at its end, before the "<" of a SICI, or between two letters or digits.
_PLUS_IN_NAME: Final = re.compile(r"[^+]*(?:\+|\+<[^+]*|(?<=\w)\+\w[^+]*)")
#: Prefixes of DOI names. A malformed one is not a handle of another kind.
_DOI_DIRECTORY: Final = "10"


@dataclass(frozen=True, slots=True)
class ParsedText:
    """What a text is.

    A position in a message counts the characters of the name, decoded and without blanks, label and URL. `name` is
    None if the text is not a name of any kind. `rules` are the steps that read it, in their order.
    `message` is the reason why it is not a DOI name, or None. `best` is the likeliest reading.
    """

    text: str
    kind: Kind
    name: HandleName | None
    rules: tuple[str, ...]
    warnings: tuple[NameWarning, ...]
    suggestions: tuple[Suggestion, ...]
    message: str | None
    best: Reading | None = None

    @property
    def doi(self) -> HandleName | None:
        """The DOI name or the shortDOI."""
        return self.name if self.kind in ("doi", "short_doi") else None


def parse(text: str, *, own_hosts: frozenset[str] = frozenset()) -> ParsedText:
    """Say what `text` is. It is read as in the form: "%" always begins an escape. Raises nothing.

    `own_hosts` are the hosts of this resolver, for suggestions.
    """
    try:
        name, rules = read_with_rules(text)
    except InvalidName as error:
        best, suggestions = suggest_unchecked(text, None, own_hosts)
        return ParsedText(text, "not_a_doi", None, (), (), suggestions, error.message, best)
    is_handle = is_marked_handle(text)
    kind = _classify(name, _ANY_PREFIX if is_handle else _NUMBERED_PREFIX)
    warnings = find_warnings(name)
    if kind in ("doi", "short_doi"):
        best, suggestions = suggest_unchecked(text, name, own_hosts)
        return ParsedText(text, kind, name, rules, warnings, suggestions, None, best)
    best, suggestions = suggest_unchecked(text, None, own_hosts)
    read_name = None if kind == "not_a_doi" else name
    return ParsedText(text, kind, read_name, rules, warnings, suggestions, _explain(name), best)


def choose_reading(blanks: ParsedText, plus: ParsedText, *, is_form: bool) -> ParsedText:
    """What a query with "+" means. `blanks` reads each as a blank, as encoders of forms write it, `plus` as itself.

    Such an encoder (WHATWG URL, section 5.2) escapes a slash too: then it `is_form`, and "+" is a blank. Elsewhere
    the plus sign wins if it is part of one whole name, such as 10.1002/a+b. The other reading becomes a suggestion.
    """
    is_name = not is_form and plus.doi is not None and _PLUS_IN_NAME.fullmatch(plus.text) is not None
    chosen, other = (plus, blanks) if is_name else (blanks, plus)
    if other.best is None or (chosen.best is not None and chosen.best.name.key == other.best.name.key):
        return chosen
    remedy = "a plus sign here; encode a blank as %20" if is_name else "a blank here; encode a plus sign as %2B"
    warning = NameWarning("plus-sign", f'A "+" in the query is {remedy}.')
    suggestion = Suggestion(other.best.name, "plus-sign")
    return replace(chosen, warnings=(*chosen.warnings, warning), suggestions=(suggestion, *chosen.suggestions))


def unreadable(text: str, message: str) -> ParsedText:
    """An item of a list that cannot be read: its beginning, and the reason."""
    return ParsedText(text, "not_a_doi", None, (), (), (), message)


def _classify(name: HandleName, handle_prefix: re.Pattern[str]) -> Kind:
    if name.is_doi:
        return "doi"
    if name.is_short_doi:
        return "short_doi"
    if name.is_prefix:
        return "prefix"
    is_other = name.prefix.partition(".")[0] != _DOI_DIRECTORY
    return "handle" if name.suffix and is_other and handle_prefix.fullmatch(name.prefix) else "not_a_doi"


def _explain(name: HandleName) -> str:
    """Why a name is not a DOI name."""
    try:
        DOIName.parse(name.text)
    except InvalidName as error:
        short = name.expand_short_doi()
        return f"{error.message} If it is a shortDOI, write {short}." if short is not None else error.message
    raise AssertionError(name)
