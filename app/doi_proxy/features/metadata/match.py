"""Whether a reference is about the work that its DOI names. An invented citation often has a real DOI of another work.

`different` needs two facts of different kinds: title, authors, place (container, volume, issue, page) and year. What
agrees in volume and page is the same work, whatever the language of its title.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from doi_proxy.features.metadata.cited import Cited, is_preprint, read_number
from doi_proxy.features.metadata.words import (
    find_common,
    find_language,
    find_near_word,
    has_group,
    has_name,
    is_group,
    is_latin,
    measure,
    name_words,
    simplify,
    split_title,
    split_words,
)
from doi_proxy.features.metadata.work import Work

Match = Literal["same", "related", "doubtful", "different", "unknown"]
#: What a reference and a work can differ in.
Kind = Literal["title", "authors", "place", "year", "edition", "notice", "container"]
#: How two titles read: equal, equal in a title without its subtitle, nearly, otherwise; otherwise in another language,
#: or perhaps in one.
_Title = Literal["full", "main", "near", "other", "foreign", "unsure"]


#: Types of works that are in no journal.
_BOOKS: Final = ("book", "monograph", "edited-book", "reference-book", "dissertation", "report", "standard")
#: Marks between the parts of a citation.
_SEGMENT: Final = re.compile(r"[,:;?!()\[\]\"“”„«»‘‚{}/。，：；—]|[.…](?=\s|$)|’(?!\w)|\s[-–]\s")


#: Why nothing was compared: the agency has no work, or did not answer, or not in time, or its address is not known now;
#: the entry says nothing; the name itself could not be looked up; or works are not.
NotCompared = Literal["none", "failed", "late", "address", "nothing", "unverified", "off"]


@dataclass(frozen=True, slots=True)
class Compared:
    """The word about a reference, what differs, both sides, and why nothing was compared, if so."""

    match: Match = "unknown"
    differs: tuple[Kind, ...] = ()
    cited: Cited | None = None
    work: Work | None = None
    reason: NotCompared | None = None

    @property
    def why(self) -> str | None:
        """What differs, or why nothing was compared, as a sentence. None if all agrees."""
        if self.reason is not None:
            return _REASONS[self.reason]
        return f"These differ: {', '.join(self.differs)}." if self.differs else None


_REASONS: Final[dict[NotCompared, str]] = {
    "none": "Not compared: the registration agency has no description of this work.",
    "failed": "Not compared: the registration agency did not answer.",
    "late": "Not compared: the registration agency did not answer in time.",
    "address": "Not compared: the address of the registration agency could not be looked up now.",
    "nothing": "Not compared: there is no reference with a name that leads somewhere.",
    "unverified": "Not compared: where the name leads could not be looked up now.",
    "off": "Not compared: no works are looked up.",
}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What agrees. None if it cannot be said."""

    title: _Title | None
    #: The words of the work's title that mean something.
    words: int
    authors: bool | None
    place: bool | None
    #: The years between the reference and the work.
    years: int | None
    #: Whether the first pages agree, and the volumes do not: a journal has counted its volumes in two ways.
    has_page: bool = False

    @property
    def wrong(self) -> tuple[Kind, ...]:
        """The kinds of facts that speak against the work."""
        kinds: tuple[tuple[bool, Kind], ...] = (
            (self.title == "other", "title"),
            (self.authors is False, "authors"),
            (self.place is False, "place"),
            (self.years is not None and self.years > 1, "year"),
        )
        return tuple(kind for is_wrong, kind in kinds if is_wrong)


#: The word about a reference, and what differs.
_Word = tuple[Match, tuple[Kind, ...]]


def match(cited: Cited, work: Work) -> Compared:
    """Compare what a reference says with the work that its DOI names."""
    return Compared(*_match(cited, work), cited, work)


def _match(cited: Cited, work: Work) -> _Word:
    place, has_page = _compare_places(cited, work)
    authors = _compare_authors(cited, work)
    # A data set and a program are published again and again with one DOI, and a thesis is often scanned later.
    is_dated = work.year is not None and work.type not in ("dataset", "software", "dissertation", "thesis")
    years = min((abs(year - work.year) for year in cited.years), default=None) if work.year and is_dated else None
    # Small numbers agree by chance: of a work whose authors cannot be compared, they are not enough.
    is_long = len(read_number(work.page)) > 2 or read_number(work.issue) in cited.issues
    if place and (authors or (authors is None and years in (0, 1) and is_long)) and cited.is_notice == work.is_notice:
        return "same", ()
    title, words = _compare_titles(cited, work)
    agrees = title in ("full", "main")
    # One work has many containers with different names, which alone say nothing.
    if place is None and title in ("other", "near") and _is_other_container(cited, work):
        place = False
    facts = _Facts(title, words, authors, place, years, has_page)
    # A comment has another author.
    is_beside = years in (0, 1) and read_number(work.volume) in cited.volumes
    if cited.is_notice != work.is_notice and (agrees or title == "near" or is_beside):
        return "related", ("notice", *facts.wrong)
    if not agrees and place is not True and _is_container(cited, work):
        return "related", ("container",)
    if place:
        return ("same", ()) if authors or agrees or title == "near" else ("doubtful", facts.wrong or ("title",))
    return _judge_title(facts, cited, work) if agrees else _judge_others(facts)


