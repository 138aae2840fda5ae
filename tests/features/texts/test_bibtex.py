"""Names in BibTeX files: long entries, values that are not closed, and work that is linear in the file."""

from __future__ import annotations

import time

from app.features.texts.lines import ListItem
from app.features.texts.references import MAX_LINKS, MAX_PART_CHARACTERS, BibtexReader
from tests.table import table

LIMIT = 65_536


def read(content: str) -> list[tuple[str, int]]:
    reader = BibtexReader(LIMIT)
    items = reader.feed(content.encode()) + reader.end()
    return [(item.text, item.line) for item in items if isinstance(item, ListItem)]


@table(
    ("field", "names"),
    [
        ("doi = {10.1/a}", ["10.1/a"]),
        ('doi = "10.1/a{b"c}"', ['10.1/ab"c']),
        ("doi = {10.1/{a}{b}}", ["10.1/ab"]),
        ("doi = {10.1/a\\}b}", ["10.1/a\\b"]),
        ('doi = "10.1/a\ndoi = {10.1/b}', ["10.1/a", "10.1/b"]),
        ("doi = {see doi = {10.1/a}}", ["see doi = 10.1/a"]),
        ("doi = 10.1/a, year = 2020", ["10.1/a"]),
    ],
)
def test_a_value_ends_where_it_is_closed_or_with_its_line(field: str, names: list[str]) -> None:
    assert [name for name, _ in read(f"@article{{x,\n{field}\n}}\n")] == names


def test_the_parts_of_a_long_entry_are_one_entry() -> None:
    abstract = "title = {see https://doi.org/10.1/other},\n" + "  author and\n" * MAX_PART_CHARACTERS
    assert read(f"@article{{x,\n{abstract}doi = {{10.1/a}}\n}}\n") == [("10.1/a", MAX_PART_CHARACTERS + 3)]
    assert read(f"@article{{x,\n{abstract}}}\n@misc{{y}}\n") == [("https://doi.org/10.1/other", 2)]
    assert read(f"@comment{{x,\n{abstract}doi = {{10.1/a}}\n}}\n") == []


def test_the_first_links_of_an_entry_without_a_field_count() -> None:
    links = "".join(f"url = {{https://doi.org/10.1/{number}}},\n" for number in range(MAX_LINKS + 9))
    assert len(read(f"@article{{x,\n{links}}}\n")) == MAX_LINKS


@table("piece", ["doi=", "doi={", 'doi="', "doi={{\n", "{", '"\n', "@\n"])
def test_the_work_is_linear_in_the_file(piece: str) -> None:
    def spend(characters: int) -> float:
        content = "@article{x,\ntitle={" + piece * (characters // len(piece))
        began = time.thread_time()
        read(content)
        return time.thread_time() - began

    # 56,000 bytes took 14 s, four times as long as half of them.
    assert min(spend(56_000) for _ in range(3)) < 0.5
