"""The right registered name of 99.1 % of dirty texts is found, and never a wrong one.

The regular expressions that other programs use are counted beside it (docs/suggestions.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from doi_names.find_names import find_names
from doi_names.suggestion import read_best
from tests.features.texts.dirty_texts import DirtyText, read_dirty_texts

DIRTY: Final = read_dirty_texts()
#: The ones that Crossref recommends (2015), searched in the text, one after the other.
CROSSREF: Final = (
    r"10.\d{4,9}/[-._;()/:A-Z0-9]+",
    r"10.1002/[^\s]+",
    r"10.\d{4}/\d+-\d+X?(\d+)\d+<[\d\w]+:[\d\w]*>\d+.\d+.\w+;\d",
    r"10.1021/\w\w\d+",
    r"10.1207/[\w\d]+\&\d+_\d+",
)


def judge(one: DirtyText, found: list[str]) -> str:
    """Whether the names that were found are "right", one of them is "wrong", or one is "missing".

    Only registered names count: a caller looks each name up.
    """
    exist = [DIRTY.registered[name.lower()] for name in found if name.lower() in DIRTY.registered]
    names = tuple(dict.fromkeys(exist))
    if set(names) - set(one.names):
        return "wrong"
    return "right" if names == one.names else "missing"


def judge_first(one: DirtyText, found: str | None) -> str:
    """The same for a reader of one name."""
    return judge(DirtyText(one.kind, one.text, one.names[:1]), [found] if found else [])


def test_there_are_800_texts_and_no_decoy_is_meant() -> None:
    meant = {name for one in DIRTY.texts for name in one.names}
    assert len({one.text for one in DIRTY.texts}) >= 800
    assert len(DIRTY.decoys) >= 84 and not meant & set(DIRTY.decoys)


def read_one(text: str) -> str | None:
    best = read_best(text)
    return None if best is None else best.name.text


def test_both_readers_give_the_right_name_and_none_that_is_wrong() -> None:
    found = Counter(judge(one, [found.name.text for found in find_names(one.text)]) for one in DIRTY.texts)
    assert count(read_one) == found == {"right": 797, "missing": 3}


def first_match(patterns: tuple[str, ...]) -> Callable[[str], str | None]:
    compiled = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]

    def read(text: str) -> str | None:
        return next((found[0] for one in compiled if (found := one.search(text))), None)

    return read


def count(read: Callable[[str], str | None]) -> Counter[str]:
    return Counter(judge_first(one, read(one.text)) for one in DIRTY.texts)


def test_the_regular_expressions_of_crossref_find_fewer() -> None:
    assert count(first_match(CROSSREF)) == {"right": 506, "wrong": 34, "missing": 260}


def test_the_regular_expression_of_doi_regex_finds_fewer() -> None:
    """What doi-regex 0.1.17 (npm) matches, as an expression of Python."""
    doi_regex = r'10\.[0-9]{2,}(?:\.[0-9]+)*/[^\s%"#?]+'
    assert count(first_match((doi_regex,))) == {"right": 374, "missing": 417, "wrong": 9}
