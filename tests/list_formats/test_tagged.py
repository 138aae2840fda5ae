"""Names in files whose lines begin with tags."""

from __future__ import annotations

from doi_proxy.list_formats.bibtex import ENDNOTE, MEDLINE, RIS, WEB_OF_SCIENCE, TagFormat, TaggedReader, expand
from doi_proxy.list_formats.lines import Item, ListItem, UnreadableItem
from tests.table import table

LIMIT = 1_000


def read_all(content: str | bytes, tags: TagFormat = RIS) -> list[Item]:
    data = content.encode() if isinstance(content, str) else content
    reader = TaggedReader(tags, LIMIT)
    return [item for group in expand(reader.feed(data) + reader.end()) for item in group]


def read(content: str | bytes, tags: TagFormat = RIS) -> list[tuple[str, int]]:
    return [(item.text, item.line) for item in read_all(content, tags) if isinstance(item, ListItem)]


@table(
    ("field", "name"),
    [
        ("DO  - 10.1000/182", "10.1000/182"),
        ("DO  - https://doi.org/10.1000/182 ", "https://doi.org/10.1000/182"),
        ("DO - 10.1000/182", "10.1000/182"),
        ("UR  - https://doi.org/10.1000/182", "10.1000/182"),
        ("L2  - See http://dx.doi.org/10.1000/182.", "10.1000/182"),
        ("N1  - doi: 10.1000/182", "10.1000/182"),
        ("UR  - https://publisher.example/doi/full/10.1000/182?role=tab", "10.1000/182"),
    ],
)
@table("end", ["\n", "\r\n"])
def test_the_name_of_a_reference_is_in_its_do_field_or_in_another(field: str, name: str, end: str) -> None:
    lines = ["TY  - JOUR", "T1  - A title - with DO  - in it", field, "ER  - ", ""]
    assert read(end.join(lines)) == [(name, 3)]


def test_other_fields_count_only_for_a_reference_without_a_name_of_its_own() -> None:
    link = "UR  - https://doi.org/10.1000/link\n"
    text = f"TY  - JOUR\n{link}DO  - 10.1000/1\nER  - \nTY  - BOOK\n{link}ER  - \nTY  - GEN\nDO  - \n{link}"
    assert read(text) == [("10.1000/1", 3), ("10.1000/link", 6), ("10.1000/link", 10)]


def test_a_name_in_another_field_is_likely_and_the_field_is_named() -> None:
    [item] = read_all("TY  - BOOK\nN1  - doi:10.1000/182\nER  - \n")
    assert isinstance(item, ListItem) and item.found is not None
    assert (item.found.confidence, item.found.rule) == ("likely", "other-field")
    assert item.note == "Found in the field “N1”."


def test_names_in_an_abstract_count_only_if_no_other_field_has_one() -> None:
    abstract = "AB  - A comment on 10.1000/other\n"
    assert read(f"TY  - BOOK\n{abstract}UR  - https://doi.org/10.1000/182\nER  - \n") == [("10.1000/182", 3)]
    assert read(f"TY  - BOOK\n{abstract}ER  - \n") == [("10.1000/other", 2)]


def test_a_field_with_two_names_is_two_items() -> None:
    assert read("TY  - BOOK\nDO  - 10.1000/1; https://doi.org/10.1000/2\nER  - \n") == [
        ("10.1000/1", 2),
        ("10.1000/2", 2),
    ]


def test_a_reference_without_a_name_has_its_title() -> None:
    text = "TY  - JOUR\nTI  - A title\nUR  - https://www.example.org/1\nAB  - doi.org\nER  - \n"
    assert [(type(item), item.text, item.line) for item in read_all(text)] == [(UnreadableItem, "A title", 1)]
    assert read("") == []


def test_bytes_that_are_not_utf_8_are_windows_1252_and_the_row_says_so() -> None:
    items = read_all(b"AU  - M\xfcller\nDO  - 10.1000/1\nDO  - 10.1000/\xfc\n")
    assert items == [
        ListItem("10.1000/1", 2),
        ListItem("10.1000/ü", 3, note="Line 3 is not UTF-8; it was read as Windows-1252."),
    ]


PUBMED = """
PMID- 123
TI  - A title that goes on
      in a second line
LID - 10.1000/182 [doi]
AID - S0002(10) [pii]
AID - 10.1000/182 [doi]
SO  - J X. 2010;1:2. doi: 10.1000/182.

PMID- 124
LID - e123 [pii]
SO  - J X. 2010;1:3. doi: 10.1000/
      183. Epub 2010.
"""


def test_medline_names_are_marked_and_a_value_goes_on_in_the_next_line() -> None:
    items = read_all(PUBMED, MEDLINE)
    assert next((item.text, item.line, item.key) for item in items if isinstance(item, ListItem)) == (
        "10.1000/182",
        5,
        "123",
    )
    assert [(item.found and item.found.name.text, item.key) for item in items[1:] if isinstance(item, ListItem)] == [
        ("10.1000/183", "124")
    ]


def test_endnote_and_web_of_science_have_their_own_tags() -> None:
    endnote = (
        "%0 Journal Article\n%T A title\n%R 10.1000/1\n\n%0 Book\n%T Another\n%R PMC12\n%U https://doi.org/10.1000/2\n"
    )
    assert read(endnote, ENDNOTE) == [("10.1000/1", 3), ("10.1000/2", 8)]
    wos = "FN Clarivate\nVR 1.0\nPT J\nTI A title\nDI 10.1000/1\nER\n\nPT J\nTI Another\nER\n\nEF\n"
    assert [item.text for item in read_all(wos, WEB_OF_SCIENCE)] == ["10.1000/1", "Another"]
