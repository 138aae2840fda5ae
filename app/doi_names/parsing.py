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
from doi_names.suggestion import Reading, Suggestion, read_best
from doi_names.typed_name import is_marked_handle, read_with_rules

Kind = Literal["doi", "short_doi", "handle", "prefix", "not_a_doi"]

#: Naming authorities in use begin with a number. Without this rule "and/or" would be a handle.
_NUMBERED_PREFIX: Final = re.compile(r"[0-9]+(?:\.[^\s./]+)*")
_ANY_PREFIX: Final = re.compile(r"[^\s./]+(?:\.[^\s./]+)*")
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


def warn_of_plus_sign(parsed: ParsedText) -> ParsedText:
    """Warn if a plus sign of a query was probably a blank, as encoders of forms write it (WHATWG URL, section 5.2)."""
    other = read_best(parsed.text.replace("+", " ")) if "+" in parsed.text else None
    if other is None or other.rule != "blank":
        return parsed  # a plus sign can be part of a name
    warning = NameWarning("plus-sign", 'A "+" in the query is a plus sign here; encode a blank as %20.')
    suggestion = Suggestion(other.name, "plus-sign")
    return replace(parsed, warnings=(*parsed.warnings, warning), suggestions=(suggestion, *parsed.suggestions))


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