def _judge_title(facts: _Facts, cited: Cited, work: Work) -> _Word:
    """The word about a reference whose title is that of the work, and whose place does not confirm it."""
    wrong = facts.wrong
    is_far = facts.years is not None and facts.years > 3
    if facts.authors is False:
        # A short title is the title of many works, a long one can have an editor's name at the agency.
        is_other = "place" in wrong or ("year" in wrong and facts.words < 6)
        return "different" if is_other else "doubtful", wrong
    if "place" in wrong:
        is_other = facts.title == "main" and "year" in wrong and is_far
        return "different" if is_other else "related", wrong
    if _is_other_form(cited, work):
        return "related", ("edition", *wrong)
    if is_far:
        return "related" if facts.words > 1 else "doubtful", wrong
    is_near = facts.years is not None and facts.years < 2
    is_long = facts.words > 3 or (facts.words > 2 and facts.title == "full" and (is_near or facts.years is None))
    if is_long or (facts.authors and (facts.title == "full" or is_near or facts.years is None)):
        return "same", ()
    return "doubtful" if wrong else "unknown", wrong


def _judge_others(facts: _Facts) -> _Word:
    """The word about a reference whose title is not that of the work, or which has none."""
    wrong = facts.wrong
    if facts.has_page and facts.authors and facts.years in (0, 1):
        return "same", ()
    if facts.title in ("foreign", "unsure"):
        # A translation can have another year, and another spelling of the author.
        if facts.authors is False:
            return "different" if {"place", "year"} & set(wrong) else "doubtful", ("title", *wrong)
        if not (facts.authors and "place" in wrong):
            return "doubtful", ("title", *wrong)
    if facts.authors and facts.title in ("near", "foreign", "unsure") and "place" in wrong:
        is_other = "year" in wrong and facts.title != "foreign"
        return "different" if is_other else "related", ("title", *wrong)
    if len(wrong) > 1:
        return "different", wrong
    return ("doubtful", wrong or ("title",)) if wrong or facts.title else ("unknown", ())


def _compare_titles(cited: Cited, work: Work) -> tuple[_Title | None, int]:
    """How the title of a reference reads, and the words of that of the work."""
    full = split_words(work.full_title)
    main, tail = (work.title, work.subtitle) if work.subtitle else split_title(work.title)
    stated = cited.title or cited.text
    if not stated or is_latin(stated) != is_latin(work.title):
        return None, len(full)
    parts = [words for words in (split_words(main), split_words(tail) if len(tail) > 20 else []) if words]
    found = _read_title(cited.title, full, parts) if cited.title else None
    if cited.text and found not in ("full", "main"):
        found = _find_in_text(cited, work, full, parts) or found
    # What stands for a title that the agency does not have.
    if found == "other" and re.match(r"(?:proceedings|actes|actas|tagungsband)\b", simplify(work.title)):
        return "near", len(full)
    if found == "other" and cited.title:
        languages = find_language(cited.title), find_language(work.full_title)
        # Without small words, a title can be of any language.
        if languages[0] != languages[1] or not languages[0]:
            return "foreign" if all(languages) else "unsure", len(full)
    return found, len(full) if found == "full" else len(parts[0]) if parts else 0


def _read_title(title: str, full: list[str], parts: list[list[str]]) -> _Title | None:
    """How a title reads, compared with the words of another one and those of its parts."""
    words, main = split_words(title), split_words(split_title(title)[0])
    if not words:
        return None
    share = measure(words, full)
    is_part = any(part != full and measure(words, part) >= 0.95 for part in parts)
    if share >= 0.8 and not (is_part and share < 1.0):
        return "full"
    if is_part or any(measure(words, part) >= 0.85 for part in parts) or measure(main, full) >= 0.85:
        return "main"
    # A title that is cut.
    common = len(find_common(words, full))
    if (
        len(words) > 3
        and common >= 0.9 * len(set(words))
        and len(find_common(words, full[: len(words) + 1])) >= common - 1
    ):
        return "main"
    return "other" if share < 0.6 else "near"


