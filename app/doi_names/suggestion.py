"""What a writer may have meant by text that is not a DOI name, or by a name that does not exist.

Repairs are combined. One path undoes every visible error; its branches leave some errors, or try a doubtful repair. A
name ranks higher if fewer errors are left in it, and if fewer doubtful repairs led to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import unquote

from doi_names.errors import InvalidName
from doi_names.name import DOIName, HandleName
from doi_names.presentation import read, read_typed
from doi_names.repair.characters import with_plain_blanks
from doi_names.repair.ends import without_query_or_fragment
from doi_names.repair.surroundings import without_own_url
from doi_names.repair.table import REPAIRS, Certainty, Repair

#: How certain a reading is: the text as it stands, or its most doubtful repair (see Certainty).
Confidence = Literal["literal", "sure", "likely", "doubtful"]

#: The most suggestions for one text.
MAX_SUGGESTIONS: Final = 5
#: Of a longer text, only what surrounds its first name is repaired.
_MAX_REPAIRED_CHARACTERS: Final = 512
#: Characters around the first name of a long text that are repaired.
_MAX_BEFORE: Final = 64
_MAX_AFTER: Final = 448
#: The most texts whose repairs are tried. Few inputs have more than six.
_MAX_TEXTS: Final = 12
_PREFIX: Final = re.compile(r"(?<![0-9])10\.[0-9]{4,9}/")
#: ShortDOIs in use have three to eight letters and digits, a letter first.
_SHORT_DOI: Final = re.compile(r"(?:10/)?([A-Za-z][0-9A-Za-z]{2,7})")
#: The rules for a name that only had to be read again, and for a URL of this resolver.
_READ_AGAIN: Final = "label"
_OWN_URL: Final = "own-url"
_DELIMITER: Final = re.compile("[?#&]")
_ENCODED_DELIMITER: Final = re.compile("%(?:25)?(?:23|26|3F)", re.IGNORECASE)
_ENCODED_URL: Final = re.compile(r"\s*https?%3A", re.IGNORECASE)
#: For a name whose writer encoded its "?", "#" and "&": they are a part of it, and do not begin a query or fragment.
_REPAIRS_OF_ENCODED: Final = tuple(
    replace(repair, certainty=Certainty.DOUBTFUL) if repair.apply is without_query_or_fragment else repair
    for repair in REPAIRS
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A name that a writer may have meant: a DOI name in the strict sense, or a shortDOI such as 10/aabbe.

    `rule` is the stable name of the repair that led to it, or of the first of several: "trailing-punctuation".
    """

    doi: HandleName
    rule: str
    confidence: Confidence = field(default="doubtful", compare=False)
    #: Whether it exists. None if this is not known, or was not looked up.
    exists: bool | None = field(default=None, compare=False)

    @property
    def reading(self) -> Reading:
        """The name as a reading."""
        return Reading(self.doi, self.confidence, self.rule)


@dataclass(frozen=True, slots=True)
class Reading:
    """The likeliest name in a text. `rule` is that of a suggestion, None for a `literal` reading."""

    name: HandleName
    confidence: Confidence
    rule: str | None


def write_reading(reading: Reading | None) -> dict[str, Any] | None:
    """The member `best` of JSON objects."""
    if reading is None:
        return None
    return {"doi": reading.name.text, "confidence": reading.confidence, "rule": reading.rule}


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A text after some repairs: the rule of the first, the number of doubtful ones, and the name in the text."""

    text: str
    rule: str = ""
    doubts: int = 0
    is_likely: bool = False
    name: HandleName | None = None

    @property
    def confidence(self) -> Confidence:
        if self.doubts:
            return "doubtful"
        return "likely" if self.is_likely else "sure" if self.rule else "literal"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The attempts that follow from an attempt. `errors` are all repairs that apply and are not doubtful."""

    attempt: _Attempt
    repaired: tuple[_Attempt, ...]
    doubtful: tuple[_Attempt, ...]
    errors: tuple[Repair, ...]

    @property
    def rank(self) -> int:
        """0 for the likeliest name."""
        return self.attempt.doubts + len(self.errors)

    @property
    def is_plausible(self) -> bool:
        """Whether the errors that are left may be part of a registered name."""
        return all(repair.certainty is not Certainty.SURE for repair in self.errors)


def suggest(text: str, *, own_hosts: frozenset[str] = frozenset()) -> tuple[Suggestion, ...]:
    """The names that the writer of `text` may have meant: at most MAX_SUGGESTIONS, the likeliest first.

    The name that `presentation.read_typed` finds in the text is not among them. If it is a DOI name without a visible
    error, there are none. `own_hosts` are the hosts of this resolver, with their path if they have one:
    doi.example.org, www.example.org/doi.
    """
    own_name = _read(text, read_typed) or _read(text)
    is_doi = own_name is not None and own_name.is_doi
    outcomes = _explore(_start(own_name.text if own_name is not None and is_doi else text, own_hosts))
    return () if is_doi and not outcomes[0].errors else _rank(outcomes, own_name)


def suggest_instead(name: HandleName, *, own_hosts: frozenset[str] = frozenset()) -> tuple[Suggestion, ...]:
    """The names that a caller may have meant by a name that does not exist. See `suggest`."""
    return _rank(_explore(_start(name.text, own_hosts)), name)


def read_best(text: str, *, own_hosts: frozenset[str] = frozenset()) -> Reading | None:
    """The likeliest reading of a text that is one name, or that contains one. None if it has no name.

    Sure and likely repairs come before the text as it stands, doubtful ones after it. For `own_hosts`, see `suggest`.
    """
    name = _read(text, read_typed)
    is_one = name is not None and (name.is_doi or name.is_short_doi)
    return read_and_suggest(text, name if is_one else None, own_hosts=own_hosts)[0]


