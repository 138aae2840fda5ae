"""The texts that follow from a text by repairs: one path undoes every visible error, its branches leave some.

A repair that is not certain begins a branch. A name ranks higher if fewer errors are left in it, and if fewer doubtful
repairs led to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import methodcaller
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
    Repair("east-asian-punctuation", partial(ends.cut, ends.EAST_ASIAN)),
    Repair("full-width", partial(surroundings.write_as, surroundings.FULL_WIDTH)),
    Repair("other-digits", partial(surroundings.write_as, surroundings.OTHER_DIGITS), Certainty.LIKELY),
    Repair("ligature", partial(surroundings.write_as, surroundings.LIGATURES)),
    Repair("slash", partial(surroundings.write_as, surroundings.SLASHES)),
    Repair("dash", surroundings.with_hyphens, Certainty.LIKELY),
    Repair("invisible-character", surroundings.without_invisible, Certainty.LIKELY),
    Repair("percent-encoding", surroundings.decode_again, Certainty.LIKELY),
    Repair("letter-for-digit", prefix.with_digits),
    Repair("unreadable-character", partial(prefix.UNREADABLE.sub, r"\1\2")),
    Repair("cut-prefix", partial(prefix.ONE_ZERO.sub, "10.")),
    Repair("digit-before", partial(prefix.DIGITS_BEFORE.sub, "")),
    Repair("letter-in-prefix", partial(prefix.LETTER_INSIDE.sub, "10.")),
    Repair("comma-for-dot", partial(prefix.WRONG_DOT.sub, "10.")),
    Repair("lost-zero", partial(prefix.THREE_DIGITS.sub, r"10.\g<1>0/")),
    Repair("repeated-prefix", partial(prefix.REPEATED.sub, ""), Certainty.LIKELY),
    Repair("double-slash", prefix.with_one_slash, Certainty.LIKELY),
    Repair("markup", partial(ends.cut, ends.MARKUP)),
    Repair("sign", partial(ends.cut, ends.SIGN)),
    Repair("repetition", surroundings.before_repetition),
    Repair("blank", surroundings.without_blanks, Certainty.LIKELY),
    Repair("chapter", surroundings.with_chapter, Certainty.LIKELY),
    Repair("first-word", surroundings.first_word),
    Repair("missing-slash", prefix.with_first_slash, Certainty.LIKELY),
    Repair("name-in-text", surroundings.name_inside),
    Repair("query-or-fragment", partial(ends.QUERY_OR_FRAGMENT.sub, ""), Certainty.LIKELY),
    Repair("second-name", partial(ends.cut, ends.SECOND_NAME), Certainty.LIKELY),
    Repair("next-word", partial(ends.cut, ends.NEXT_WORD), Certainty.LIKELY),
    Repair("other-script", partial(ends.cut, ends.OTHER_SCRIPT), Certainty.LIKELY),
    Repair("item-number", partial(ends.ITEM_NUMBER.sub, r"\1")),
    Repair("trailing-slash", methodcaller("rstrip", "/"), Certainty.LIKELY),
    Repair("trailing-punctuation", ends.without_trailing_punctuation),
    Repair("unpaired-bracket", ends.at_unpaired_bracket, Certainty.LIKELY),
    Repair("footnote", partial(ends.FOOTNOTE.sub, ""), Certainty.LIKELY),
    Repair("year", partial(ends.cut, ends.YEAR), Certainty.LIKELY),
    Repair("next-cells", partial(ends.cut, ends.CELLS), Certainty.LIKELY),
    Repair("page-part", ends.at_page_part, Certainty.LIKELY),
    Repair("version", ends.at_version, Certainty.LIKELY),
    Repair("title", ends.at_title, Certainty.LIKELY),
    Repair("another-name", surroundings.next_name, Certainty.DOUBTFUL),
    Repair("next-cell", partial(ends.cut, ends.CELL), Certainty.DOUBTFUL),
    Repair("short-doi", surroundings.short_doi_inside, Certainty.DOUBTFUL),
    Repair("blank-inside", surroundings.without_inner_blank, Certainty.DOUBTFUL),
    Repair("missing-10", partial(prefix.NO_TEN.sub, "10."), Certainty.DOUBTFUL),
    Repair("missing-dot", partial(prefix.LOST_DOT.sub, "10."), Certainty.DOUBTFUL),
    Repair("two-slashes", prefix.with_one_of_two_slashes, Certainty.DOUBTFUL),
    Repair("hyphenation", partial(surroundings.HYPHENATION.sub, ""), Certainty.DOUBTFUL),
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
