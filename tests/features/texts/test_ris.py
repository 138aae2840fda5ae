"""Names in RIS files."""

from __future__ import annotations

from doi_names.errors import NotUTF8
from doi_proxy.features.texts.lines import ListItem, UnreadableItem
from doi_proxy.features.texts.references import MAX_LINKS, RisReader
from tests.table import table

LIMIT = 1_000


def read(content: str | bytes) -> list[tuple[str, int]]:
    data = content.encode() if isinstance(content, str) else content
    reader = RisReader(LIMIT)
    items = reader.feed(data) + reader.end()
    return [(item.text, item.line) for item in items if isinstance(item, ListItem)]


@table(
    ("field", "name"),
    [
        ("DO  - 10.1000/182", "10.1000/182"),
        ("DO  - https://doi.org/10.1000/182 ", "https://doi.org/10.1000/182"),
        ("DO - 10.1000/182", "10.1000/182"),
        ("UR  - https://doi.org/10.1000/182", "https://doi.org/10.1000/182"),
        ("L2  - See http://dx.doi.org/10.1000/182.", "http://dx.doi.org/10.1000/182"),
    ],
)
@table("end", ["\n", "\r\n"])
def test_the_name_of_a_reference_is_in_its_do_field_or_in_a_link(field: str, name: str, end: str) -> None:
    lines = ["TY  - JOUR", "T1  - A title - with DO  - in it", field, "ER  - ", ""]
    assert read(end.join(lines)) == [(name, 3)]


def test_links_count_only_for_a_reference_without_a_name_of_its_own() -> None:
    link = "UR  - https://doi.org/10.1000/link\n"
    text = f"TY  - JOUR\n{link}DO  - 10.1000/1\nER  - \nTY  - BOOK\n{link}ER  - \nTY  - GEN\nDO  - \n{link}"
    assert read(text) == [("10.1000/1", 3), ("https://doi.org/10.1000/link", 6), ("https://doi.org/10.1000/link", 10)]


def test_a_reference_without_a_name_is_not_an_item() -> None:
    assert read("TY  - JOUR\nUR  - https://www.example.org/10.1000/182\nAB  - doi.org\nER  - \n") == []
    assert read("") == []


def test_bytes_that_are_not_utf_8_matter_only_in_a_name() -> None:
    reader = RisReader(LIMIT)
    items = reader.feed(b"AU  - M\xfcller\nDO  - 10.1000/1\nDO  - 10.1000/\xfc\n")
    assert items[0] == ListItem("10.1000/1", 2)
    assert isinstance(items[1], UnreadableItem)
    assert (items[1].line, items[1].message) == (3, NotUTF8().message)


def test_a_bounded_number_of_links_is_remembered() -> None:
    assert len(read("UR  - https://doi.org/10.1000/182\n" * (MAX_LINKS + 1))) == MAX_LINKS