def _find_in_text(cited: Cited, work: Work, full: list[str], parts: list[list[str]]) -> _Title | None:
    """How the title of a work reads in a text, as words between two marks. None if it is not in it."""
    names = {word for author in work.authors for word in name_words(author) if not work.is_group}
    known = set(full[:40])
    segments: list[tuple[int, set[str]]] = []
    for segment in _SEGMENT.split(cited.text[:800]):
        words = {word for word in split_words(segment) if word not in names} if segment.strip() else set()
        segments.append((len(words), {word if word in known else find_near_word(word, known) or "" for word in words}))
    for level, wanted, least in (("full", known, 0.8), *(("main", set(part), 0.85) for part in parts)):
        for begin, (_, first) in enumerate(segments):
            if first.isdisjoint(wanted):
                continue
            total, shared = 0, set[str]()
            for size, words in segments[begin : begin + 8]:
                total += size
                shared |= words & wanted
                if 2 * len(shared) >= least * (total + len(wanted)):
                    return "full" if level == "full" else "main"
    return None


def _is_container(cited: Cited, work: Work) -> bool:
    """Whether one is a part of the other: a chapter has the DOI of its book, or a book that of a chapter."""
    main, book = split_words(split_title(work.title)[0]), split_words(work.container)
    if len(book) > 1 and not work.volume and cited.title:
        stated = split_words(cited.title), split_words(split_title(cited.title)[0])
        if max(measure(words, book) for words in stated) >= 0.85:
            return True
    # In a text, editors come before the title of the book, and publishers after it.
    words = split_words(cited.container)
    words = words[: 2 * len(main) + 12] if cited.text else words
    common = len(find_common(words, main))
    return len(main) > 1 and common >= 0.9 * len(set(main)) and (bool(cited.text) or common >= 0.5 * len(set(words)))


def _is_other_form(cited: Cited, work: Work) -> bool:
    """Whether one is a preprint or a thesis, and the other is in a journal or a book."""
    has_place = bool(cited.pages or cited.volumes)
    if work.type in ("posted-content", "preprint") or is_preprint(work.container):
        return not cited.is_preprint and has_place
    return cited.is_preprint and not has_place and bool(work.page or work.volume)


def _compare_authors(cited: Cited, work: Work) -> bool | None:
    """Whether the first author of one is among those of the other. None if only another one is."""
    if not work.authors or not cited.names or is_latin(cited.names) != is_latin(work.authors[0]):
        return None
    if work.is_group or is_group(work.authors[0]):
        return True if has_group(work.authors[0], cited.names) or has_name(work.authors[0], ()) else None
    words = name_words(cited.names)
    if not words:
        return None
    if has_name(work.authors[0], words):
        return True
    if is_group(cited.names) or any(has_name(author, words) for author in work.authors[1:]):
        return None
    return False


def _compare_places(cited: Cited, work: Work) -> tuple[bool | None, bool]:
    """Whether volume and page agree, and whether the page alone does."""
    volume = _is_among(read_number(work.volume), cited.volumes)
    issue = _is_among(read_number(work.issue), cited.issues)
    first, last = int(read_number(work.page) or 0), int(read_number(work.last_page) or 0)
    pages = {int(page) for page in cited.pages}
    if cited.volumes and pages and work.type in _BOOKS and not (work.volume or first):
        # An article has the DOI of a book.
        return False, False
    # Many works begin on one of the first pages.
    if first in pages and (volume or first > 9):
        return (True, False) if volume is not False else (None, True)
    # An article can have a number, and pages of its own. A page inside the work is one of its own too.
    is_own = (volume is not False and 1 in (first, *pages)) or any(
        first < page <= (last if last > first else first + 20) for page in pages
    )
    is_other_page = bool(first and pages) and first not in pages and not is_own
    return (False if is_other_page or volume is False or (volume and issue is False) else None), False


def _is_other_container(cited: Cited, work: Work) -> bool:
    """Whether the entry names a journal or a book with no word of that of the work, also as abbreviations."""
    words, others = split_words(cited.container), split_words(work.container)
    if cited.text or not words or not others or is_latin(cited.container) != is_latin(work.container):
        return False
    is_short = all(any(other.startswith(word) for other in others) for word in words)
    return not (is_short or find_common(words, others) or has_group(work.container, cited.container))


def _is_among(number: str, numbers: frozenset[str]) -> bool | None:
    return number in numbers if number and numbers else None