def read_and_suggest(
    text: str, name: HandleName | None, *, own_hosts: frozenset[str] = frozenset()
) -> tuple[Reading | None, tuple[Suggestion, ...]]:
    """The likeliest reading of a text, and what else it may mean: see `read_best` and `suggest_instead`.

    `name` is the DOI name or shortDOI that the text is, None if it is neither.
    """
    repairs = _REPAIRS_OF_ENCODED if name is not None and _has_encoded_delimiters(text, name) else REPAIRS
    outcomes = _explore(_start(text if name is None else name.text, own_hosts), repairs)
    names = [outcome for outcome in outcomes if outcome.attempt.name is not None and outcome.is_plausible]
    best = min(names, key=lambda outcome: outcome.rank).attempt if names else None
    if best is None or best.name is None:
        reading = None if name is None else Reading(name, "literal", None)
    else:
        reading = Reading(best.name, best.confidence, best.rule or None)
    return reading, _rank(outcomes, name)


def _has_encoded_delimiters(text: str, name: HandleName) -> bool:
    """Whether every "?", "#" and "&" of the name in a text was encoded, at least once more than the whole text."""
    written = unquote(text) if _ENCODED_URL.match(text) else text
    return len(_ENCODED_DELIMITER.findall(written)) >= len(_DELIMITER.findall(unquote(name.text))) > 0


def _rank(outcomes: list[_Outcome], own_name: HandleName | None) -> tuple[Suggestion, ...]:
    """The likeliest names. If several outcomes have the same name, the likeliest of them counts."""
    found: dict[str, tuple[int, Suggestion]] = {}
    for outcome in outcomes:
        attempt = outcome.attempt
        name = attempt.name
        if name is None or name == own_name or not outcome.is_plausible:
            continue
        if name.key not in found or outcome.rank < found[name.key][0]:
            found[name.key] = outcome.rank, Suggestion(name, attempt.rule or _READ_AGAIN, attempt.confidence)
    ordered = sorted(found.values(), key=lambda ranked: ranked[0])
    return tuple(suggestion for _, suggestion in ordered[:MAX_SUGGESTIONS])


def _part_around_name(text: str) -> str:
    """The text, or of a long text the words around its first name. Every run of white space becomes one blank."""
    text = with_plain_blanks(text)
    if len(text) <= _MAX_REPAIRED_CHARACTERS:
        return text
    found = _PREFIX.search(text)
    if not found:
        return ""
    end = found.start() + _MAX_AFTER
    part = text[max(0, found.start() - _MAX_BEFORE) : end]
    # The last word may be cut off, so it is dropped.
    return part if end >= len(text) else part.rpartition(" ")[0]


def _start(text: str, own_hosts: frozenset[str]) -> _Attempt:
    text = _part_around_name(text)
    rest = without_own_url(text, own_hosts) if own_hosts else text
    if rest == text:
        return _attempt(text)
    short = _SHORT_DOI.match(rest)
    if short and (rest[short.end() :].rstrip("/") == "" or rest[short.end()] in "?#"):
        rest = f"10/{short[1]}"
    return _attempt(rest, _OWN_URL)


def _attempt(text: str, rule: str = "", doubts: int = 0, *, is_likely: bool = False) -> _Attempt:
    """The attempt of a text. If the text is a name, its label and URL are removed."""
    name = _read(text)
    if name is None:
        return _Attempt(text, rule, doubts, is_likely)
    try:
        return _Attempt(name.text, rule, doubts, is_likely, DOIName.parse(name.text))
    except InvalidName:
        is_short = name.is_short_doi and _SHORT_DOI.fullmatch(name.text) is not None
        return _Attempt(text, rule, doubts, is_likely, name if is_short else None)


def _read(text: str, reader: Callable[[str], HandleName] = read) -> HandleName | None:
    try:
        return reader(text)
    except InvalidName:
        return None


def _explore(start: _Attempt, repairs: tuple[Repair, ...] = REPAIRS) -> list[_Outcome]:
    """The outcomes of the path that undoes every error, then those of its branches."""
    explored: dict[str, _Outcome] = {}
    waiting = [start]
    for attempt in waiting:
        path: _Attempt | None = attempt
        while path is not None and path.text not in explored and len(explored) < _MAX_TEXTS:
            outcome = explored[path.text] = _repair(path, repairs)
            waiting += (*outcome.repaired[1:], *outcome.doubtful)
            path = outcome.repaired[0] if outcome.repaired else None
    return list(explored.values())


def _repair(attempt: _Attempt, repairs: tuple[Repair, ...]) -> _Outcome:
    """Try every repair. After the first sure error, later repairs wait until that error is undone."""
    repaired: list[_Attempt] = []
    doubtful: list[_Attempt] = []
    errors: list[Repair] = []
    for repair in repairs:
        text = repair.apply(attempt.text)
        if text == attempt.text:
            continue
        rule = attempt.rule or repair.rule
        is_likely = attempt.is_likely or repair.certainty is Certainty.LIKELY
        if repair.certainty is Certainty.DOUBTFUL:
            doubtful.append(_attempt(text, rule, attempt.doubts + 1, is_likely=is_likely))
            continue
        if not any(error.certainty is Certainty.SURE for error in errors):
            repaired.append(_attempt(text, rule, attempt.doubts, is_likely=is_likely))
        errors.append(repair)
    return _Outcome(attempt, tuple(repaired), tuple(doubtful), tuple(errors))
