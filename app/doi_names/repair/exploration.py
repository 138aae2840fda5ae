"""The texts that follow from a text by repairs: one path undoes every visible error, its branches leave some.

A repair that is not certain begins a branch. A name ranks higher if fewer errors are left in it, and if fewer doubtful
repairs led to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from doi_names.carriers import Carried
from doi_names.errors import InvalidName
from doi_names.name import DOIName, HandleName
from doi_names.presentation import read
from doi_names.repair import ends, prefix, surroundings
from doi_names.repair.prefix import PREFIX
from doi_names.repair.surroundings import with_plain_blanks, without_own_url

#: How certain a reading is: the text as it stands, or its most doubtful repair; or derived from another identifier.
Confidence = Literal["literal", "sure", "likely", "doubtful", "derived"]


class Certainty(Enum):
    """How certain it is that a repair changes an error and not a part of the name."""

    #: No registered name contains the error. A name that still contains it is not suggested.
    SURE = "sure"
    #: Few registered names look like this. The unrepaired name is suggested after the repaired one.
    LIKELY = "likely"
    #: Many registered names look like this. The repaired name is suggested after the others.
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class Repair:
    """A function that undoes one copying error. `rule` is its stable name in suggestions, in kebab case."""

    rule: str
    apply: Callable[[str], str]
    certainty: Certainty = Certainty.SURE


#: The pipeline, in its order: what programs did, the ends that characters show, the characters, the prefix, the name
#: inside the text, all other ends; then what is doubtful.
REPAIRS: Final = (
    Repair("backslash", surroundings.with_slash_for_backslash),
    Repair("sici-angle", ends.restore_angle_brackets),
    Repair("east-asian-punctuation", ends.at_east_asian_punctuation),
    Repair("full-width", surroundings.without_full_width),
    Repair("other-digits", surroundings.with_ascii_digits, Certainty.LIKELY),
    Repair("ligature", surroundings.without_ligatures),
    Repair("slash", surroundings.with_slashes),
    Repair("dash", surroundings.with_hyphens, Certainty.LIKELY),
    Repair("angle-bracket", surroundings.with_angle_brackets, Certainty.LIKELY),
    Repair("invisible-character", surroundings.without_invisible, Certainty.LIKELY),
    Repair("emphasis", surroundings.without_emphasis),
    Repair("query", surroundings.parameter_value),
    Repair("percent-encoding", surroundings.decode_again, Certainty.LIKELY),
    Repair("letter-for-digit", prefix.with_digits),
    Repair("unreadable-character", prefix.without_unreadable),
    Repair("cut-prefix", prefix.with_whole_prefix),
    Repair("digit-before", prefix.without_digit_before),
    Repair("letter-in-prefix", prefix.without_letter_in_prefix),
    Repair("comma-for-dot", prefix.with_dot),
    Repair("lost-zero", prefix.with_lost_zero),
    Repair("repeated-prefix", prefix.without_repetition, Certainty.LIKELY),
    Repair("double-slash", prefix.with_one_slash, Certainty.LIKELY),
    Repair("markup", ends.at_markup),
    Repair("sign", ends.at_sign),
    Repair("repetition", surroundings.before_repetition),
    Repair("blank", surroundings.without_blanks, Certainty.LIKELY),
    Repair("chapter", surroundings.with_chapter, Certainty.LIKELY),
    Repair("first-word", surroundings.first_word),
    Repair("missing-slash", prefix.with_first_slash, Certainty.LIKELY),
    Repair("name-in-text", surroundings.name_inside),
    Repair("session-id", ends.at_session),
    Repair("query-or-fragment", ends.at_query_or_fragment, Certainty.LIKELY),
    Repair("second-name", ends.at_second_name, Certainty.LIKELY),
    Repair("next-word", ends.at_next_word, Certainty.LIKELY),
    Repair("other-script", ends.at_other_script, Certainty.LIKELY),
    Repair("item-number", ends.at_item_number),
    Repair("trailing-slash", ends.without_trailing_slash, Certainty.LIKELY),
    Repair("trailing-punctuation", ends.without_trailing_punctuation),
    Repair("unpaired-bracket", ends.at_unpaired_bracket, Certainty.LIKELY),
    Repair("footnote", ends.at_footnote, Certainty.LIKELY),
    Repair("year", ends.at_year, Certainty.LIKELY),
    Repair("next-cells", ends.at_next_cells, Certainty.LIKELY),
    Repair("page-part", ends.at_page_part, Certainty.LIKELY),
    Repair("version", ends.at_version, Certainty.LIKELY),
    Repair("title", ends.at_title, Certainty.LIKELY),
    Repair("another-name", surroundings.next_name, Certainty.DOUBTFUL),
    Repair("next-cell", ends.at_next_cell, Certainty.DOUBTFUL),
    Repair("short-doi", surroundings.short_doi_inside, Certainty.DOUBTFUL),
    Repair("blank-inside", surroundings.without_inner_blank, Certainty.DOUBTFUL),
    Repair("missing-10", prefix.with_ten, Certainty.DOUBTFUL),
    Repair("missing-dot", prefix.with_lost_dot, Certainty.DOUBTFUL),
    Repair("two-slashes", prefix.with_one_of_two_slashes, Certainty.DOUBTFUL),
    Repair("hyphenation", surroundings.without_hyphenation, Certainty.DOUBTFUL),
    Repair("sici-bracket", ends.with_other_brackets, Certainty.DOUBTFUL),
)

#: ShortDOIs in use have three to eight letters and digits, a letter first.
_SHORT_DOI: Final = re.compile(r"(?:10/)?([A-Za-z][0-9A-Za-z]{2,7})")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A text after some repairs: their rules in order, the number of doubtful ones, and the name in the text."""

    text: str
    rules: tuple[str, ...] = ()
    doubts: int = 0
    is_likely: bool = False
    name: HandleName | None = None

    @property
    def confidence(self) -> Confidence:
        if self.doubts:
            return "doubtful"
        return "likely" if self.is_likely else "sure" if self.rules else "literal"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The attempts that follow from an attempt. `errors` are all repairs that apply and are not doubtful."""

    attempt: Attempt
    repaired: tuple[Attempt, ...]
    doubtful: tuple[Attempt, ...]
    errors: tuple[Repair, ...]

    @property
    def rank(self) -> int:
        """0 for the likeliest name."""
        return self.attempt.doubts + len(self.errors)

    @property
    def is_plausible(self) -> bool:
        """Whether the errors that are left may be part of a registered name."""
        return all(repair.certainty is not Certainty.SURE for repair in self.errors)


def _part_around_name(text: str) -> str:
    """The text, or of a long text the words around its first name. Every run of white space becomes one blank."""
    text = with_plain_blanks(text)
    # Of a longer text, only what surrounds its first name is repaired.
    if len(text) <= 512:
        return text
    found = PREFIX.search(text)
    if not found:
        return ""
    # Characters around the first name of a long text that are repaired.
    end = found.start() + 448
    part = text[max(0, found.start() - 64) : end]
    # The last word may be cut off, so it is dropped.
    return part if end >= len(text) else part.rpartition(" ")[0]


def start(carried: Carried, own_hosts: frozenset[str]) -> Attempt:
    """The first attempt: the part of a text around its first name. `own_hosts` are the hosts of this resolver."""
    text = _part_around_name(carried.text)
    rest = without_own_url(text, own_hosts) if own_hosts else text
    if rest == text:
        return _attempt(text, carried.rules)
    short = _SHORT_DOI.match(rest)
    if short and (rest[short.end() :].rstrip("/") == "" or rest[short.end()] in "?#"):
        rest = f"10/{short[1]}"
    # The rule of a URL of this resolver.
    return _attempt(rest, (*carried.rules, "own-url"))


def _attempt(text: str, rules: tuple[str, ...] = (), doubts: int = 0, *, is_likely: bool = False) -> Attempt:
    """The attempt of a text. If the text is a name, its label and URL are removed."""
    name = read_if_name(text)
    if name is None:
        return Attempt(text, rules, doubts, is_likely)
    if (doi := read_if_doi(name.text)) is not None:
        return Attempt(name.text, rules, doubts, is_likely, doi)
    is_short = name.is_short_doi and _SHORT_DOI.fullmatch(name.text) is not None
    return Attempt(text, rules, doubts, is_likely, name if is_short else None)


def read_if_doi(text: str) -> DOIName | None:
    """The DOI name that a text is, in the strict sense. None if it is not one."""
    try:
        return DOIName.parse(text)
    except InvalidName:
        return None


def read_if_name(text: str, reader: Callable[[str], HandleName] = read) -> HandleName | None:
    """The name that a text is. None if it is not a name."""
    try:
        return reader(text)
    except InvalidName:
        return None


def explore(start: Attempt, repairs: tuple[Repair, ...] = REPAIRS) -> list[AttemptOutcome]:
    """The outcomes of the path that undoes every error, then those of its branches."""
    explored: dict[str, AttemptOutcome] = {}
    waiting = [start]
    for attempt in waiting:
        path: Attempt | None = attempt
        # The most texts whose repairs are tried. Few inputs have more than six.
        while path is not None and path.text not in explored and len(explored) < 12:
            outcome = explored[path.text] = _repair(path, repairs)
            waiting += (*outcome.repaired[1:], *outcome.doubtful)
            path = outcome.repaired[0] if outcome.repaired else None
    return list(explored.values())


def _repair(attempt: Attempt, repairs: tuple[Repair, ...]) -> AttemptOutcome:
    """Try every repair. After the first sure error, later repairs wait until that error is undone."""
    repaired: list[Attempt] = []
    doubtful: list[Attempt] = []
    errors: list[Repair] = []
    for repair in repairs:
        text = repair.apply(attempt.text)
        if text == attempt.text:
            continue
        rules = (*attempt.rules, repair.rule)
        is_likely = attempt.is_likely or repair.certainty is Certainty.LIKELY
        if repair.certainty is Certainty.DOUBTFUL:
            doubtful.append(_attempt(text, rules, attempt.doubts + 1, is_likely=is_likely))
            continue
        if not any(error.certainty is Certainty.SURE for error in errors):
            repaired.append(_attempt(text, rules, attempt.doubts, is_likely=is_likely))
        errors.append(repair)
    return AttemptOutcome(attempt, tuple(repaired), tuple(doubtful), tuple(errors))
