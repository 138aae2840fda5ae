"""Texts of the kinds that people report are read right by both readers, and a wrong reading is never sure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from doi_names.find_names import find_names
from doi_names.suggestion import read_best
from tests.features.texts.dirty_texts import DirtyText, read_dirty_texts
from tests.table import table

TEXTS: Final = read_dirty_texts(Path(__file__).with_name("labelled_texts.txt")).texts
SURE: Final = ("literal", "sure")


def test_there_are_a_hundred_texts_and_more() -> None:
    assert len({one.text for one in TEXTS}) == len(TEXTS) >= 100


@table("labelled", TEXTS, ids=lambda one: one.text)
def test_the_first_name_of_a_text_is_read(labelled: DirtyText) -> None:
    best = read_best(labelled.text)
    assert (best.name.text if best else None) == next(iter(labelled.names), None), best


@table("labelled", TEXTS, ids=lambda one: one.text)
def test_all_names_of_a_text_are_found(labelled: DirtyText) -> None:
    assert tuple(dict.fromkeys(found.name.text for found in find_names(labelled.text))) == labelled.names


@table(
    ("text", "name", "other"),
    [
        # The text, the likely reading, and what else it may mean.
        ("10.1000/182 16", "10.1000/182", "10.1000/182_16"),
        ("see 10.1000/182 16, 2010", "10.1000/182", "10.1000/182_16"),
        ("10.1007/978-1-4939-0000-1 12", "10.1007/978-1-4939-0000-1_12", "10.1007/978-1-4939-0000-1"),
        ("see 10.1000/cell\nbio.2010 is", "10.1000/cell", "10.1000/cellbio.2010"),
        ("10.1000/journal.\n182", "10.1000/journal.182", "10.1000/journal"),
        ("see 10.1000/a.1.\n182 is", "10.1000/a.1", "10.1000/a.1.182"),
        ("10.1000/182ACS Publications", "10.1000/182ACS", "10.1000/182"),
        ("10.1000/182Downloaded", "10.1000/182", "10.1000/182Downloaded"),
        ("10.1021/ja003055+10.1000/1", "10.1021/ja003055", None),
        ("10.1093/awx123BRAIN 2017", "10.1093/awx123BRAIN", "10.1093/awx123"),
        ("10.1000/a.010DO  - x", "10.1000/a.010DO", "10.1000/a.010"),
        ("10.1000/182of the works", "10.1000/182of", "10.1000/182"),
        ("10.1000/182and", "10.1000/182", "10.1000/182and"),
        ("doi:10.1000/a.jour-\nnal.182", "10.1000/a.jour-nal.182", "10.1000/a.journal.182"),
        ("10.1000//182", "10.1000/182", "10.1000//182"),
        ("doi:10.1000|a182", "10.1000/a182", None),
        ("doi:10.1000@a182", "10.1000/a182", None),
        ("10.1000_a182", "10.1000/a182", None),
        ("10.1000/10.1001/182", "10.1000/10.1001/182", "10.1001/182"),
        ("10.1000/http://dx.doi.org/10.1000/1", "10.1000/1", "10.1000/http://dx.doi.org/10.1000/1"),
        ("10.1000/\u0431", "10.1000/\u0431", None),
        ("10.1000/18210.1000/183", "10.1000/182", None),
        ("10.1000/18(2", "10.1000/18(2", None),
        ("10.1000/50<947:AID", "10.1000/50<947:AID", None),
        ("10.1000/50<947:AID>2.0.CO;2-", "10.1000/50<947:AID>2.0.CO;2-", "10.1000/50<947:AID>2.0.CO;2-#"),
        ("10.1000/a=b", "10.1000/a=b", None),
        ("Tel. 10.1000/5678-90 (Berlin)", "10.1000/5678-90", None),
        ("10.1000/978-3-", "10.1000/978-3-", None),
        ("10.1000/182-ban", "10.1000/182", "10.1000/182-ban"),
    ],
)
def test_what_may_go_on_is_likely_at_most_and_has_both_readings(text: str, name: str, other: str | None) -> None:
    best, (found, *_) = read_best(text), find_names(text)
    assert best is not None and best.name.text == name == found.name.text
    assert best.confidence == found.confidence == "likely"
    assert other is None or other in [suggestion.doi.text for suggestion in found.suggestions]


@table(
    "text",
    [
        "10.1000/182\n10.1000/183",
        "10.1000/182\n\nand",
        "10.1000/182. 2010",
        "10.1000/182\n2. Author",
        "10.1000/182\nThe",
    ],
)
def test_what_does_not_go_on_stays_sure(text: str) -> None:
    assert find_names(text)[0].confidence in SURE
