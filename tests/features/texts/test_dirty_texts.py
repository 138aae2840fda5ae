"""The right registered name of 99.6 % of dirty texts is found, and never a wrong one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from doi_names.find_names import find_names
from doi_names.suggestion import read_best
from tests.features.texts.dirty_texts import DirtyText, read_dirty_texts

DIRTY: Final = read_dirty_texts()


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


def count(read: Callable[[str], str | None]) -> Counter[str]:
    return Counter(judge_first(one, read(one.text)) for one in DIRTY.texts)
