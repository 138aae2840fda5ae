"""Whether a reference is about the work that its DOI names. An invented citation often has a real DOI of another work.

`different` needs two facts of different kinds: title, authors, place (volume, issue, page) and year. What
agrees in volume and page is the same work, whatever the language of its title.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from doi_proxy.features.metadata.cited import Cited, read_number
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
#: Why nothing was compared: the agency has no work, or did not answer in time, or its address is not known now;
#: the entry says nothing; or works are not looked up.
NotCompared = Literal["none", "failed", "address", "nothing", "off"]


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
    "failed": "Not compared: the registration agency did not answer in time.",
    "address": "Not compared: the address of the registration agency could not be looked up now.",
    "nothing": "Not compared: there is no reference with a name that leads somewhere.",
    "off": "Not compared: no works are looked up.",
}


def match(cited: Cited, work: Work) -> Compared:
    """Compare what a reference says with the work that its DOI names."""
    return Compared(*_judge(cited, work), cited, work)


def _judge(cited: Cited, work: Work) -> tuple[Match, tuple[Kind, ...]]:
    """The word about a reference, and what differs."""
    place, has_page = _compare_places(cited, work)
    authors = _compare_authors(cited, work)
    # A data set and a program are published again and again with one DOI, and a thesis is often scanned later.
    is_dated = work.year is not None and work.type not in ("dataset", "software", "dissertation", "thesis")
    years = min((abs(year - work.year) for year in cited.years), default=None) if work.year and is_dated else None
    is_near = years in (0, 1)
    is_other_notice = cited.is_notice != work.is_notice
    # Small numbers agree by chance: of a work whose authors cannot be compared, they are not enough.
    is_long = len(read_number(work.page)) > 2 or read_number(work.issue) in cited.issues
    if place and (authors or (authors is None and is_near and is_long)) and not is_other_notice:
        return "same", ()
    full = split_words(work.full_title)
    title = _compare_titles(cited, work, full)
    agrees, is_near_title, is_foreign = title in ("full", "main"), title == "near", title in ("foreign", "unsure")
    facts: dict[Kind, bool] = {
        "title": title == "other",
        "authors": authors is False,
        "place": place is False,
        "year": years is not None and years > 1,
    }
    wrong = tuple(kind for kind, is_wrong in facts.items() if is_wrong)
    is_far = years is not None and years > 3
    has_place, is_posted = bool(cited.pages or cited.volumes), work.type in ("posted-content", "preprint")
    is_beside = is_near and read_number(work.volume) in cited.volumes
    is_moved = bool(authors) and facts["place"] and (is_near_title or is_foreign)
    words: tuple[tuple[bool, Match, tuple[Kind, ...]], ...] = (
        # A comment has another author.
        (is_other_notice and (agrees or is_near_title or is_beside), "related", ("notice", *wrong)),
        (not agrees and _is_container(cited, work), "related", ("container",)),
        (place is True and (authors or agrees or is_near_title), "same", ()),
        (place is True, "doubtful", wrong or ("title",)),
        # The title agrees. A short one is that of many works, a long one can have an editor's name at the agency.
        (agrees and facts["authors"] and (facts["place"] or (facts["year"] and len(full) < 6)), "different", wrong),
        (agrees and facts["authors"], "doubtful", wrong),
        (title == "main" and facts["place"] and is_far, "different", wrong),
        (agrees and facts["place"], "related", wrong),
        # One is a preprint, and the other is in a journal or a book.
        (agrees and cited.is_preprint != has_place == is_posted, "related", ("edition", *wrong)),
        (agrees and is_far, "related", wrong),
        (agrees and (len(full) > 2 or bool(authors)), "same", ()),
        (agrees, "doubtful" if wrong else "unknown", wrong),
        # It does not, or there is none. A translation can have another year, and another spelling of the author.
        (has_page and bool(authors) and is_near, "same", ()),
        (is_foreign and facts["authors"] and (facts["place"] or facts["year"]), "different", ("title", *wrong)),
        (is_foreign and not is_moved, "doubtful", ("title", *wrong)),
        (is_moved, "different" if facts["year"] and title != "foreign" else "related", ("title", *wrong)),
        (len(wrong) > 1, "different", wrong),
        (bool(wrong or title), "doubtful", wrong or ("title",)),
    )
    return next(((word, differs) for is_so, word, differs in words if is_so), ("unknown", ()))


def _compare_titles(cited: Cited, work: Work, full: list[str]) -> _Title | None:
    """How the title of a reference reads, compared with that of the work, whose words are `full`."""
    main, tail = (work.title, work.subtitle) if work.subtitle else split_title(work.title)
    stated = cited.title or cited.text
    if not stated or is_latin(stated) != is_latin(work.title):
        return None
    parts = [split_words(main), split_words(tail) if len(tail) > 20 else []]
    found = _read_title(cited.title, full, parts) if cited.title else None
    if cited.text and found not in ("full", "main"):
        found = _find_in_text(cited.text, full, parts) or found
    if found == "other" and cited.title:
        languages = find_language(cited.title), find_language(work.full_title)
        # Without small words, a title can be of any language.
        if languages[0] != languages[1] or not languages[0]:
            return "foreign" if all(languages) else "unsure"
    return found


def _read_title(title: str, full: list[str], parts: list[list[str]]) -> _Title | None:
    """How a title reads, compared with the words of another one and those of its parts."""
    words, main = split_words(title), split_words(split_title(title)[0])
    if not words:
        return None
    share = measure(words, full)
    is_part = any(part != full and measure(words, part) >= 0.95 for part in parts)
    if share >= 0.8 and not (is_part and share < 1.0):
        return "full"
    if any(measure(words, part) >= 0.85 for part in parts) or measure(main, full) >= 0.85:
        return "main"
    return "other" if share < 0.6 else "near"


def _find_in_text(text: str, full: list[str], parts: list[list[str]]) -> _Title | None:
    """How the title of a work reads in a text, as words between two marks. None if it is not in it."""
    known = set(full[:40])
    segments: list[tuple[int, set[str]]] = []
    for segment in _SEGMENT.split(text[:800]):
        words = set(split_words(segment))
        segments.append((len(words), {word if word in known else find_near_word(word, known) or "" for word in words}))
    for number, wanted in enumerate((known, *map(set, parts))):
        for begin, (_, first) in enumerate(segments):
            if first.isdisjoint(wanted):
                continue
            total, shared = 0, set[str]()
            for size, words in segments[begin : begin + 8]:
                total += size
                shared |= words & wanted
                if 2 * len(shared) >= (0.85 if number else 0.8) * (total + len(wanted)):
                    return "main" if number else "full"
    return None


def _is_container(cited: Cited, work: Work) -> bool:
    """Whether one is a part of the other: a chapter has the DOI of its book, or a book that of a chapter."""
    main, book = split_words(split_title(work.title)[0]), split_words(work.container)
    stated = split_words(cited.title), split_words(split_title(cited.title)[0])
    if len(book) > 1 and not work.volume and max(measure(words, book) for words in stated) >= 0.85:
        return True
    # In a text, editors come before the title of the book, and publishers after it.
    return bool(main) and len(find_common(split_words(cited.container), main)) >= 0.9 * len(set(main))


def _compare_authors(cited: Cited, work: Work) -> bool | None:
    """Whether the first author of one is among those of the other. None if only another one is."""
    if not work.authors or not cited.names or is_latin(cited.names) != is_latin(work.authors[0]):
        return None
    if work.is_group or is_group(work.authors[0]):
        return has_group(work.authors[0], cited.names) or None
    words = name_words(cited.names)
    if words and has_name(work.authors[0], words):
        return True
    is_open = not words or is_group(cited.names) or any(has_name(author, words) for author in work.authors[1:])
    return None if is_open else False


def _compare_places(cited: Cited, work: Work) -> tuple[bool | None, bool]:
    """Whether volume and page agree, and whether the page alone does."""
    volume, issue = (
        number in numbers if number and numbers else None
        for number, numbers in ((read_number(work.volume), cited.volumes), (read_number(work.issue), cited.issues))
    )
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
