"""What a writer may have meant by text that is not a DOI name, or by a name that does not exist.

Repairs are combined. One path undoes every visible error; its branches leave some errors, or try a doubtful repair. A
name ranks higher if fewer errors are left in it, and if fewer doubtful repairs led to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

from doi_names.carriers import Carried, read_carrier
from doi_names.evidence import MAX_LOOK, find_check_character, read_on, weigh
from doi_names.name import HandleName, first_not_graphic
from doi_names.presentation import read_typed
from doi_names.repair import exploration
from doi_names.repair.exploration import REPAIRS, Certainty, Confidence
from doi_names.repair.prefix import BEGINNING

#: The most suggestions for one text.
MAX_SUGGESTIONS: Final = 5
_DELIMITER: Final = re.compile("[?#&]")
_ENCODED_DELIMITER: Final = re.compile("%(?:25)?(?:23|26|3F)", re.IGNORECASE)
_BLANK_AT_SLASH: Final = re.compile(r"10\s?\.\s?[0-9]{4,9}(?:[^\S\n]+/|/[^\S\n]+)")
#: A prefix with an error, or with escapes.
_PREFIX_BEFORE: Final = re.compile(
    r"(?<![A-Za-z])(?:[1lI|][0oO]|0)?\s?[.,:;\u00b7-]{0,2}\s?[0-9OoIl?\ufffd]{1,9}(?:\.[0-9]{1,9}){0,5}[\s/\\._:|@-]{0,8}\Z"
)
_ENCODED_URL: Final = re.compile(r"\s*https?%3A", re.IGNORECASE)
#: For a name whose writer encoded its "?", "#" and "&": they are a part of it, and do not begin a query or fragment.
_REPAIRS_OF_ENCODED: Final = tuple(
    replace(repair, certainty=Certainty.DOUBTFUL) if repair.rule == "query-or-fragment" else repair
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
    """The likeliest name in a text. `rules` are the steps that led to it, in order; `rule` is the first, or None."""

    name: HandleName
    confidence: Confidence
    rule: str | None
    rules: tuple[str, ...] = field(default=(), compare=False)

    @property
    def steps(self) -> tuple[Confidence, str | None, tuple[str, ...]]:
        """What led to the name, and how certain it is."""
        return self.confidence, self.rule, self.rules


def write_reading(reading: Reading | None) -> dict[str, Any] | None:
    """The member `best` of JSON objects."""
    if reading is None:
        return None
    return {"doi": reading.name.text, "confidence": reading.confidence, "rule": reading.rule}


def read_best(text: str, *, own_hosts: frozenset[str] = frozenset()) -> Reading | None:
    """The likeliest reading of a text that is one name, or that contains one. None if it has no name.

    Sure and likely repairs come before the text as it stands, doubtful ones after it. `own_hosts` are the hosts of this
    resolver, with their path if they have one: doi.example.org, www.example.org/doi.
    """
    return _read(text, _read_one(text), own_hosts).reading


def read_and_suggest(
    text: str, name: HandleName | None, *, own_hosts: frozenset[str] = frozenset()
) -> tuple[Reading | None, tuple[Suggestion, ...]]:
    """The likeliest reading of a text, as `read_best` has it, and what else it may mean.

    `name` is the DOI name or shortDOI that the text is, None if it is neither. The other names are MAX_SUGGESTIONS at
    most, the likeliest first; `name` is not among them.
    """
    result = _read(text, name, own_hosts)
    return result.reading, result.suggest(name)


def read_excerpt(carried: Carried, before: str, after: str) -> tuple[Reading | None, tuple[Suggestion, ...]]:
    """The likeliest reading of a part of a text, and what else it may be. `before` and `after` are around the part."""
    name = _read_one(carried.text) if "%" in carried.text else None
    if name is not None and name.text != carried.text:
        decoded = read_carrier(name.text)
        shown = replace(decoded, rules=(*carried.rules, *decoded.rules))
    else:
        shown = carried
    result = _read(carried.text, name, frozenset(), before, after, shown)
    # A part that no repair makes a DOI name can still be a handle, with code points that a DOI name must not contain.
    if result.reading is None or first_not_graphic(result.reading.name.text):
        return None, ()
    return result.reading, result.suggest(result.reading.name)


@dataclass(frozen=True, slots=True)
class _Result:
    """A reading, the outcomes among which it is, and what else the text around it may mean, with rules."""

    reading: Reading | None
    outcomes: list[exploration.AttemptOutcome]
    others: tuple[tuple[str, str], ...] = ()

    def suggest(self, own_name: HandleName | None) -> tuple[Suggestion, ...]:
        """All names of the result but one. None but the reading can be sure."""
        reading = self.reading
        suggestions = _rank(self.outcomes, own_name)
        if reading is None or not reading.name.is_doi:
            return suggestions
        capped = tuple(
            replace(suggestion, confidence=reading.confidence if suggestion.doi == reading.name else "likely")
            if suggestion.confidence in ("literal", "sure")
            else suggestion
            for suggestion in suggestions
        )
        return _add_others(self.others, capped)


def _read_one(text: str) -> HandleName | None:
    """The DOI name or shortDOI that a text is."""
    name = exploration.read_if_name(text, read_typed)
    return name if name is not None and (name.is_doi or name.is_short_doi) else None


def _read(
    text: str,
    name: HandleName | None,
    own_hosts: frozenset[str],
    before: str = "",
    after: str = "",
    carried: Carried | None = None,
) -> _Result:
    # Of a longer text, whole words around its first name are read: the carrier of 60 KB takes 0.2 s.
    if len(text) > 2_048:
        first = BEGINNING.search(text)
        begin = max(0, first.start() - 256) if first else 0
        text, more = text[begin : begin + 2_048], text[begin + 2_048 :]
        text = text[: max(text.rfind(" "), text.rfind("\n"), 0)] if more else text
        carried = carried or read_carrier(text)
    carried = carried or read_carrier(text if name is None else name.text)
    has_encoded = carried.escaped or (name is not None and _has_encoded_delimiters(text, name))
    outcomes = exploration.explore(
        exploration.start(carried, own_hosts), _REPAIRS_OF_ENCODED if has_encoded else REPAIRS
    )
    names = [outcome for outcome in outcomes if outcome.attempt.name is not None and outcome.is_plausible]
    best = min(names, key=lambda outcome: outcome.rank).attempt if names else None
    if best is None or best.name is None:
        return _Result(None if name is None else Reading(name, "literal", None), outcomes)
    reading = Reading(best.name, best.confidence, best.rules[0] if best.rules else None, best.rules)
    if not best.name.is_doi:
        return _Result(reading, outcomes)
    written = carried.text if name is None or name.text == text else read_carrier(text).text
    written, begin, end = _find_place(written, best.name)
    rest = (written[end:] + after)[:MAX_LOOK]
    # Of a name that stands as it is, no step has changed the prefix.
    rules = tuple(rule for rule in best.rules if rule == "digit-before") if best.name.text in written else best.rules
    if "blank" in rules and _BLANK_AT_SLASH.search(written):
        rules = (*rules, "blank-at-slash")
    # An encoded sign is not a reason for doubt.
    is_encoded = best.name.text not in text and unquote(text).endswith(best.name.text)
    confidence = weigh(best.name.text, before + written[:begin], rest, best.confidence, rules, is_encoded=is_encoded)
    if confidence is not None:
        name_text = best.name.text
        cuts = tuple(
            (name_text[: at - begin], "inline-tag") for at in carried.joints if 0 < at - begin < len(name_text)
        )
        confidence = "likely" if cuts and confidence != "doubtful" else confidence
        reading = Reading(best.name, confidence, best.rules[0] if best.rules else None, best.rules)
        if signs := find_check_character(name_text, before + written[:begin], rest):
            rule = "check-character"
            reading = Reading(HandleName(name_text + signs), "likely", rule, (rule,))
        return _Result(reading, outcomes, (*cuts, *read_on(name_text, rest)))
    # What looked like a name is something else. Another one may follow it.
    following = None if before or not 0 < end < len(written) else _read(written[end:], None, own_hosts, written[:end])
    return _Result(following.reading if following else None, outcomes)


def _find_place(text: str, name: HandleName) -> tuple[str, int, int]:
    """Where a name is in a text, which may write its prefix, its blanks or its escapes in another way."""
    shown = text if name.text in text else unquote(text)
    begin = shown.find(name.text)
    if begin >= 0:
        return shown, begin, begin + len(name.text)
    suffix = name.suffix or ""
    begin = shown.find(suffix)
    if begin > 0:
        return shown, len(_PREFIX_BEFORE.sub("", shown[:begin])), begin + len(suffix)
    return text, max(0, text.find(name.prefix)), len(text)


def _add_others(others: tuple[tuple[str, str], ...], suggestions: tuple[Suggestion, ...]) -> tuple[Suggestion, ...]:
    """The suggestions, with what else a name may be before the doubtful ones."""
    names = [Suggestion(name, rule) for text, rule in others if (name := exploration.read_if_doi(text))]
    if not names:
        return suggestions
    firm = [suggestion for suggestion in suggestions if suggestion.confidence != "doubtful"]
    first: dict[HandleName, Suggestion] = {}
    for suggestion in (*firm, *names, *suggestions):
        first.setdefault(suggestion.doi, suggestion)
    return tuple(first.values())[:MAX_SUGGESTIONS]


def _has_encoded_delimiters(text: str, name: HandleName) -> bool:
    """Whether every "?", "#" and "&" of the name in a text was encoded, at least once more than the whole text."""
    written = unquote(text) if _ENCODED_URL.match(text) else text
    return len(_ENCODED_DELIMITER.findall(written)) >= len(_DELIMITER.findall(unquote(name.text))) > 0


def _rank(outcomes: list[exploration.AttemptOutcome], own_name: HandleName | None) -> tuple[Suggestion, ...]:
    """The likeliest names. If several outcomes have the same name, the likeliest of them counts."""
    found: dict[str, Suggestion] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.rank):
        attempt = outcome.attempt
        name = attempt.name
        if name is not None and name != own_name and outcome.is_plausible:
            # The rule of a name that only had to be read again.
            rule = attempt.rules[0] if attempt.rules else "label"
            found.setdefault(name.key, Suggestion(name, rule, attempt.confidence))
    return tuple(found.values())[:MAX_SUGGESTIONS]
