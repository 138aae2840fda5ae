"""Names in BibTeX files and files with tags: long entries, values that are not closed, and work that is linear."""

from __future__ import annotations

import time

from doi_names.presentation import read_typed
from doi_proxy.list_formats.bibliographies import (
    ENDNOTE,
    MAX_PART_CHARACTERS,
    MEDLINE,
    RIS,
    WEB_OF_SCIENCE,
    BibtexReader,
    TagFormat,
    TaggedReader,
)
from doi_proxy.list_formats.entries import MAX_NAMES, Item, ListItem, UnreadableItem, expand
from tests.table import table

LIMIT = 65_536


def read(content: str | bytes) -> list[tuple[str, int]]:
    reader = BibtexReader(LIMIT)
    items = reader.feed(content.encode() if isinstance(content, str) else content) + reader.end()
    return [(item.text, item.line) for group in expand(items) for item in group if isinstance(item, ListItem)]


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


@table(
    ("field", "name"),
    [
        ("doi = {10.1000/182}", "10.1000/182"),
        ('DOI="10.1000/182"', "10.1000/182"),
        ("Doi\t=\n    {10.1000/182}", "10.1000/182"),
        ("doi = 10.1000/182", "10.1000/182"),
        ("doi = {https://doi.org/10.1000/182}", "10.1000/182"),
        ("doi = {{10.1000/182}}", "10.1000/182"),
        ('doi = "{10.1000/182}"', "10.1000/182"),
        (r"doi = {10.1000/a\_b}", "10.1000/a_b"),
        (r"doi = {10.1000/a{\_}b}", "10.1000/a_b"),
        (r"doi = {10.1002/(SICI)1522-2594(199911)42:5$<$952::AID-MRM16$>$3.0.CO;2-S}",
         "10.1002/(SICI)1522-2594(199911)42:5<952::AID-MRM16>3.0.CO;2-S"),
        (r"doi = {10.1000/a\textless{}b\textgreater c}", "10.1000/a<b>c"),
        ("doi = {10.1000/a-long-\n          name}", "10.1000/a-long-name"),
        ("url = {http://dx.doi.org/10.1000/182}", "10.1000/182"),
        (r"howpublished = {\url{https://doi.org/10.1000/a\_b}}", "10.1000/a_b"),
        ("note = {See https://doi.org/10.1000/182.}", "10.1000/182"),
        ("note = {The handbook (https://doi.org/10.1000/182), 2nd ed.}", "10.1000/182"),
        ("url = {https://doi.org/10.1016/S0021-9797(98)90001-2}", "10.1016/S0021-9797(98)90001-2"),
    ],
)  # fmt: skip
def test_the_name_of_an_entry_is_in_its_doi_field_or_in_a_url(field: str, name: str) -> None:
    [(text, _)] = read("@article{key,\n  title = {A {T}itle},\n  " + field + ",\n  year = 1999\n}\n")
    assert read_typed(text).text == name


@table(
    ("field", "name"),
    [
        ('doi = pre # "182"', "10.1000/182"),
        ("doi = PRE#{182}", "10.1000/182"),
        ('doi = "10.1000/" # {18} # "2"', "10.1000/182"),
        ("doi = whole", "10.1000/182"),
    ],
)
def test_abbreviations_are_joined(field: str, name: str) -> None:
    strings = '@string{pre = "10.1000/"}\n@String(whole = {10.1000/182})\n'
    assert [text for text, _ in read(f"{strings}@misc{{a, {field}, year = 1999}}\n")] == [name]


@table(
    ("field", "names"),
    [
        ("doi = {10.1000/1; 10.1000/2}", ["10.1000/1", "10.1000/2"]),
        ("note = {DOI: 10.1000/182}", ["10.1000/182"]),
        (r"doi = {10.1000/a\ensuremath{<}b\ensuremath{>}}", ["10.1000/a<b>"]),
        ("url = {https://publisher.example/doi/abs/10.1000/182}", ["10.1000/182"]),
    ],
)
def test_every_field_is_read_before_an_entry_has_no_name(field: str, names: list[str]) -> None:
    assert [text for text, _ in read(f"@misc{{a,\n title = {{T}},\n {field}\n}}\n")] == names


@table("field", ["doi = {10.1000/182}", "doi = {}", "doi = {{}}", "doi = { }", 'doi = "{}"'])
def test_a_url_counts_where_the_doi_field_is_empty(field: str) -> None:
    found = read("@article{a,\n url = {https://doi.org/10.1000/url},\n " + field + ",\n}\n")
    assert [text for text, _ in found] == ["10.1000/182" if "182" in field else "10.1000/url"]


def test_entries_without_a_name_comments_and_strings_are_passed_over() -> None:
    text = """\
A comment, which may hold doi = {10.1000/no}.
@string{here = "doi = 10.1000/no"}
@comment{jabref-meta: doi = {10.1000/no}}
@misc{b, number = {10.2000}, isbn = {978-0}}
@misc{c, doi = {10.1000/1}} @misc{d, doi = {10.1000/2}}
"""
    assert [name for name, _ in read(text)] == ["10.1000/1", "10.1000/2"]


