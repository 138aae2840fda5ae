"""What a text may mean, decided from its form alone: its likeliest name, and the candidates that every door offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from doi_names.derived import derive
from doi_names.errors import InvalidName
from doi_names.find_names import FoundName
from doi_names.name import HandleName
from doi_names.percent import decode
from doi_names.suggestion import Reading, Suggestion, read_and_suggest
from doi_names.variants import list_variants, list_visible_slips

#: Characters of a text in which other identifiers are searched.
_MAX_SEARCHED: Final = 512


@dataclass(frozen=True, slots=True)
class Candidates:
    """Names that may be meant. A repair undoes an error that the text shows; a guess is offered only if it exists."""

    best: Reading | None
    repairs: tuple[Suggestion, ...]
    guesses: tuple[Suggestion, ...]


def read_candidates(
    text: str,
    name: HandleName | None,
    own_hosts: frozenset[str] = frozenset(),
    *,
    longer: Sequence[Suggestion] = (),
    derived: Sequence[FoundName] = (),
) -> Candidates:
    """The likeliest reading of a text, its repairs and its guesses.

    `name` is the DOI name or shortDOI that the text is, None if it is neither. The text may be a part of another one:
    `longer` are repairs by what follows it, and `derived` are names that follow by rule from the reference around it.
    """
    shown = text if name is not None else _decode(text)
    best, repairs = read_and_suggest(shown, name, own_hosts=own_hosts)
    repairs += _without(repairs, longer)
    variants = () if name is None else list_variants(name)
    return Candidates(
        best, repairs, _without(repairs, [*_list_derived(derived or derive(shown[:_MAX_SEARCHED])), *variants])
    )


def suggest_unchecked(
    text: str, name: HandleName | None, own_hosts: frozenset[str] = frozenset()
) -> tuple[Reading | None, tuple[Suggestion, ...]]:
    """The likeliest reading, and the candidates that are offered without a look-up.

    These are the repairs, the names that follow by rule, and those with a slip that the text shows. Nearly every name
    has others that look alike, and only a look-up decides which of them was meant.
    """
    shown = text if name is not None else _decode(text)
    best, repairs = read_and_suggest(shown, name, own_hosts=own_hosts)
    slips = () if name is None else list_visible_slips(name)
    return best, (*repairs, *_without(repairs, [*_list_derived(derive(shown[:_MAX_SEARCHED])), *slips]))


def _list_derived(names: Sequence[FoundName]) -> list[Suggestion]:
    return [Suggestion(found.name, found.rule or "", "derived") for found in names]


def _without(known: Sequence[Suggestion], others: Sequence[Suggestion]) -> tuple[Suggestion, ...]:
    keys = {suggestion.doi.key for suggestion in known}
    return tuple(other for other in others if other.doi.key not in keys)


def _decode(text: str) -> str:
    """In a text that is not a name, "%" begins an escape too, unless one of them is not an escape."""
    try:
        return decode(text)
    except InvalidName:
        return text
