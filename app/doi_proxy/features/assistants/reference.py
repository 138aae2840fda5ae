"""The DOI names that a line of a reference list contains. They are not repaired."""

from __future__ import annotations

import re
from dataclasses import dataclass

from doi_names.errors import InvalidName
from doi_names.find_names import find_names
from doi_names.name import HandleName
from doi_names.parsing import parse
from doi_names.percent import decode
from doi_names.suggestion import Suggestion

#: What may stand before a name in running text. The name itself follows.
_BEFORE = r"(?:(?<![0-9A-Za-z.])|(?<=doi))"
#: What ends a name in running text: punctuation, then a blank, markup or the end.
_AFTER = r"(?=[.,;:!?'\")\]}>”’»]*(?:[\s<|]|\Z))"


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """The content of a line: its first name, further names, and suggestions if it has no name.

    `message` is the reason if `name` is None.
    """

    name: HandleName | None
    others: tuple[HandleName, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    message: str | None = None


def read_reference(line: str, *, own_hosts: frozenset[str] = frozenset()) -> ReferenceLine:
    """Find the names in a line: bare, with a label, in a URL, or inside free text."""
    names = {found_name.name.key: found_name.name for found_name in find_names(line) if found_name.is_as_written}
    if names:
        first, *others = names.values()
        return ReferenceLine(first, tuple(others))
    parsed = parse(line, own_hosts=own_hosts)
    if parsed.doi is not None and not _has_blank(parsed.doi):
        return ReferenceLine(parsed.doi)
    text = _decode(line)
    found = [
        suggestion.doi for suggestion in parsed.suggestions if suggestion.doi.is_doi and _contains(text, suggestion.doi)
    ]
    if found:
        return ReferenceLine(found[0], tuple(found[1:]))
    if parsed.doi is not None:
        return ReferenceLine(parsed.doi)
    message = parsed.message if parsed.name is not None else _explain(parsed.suggestions)
    return ReferenceLine(None, (), parsed.suggestions, message)


def _explain(suggestions: tuple[Suggestion, ...]) -> str:
    if suggestions:
        return "The line has no DOI name as it stands; see the suggestions."
    return "The line has no DOI name."


def _has_blank(name: HandleName) -> bool:
    """Whether a name contains blanks. "10.1000/182 (accessed 2020)" is a name by its form, but 10.1000/182 is meant."""
    return any(character.isspace() for character in name.text)


def _contains(text: str, name: HandleName) -> bool:
    """Whether a text contains a name with nothing before and after it that belongs to the name."""
    return re.search(_BEFORE + re.escape(name.text) + _AFTER, text, re.IGNORECASE) is not None


def _decode(line: str) -> str:
    """The line, and its percent-decoded form if it has one."""
    try:
        return f"{line}\n{decode(line.encode('utf-8', 'surrogatepass'))}"
    except InvalidName:
        return line