@table("broken", ["@misc{a, doi = {10.1000/1\n", '@misc{a, doi = "10.1000/1\n', "@misc{a, doi = {10.1000/1}"])
def test_an_entry_that_is_never_closed_costs_no_other(broken: str) -> None:
    assert [name for name, _ in read(broken + "\n@misc{b, doi = {10.1000/2}}\n")] == ["10.1000/1", "10.1000/2"]


def test_another_encoding_is_read_where_the_name_is_plain() -> None:
    assert read("@article{a, author = {M\u00fcller}, doi = {10.1000/182}}\n".encode("latin-1")) == [("10.1000/182", 1)]


def test_the_parts_of_a_long_entry_are_one_entry() -> None:
    abstract = "title = {see https://doi.org/10.1000/other},\n" + "  author and\n" * MAX_PART_CHARACTERS
    assert read(f"@article{{x,\n{abstract}doi = {{10.1/a}}\n}}\n") == [("10.1/a", MAX_PART_CHARACTERS + 3)]
    assert read(f"@article{{x,\n{abstract}}}\n@misc{{y}}\n") == [("10.1000/other", 2)]
    assert read(f"@comment{{x,\n{abstract}doi = {{10.1/a}}\n}}\n") == []


def test_the_first_names_of_an_entry_without_a_field_count() -> None:
    links = "".join(f"url = {{https://doi.org/10.1000/{number}}},\n" for number in range(MAX_NAMES + 9))
    assert len(read(f"@article{{x,\n{links}}}\n")) == MAX_NAMES


@table("piece", ["doi=", "doi={", 'doi="', "doi={{\n", "{", '"\n', "@\n"])
def test_the_work_is_linear_in_the_file(piece: str) -> None:
    def spend(characters: int) -> float:
        content = "@article{x,\ntitle={" + piece * (characters // len(piece))
        began = time.thread_time()
        read(content)
        return time.thread_time() - began

    # 56,000 bytes took 14 s, four times as long as half of them.
    assert min(spend(56_000) for _ in range(3)) < 0.5


# --- Names in files whose lines begin with tags ----------------------------------------------------------------------


LIMIT_TAGGED = 1_000


def read_all(content: str | bytes, tags: TagFormat = RIS) -> list[Item]:
    data = content.encode() if isinstance(content, str) else content
    reader = TaggedReader(tags, LIMIT_TAGGED)
    return [item for group in expand(reader.feed(data) + reader.end()) for item in group]


def read_tagged(content: str | bytes, tags: TagFormat = RIS) -> list[tuple[str, int]]:
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
    assert read_tagged(end.join(lines)) == [(name, 3)]


def test_other_fields_count_only_for_a_reference_without_a_name_of_its_own() -> None:
    link = "UR  - https://doi.org/10.1000/link\n"
    text = f"TY  - JOUR\n{link}DO  - 10.1000/1\nER  - \nTY  - BOOK\n{link}ER  - \nTY  - GEN\nDO  - \n{link}"
    assert read_tagged(text) == [("10.1000/1", 3), ("10.1000/link", 6), ("10.1000/link", 10)]


def test_a_name_in_another_field_is_likely_and_the_field_is_named() -> None:
    [item] = read_all("TY  - BOOK\nN1  - doi:10.1000/182\nER  - \n")
    assert isinstance(item, ListItem) and item.found is not None
    assert (item.found.confidence, item.found.rule) == ("likely", "other-field")
    assert item.note == "Found in the field “N1”."


def test_names_in_an_abstract_count_only_if_no_other_field_has_one() -> None:
    abstract = "AB  - A comment on 10.1000/other.1\n"
    assert read_tagged(f"TY  - BOOK\n{abstract}UR  - https://doi.org/10.1000/182\nER  - \n") == [("10.1000/182", 3)]
    assert read_tagged(f"TY  - BOOK\n{abstract}ER  - \n") == [("10.1000/other.1", 2)]


def test_a_field_with_two_names_is_two_items() -> None:
    assert read_tagged("TY  - BOOK\nDO  - 10.1000/1; https://doi.org/10.1000/2\nER  - \n") == [
        ("10.1000/1", 2),
        ("10.1000/2", 2),
    ]


def test_a_reference_without_a_name_has_its_title() -> None:
    text = "TY  - JOUR\nTI  - A title\nUR  - https://www.example.org/1\nAB  - doi.org\nER  - \n"
    assert [(type(item), item.text, item.line) for item in read_all(text)] == [(UnreadableItem, "A title", 1)]
    assert read_tagged("") == []


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
    assert read_tagged(endnote, ENDNOTE) == [("10.1000/1", 3), ("10.1000/2", 8)]
    wos = "FN Clarivate\nVR 1.0\nPT J\nTI A title\nDI 10.1000/1\nER\n\nPT J\nTI Another\nER\n\nEF\n"
    assert [item.text for item in read_all(wos, WEB_OF_SCIENCE)] == ["10.1000/1", "Another"]
