"""What a writer may have meant by text that is not a DOI name, or by a name that does not exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.doi.name import DOIName, HandleName
from app.doi.presentation import read
from app.doi.repair import REPAIRS
from app.errors import InvalidName

#: The most suggestions for one text.
MAX_SUGGESTIONS: Final = 5
#: Longer texts get no suggestions. They are rare, and applying 14 repairs twice to 8 kB takes 15 ms.
_MAX_REPAIRED_CHARACTERS: Final = 2_048
#: The most repairs that lead to one suggestion.
_MAX_REPAIRS: Final = 2
#: The rule of a name that reading the text once more finds.
_READ_AGAIN: Final = "label"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A name that a writer may have meant: a DOI name in the strict sense, or a shortDOI such as 10/abcde.

    `rule` is the stable name of the repair that led to it, of several the first: "trailing-punctuation".
    """

    doi: HandleName
    rule: str


def suggest(text: str, *, own_hosts: frozenset[str] = frozenset()) -> tuple[Suggestion, ...]:
    """The names that the writer of `text` may have meant: at most MAX_SUGGESTIONS, the likeliest first.

    The name that `presentation.read` finds in the text is not among them. `own_hosts` are the hosts of this resolver.
    """
    try:
        name = read(text)
    except InvalidName:
        name = None
    return _suggest(text, name, own_hosts)


def suggest_instead(name: HandleName, *, own_hosts: frozenset[str] = frozenset()) -> tuple[Suggestion, ...]:
    """The names that a caller may have meant by a name that does not exist. See `suggest`."""
    return _suggest(name.text, name, own_hosts)


def _suggest(text: str, name: HandleName | None, own_hosts: frozenset[str]) -> tuple[Suggestion, ...]:
    if len(text) > _MAX_REPAIRED_CHARACTERS:
        return ()
    found: dict[str, Suggestion] = {}
    texts = [(text, _READ_AGAIN)]
    _collect(texts, name, found)
    for step in range(_MAX_REPAIRS):
        texts = [
            (better, rule if step else repair.rule)
            for text, rule in texts
            for repair in REPAIRS
            if (better := repair.apply(text)) != text
        ]
        _collect(texts, name, found)
        if len(found) >= MAX_SUGGESTIONS:
            break
    return tuple(found.values())[:MAX_SUGGESTIONS]


def _collect(texts: list[tuple[str, str]], name: HandleName | None, found: dict[str, Suggestion]) -> None:
    for text, rule in texts:
        try:
            candidate = DOIName.parse(read(text).text)
        except InvalidName:
            continue
        if candidate != name:
            found.setdefault(candidate.key, Suggestion(candidate, rule))
