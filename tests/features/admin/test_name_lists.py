"""Lists of names: what is read of text, BibTeX and CSV, and that nothing is lost in silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from app.doi.name import HandleName
from app.errors import ConfigurationError, InvalidName, NotADOI
from app.features.admin.name_lists import MAX_LINE_BYTES, NameItem, RefusedItem, UniqueNames, read_lists, read_name

HANDBOOK = "10.1000/182"


def read(path: Path, content: str | bytes, *, column: str | None = None, any_handle: bool = False) -> list[NameItem]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_lists([str(path)], column=column, any_handle=any_handle))


def names(items: list[NameItem]) -> list[str]:
    return [item.text for item in items if isinstance(item, HandleName)]


def refused(items: list[NameItem]) -> list[str]:
    """The places of what was no name, without the file."""
    return [item.place.rpartition(", ")[2] for item in items if isinstance(item, RefusedItem)]


# --- Text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "10.1000/182",
        "  10.1000/182\t",
        "doi:10.1000/182",
        "https://doi.org/10.1000/182",
        "http://dx.doi.org/10.1000%2F182",
        "https://doi-org.ezproxy.example.edu/10.1000/182",
        "info:doi/10.1000/182",
        "urn:doi:10.1000:182",
        "https://doi.org/10.1000/182?locatt=type:pdf",
    ],
)
def test_a_line_may_hold_a_name_in_any_presentation_form(tmp_path: Path, line: str) -> None:
    assert names(read(tmp_path / "list.txt", line + "\n")) == [HANDBOOK]


def test_blank_lines_comments_and_a_byte_order_mark_are_no_names(tmp_path: Path) -> None:
    items = read(tmp_path / "list.txt", b"\xef\xbb\xbf10.1000/1\r\n\r\n  \n# 10.1000/no\n10.1000/2")
    assert (names(items), refused(items)) == (["10.1000/1", "10.1000/2"], [])


@pytest.mark.parametrize(
    "line",
    [
        b"Digital Object Identifier Handbook",
        b"https://www.example.org/10.1000/182",
        b"0.NA/10.1000",
        b"10.1000",
        b"10.1000/%zz",
        b"10.1000/\xff\xfe",
        b"10.1000/a\x00b",
        b"10.1000/" + 9_000 * b"x",
    ],
)
def test_a_line_that_is_no_doi_name_is_told_with_its_number_and_the_rest_goes_on(tmp_path: Path, line: bytes) -> None:
    items = read(tmp_path / "list.txt", b"10.1000/1\n" + line + b"\n10.1000/2\n")
    assert (names(items), refused(items)) == (["10.1000/1", "10.1000/2"], ["line 2"])
    failure = items[1]
    assert isinstance(failure, RefusedItem)
    assert failure.reason.endswith(".")
    assert len(failure.text) <= 80


def test_a_short_doi_is_a_name_and_any_handle_is_one_where_that_is_wanted(tmp_path: Path) -> None:
    assert names(read(tmp_path / "list.txt", "10/abcde\n")) == ["10/abcde"]
    assert names(read(tmp_path / "list.txt", "0.NA/10.1000\n", any_handle=True)) == ["0.NA/10.1000"]
    assert read_name("0.NA/10.1000", any_handle=True).text == "0.NA/10.1000"
    with pytest.raises(NotADOI):
        read_name("0.NA/10.1000")
    with pytest.raises(InvalidName):
        read_name("", any_handle=True)


def test_a_line_longer_than_allowed_is_left_out_without_being_held(tmp_path: Path) -> None:
    items = read(tmp_path / "list.txt", 3 * MAX_LINE_BYTES * b"x" + b"\n10.1000/1\n")
    assert (names(items), refused(items)) == (["10.1000/1"], ["line 1"])


def test_lists_are_read_one_behind_the_other_and_unpacked_by_their_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.bib.gz"
    first.write_text("10.1000/1\n")
    second.write_bytes(gzip.compress(b"@misc{b,\n doi = {10.1000/2}}\n"))
    assert names(list(read_lists([str(first), str(second)]))) == ["10.1000/1", "10.1000/2"]


def test_a_file_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("10.1000/1\n")
    for path, problem in ((tmp_path / "b.txt", "neither a file nor a DOI name"), (tmp_path, "this is a folder")):
        with pytest.raises(ConfigurationError, match=problem):
            read_lists([str(tmp_path / "a.txt"), str(path)])


def test_a_compressed_list_that_was_cut_off_is_no_shorter_list(tmp_path: Path) -> None:
    (tmp_path / "list.txt.gz").write_bytes(gzip.compress(b"10.1000/1\n" * 1000, mtime=0)[:-10])
    with pytest.raises(ConfigurationError, match="The gzip data ends too early"):
        list(read_lists([str(tmp_path / "list.txt.gz")]))


# --- Each name once -----------------------------------------------------------------------------------------------


def test_names_that_differ_in_the_case_of_ascii_letters_are_one() -> None:
    given = [
        HandleName("10.1000/a"),
        HandleName("10.1000/A"),
        HandleName("10.1000/\u00e4"),
        HandleName("10.1000/\u00c4"),
    ]
    distinct = UniqueNames(given)
    assert names(list(distinct)) == ["10.1000/a", "10.1000/\u00e4", "10.1000/\u00c4"]
    assert distinct.repeated == 1


def test_so_many_names_are_remembered_and_no_more() -> None:
    given = [HandleName(f"10.1000/{number}") for number in (1, 2, 1, 3, 1)]
    assert names(list(UniqueNames(given, most=2))) == ["10.1000/1", "10.1000/2", "10.1000/3", "10.1000/1"]


# --- CSV ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "column"),
    [
        ("title,doi\nHandbook,10.1000/182\n", None),
        ("DOI\n10.1000/182\n", None),
        ("\ufeffDoi;title\n10.1000/182;Handbook\n", None),
        ("title\tDOI\nHandbook\t10.1000/182\n", None),
        ('"title","doi"\r\n"a, ""quoted"" one\r\nover two lines","https://doi.org/10.1000/182"\r\n', None),
        ("doi,Identifier\n,10.1000/182\n", "Identifier"),
        ("title, doi \nHandbook, 10.1000/182\n", None),
    ],
)
def test_the_column_of_a_table_is_read_whatever_separates_the_cells(
    tmp_path: Path, content: str, column: str | None
) -> None:
    items = read(tmp_path / "list.csv", content, column=column)
    assert (names(items), refused(items)) == ([HANDBOOK], [])


def test_empty_cells_and_short_rows_are_no_names_and_others_are_told_with_their_line(tmp_path: Path) -> None:
    items = read(tmp_path / "list.csv", "title,doi\na,10.1000/1\nb,\nc\nd,n/a\ne,10.1000/2\n")
    assert (names(items), refused(items)) == (["10.1000/1", "10.1000/2"], ["line 5"])


def test_a_quote_that_is_never_closed_ends_the_list_after_the_names_before_it(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text('title,doi\na,10.1000/1\n"b,10.1000/2\nc,10.1000/3\n')
    items = read_lists([str(path)])
    assert names([next(items)]) == ["10.1000/1"]
    with pytest.raises(ConfigurationError, match=r"list\.csv: Line 3: a quote is not closed"):
        next(items)


def test_a_table_without_the_column_ends_with_the_names_of_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no column 'doi'; name one .*: 'title', 'identifier'"):
        read(tmp_path / "list.csv", "title;identifier\na;10.1000/1\n")


def test_a_named_column_makes_a_table_of_any_file_but_bibtex(tmp_path: Path) -> None:
    assert names(read(tmp_path / "list", "id\n10.1000/182\n", column="id")) == [HANDBOOK]


def test_an_empty_table_has_no_names(tmp_path: Path) -> None:
    assert read(tmp_path / "list.csv", "\n") == []


# --- BibTeX -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
def test_the_name_of_an_entry_is_in_its_doi_field_or_in_a_url(tmp_path: Path, field: str, name: str) -> None:
    items = read(tmp_path / "refs.bib", "@article{key,\n  title = {A {T}itle},\n  " + field + ",\n  year = 1999\n}\n")
    assert (names(items), refused(items)) == ([name], [])


def test_a_doi_field_counts_before_the_urls_of_its_entry(tmp_path: Path) -> None:
    entry = "@article{a,\n url = {https://doi.org/10.1000/other},\n doi = {10.1000/182},\n}\n"
    assert names(read(tmp_path / "refs.bib", entry)) == [HANDBOOK]


@pytest.mark.parametrize("field", ["doi = {}", "doi = {{}}", "doi = { }", 'doi = "{}"'])
def test_an_empty_doi_field_leaves_the_urls_of_its_entry(tmp_path: Path, field: str) -> None:
    items = read(tmp_path / "refs.bib", "@article{a,\n " + field + ",\n url = {https://doi.org/10.1000/182},\n}\n")
    assert (names(items), refused(items)) == ([HANDBOOK], [])


def test_entries_without_a_name_comments_and_strings_are_passed_over(tmp_path: Path) -> None:
    text = """\
A comment, which may hold doi = {10.1000/no}.
@string{here = "doi = 10.1000/no"}
@comment{jabref-meta: doi = {10.1000/no}}
@book{a, title = {No name}, doi = {}}
@misc{b, mydoi = {10.1000/no}, isbn = {978-0}}
@misc{c, doi = {10.1000/1}} @misc{d, doi = {10.1000/2}}
"""
    items = read(tmp_path / "refs.bib", text)
    assert (names(items), refused(items)) == (["10.1000/1", "10.1000/2"], [])


def test_a_field_that_holds_no_name_is_told_with_its_line(tmp_path: Path) -> None:
    items = read(tmp_path / "refs.bib", "@misc{a,\n title = {x},\n doi = {in press},\n}\n@misc{b, doi = {10.1000/1}}\n")
    assert (names(items), refused(items)) == (["10.1000/1"], ["line 3"])


@pytest.mark.parametrize(
    "broken", ["@misc{a, doi = {10.1000/1\n", '@misc{a, doi = "10.1000/1\n', "@misc{a, doi = {10.1000/1}"]
)
def test_an_entry_that_is_never_closed_costs_no_other(tmp_path: Path, broken: str) -> None:
    items = read(tmp_path / "refs.bib", broken + "\n@misc{b, doi = {10.1000/2}}\n")
    assert names(items) == ["10.1000/1", "10.1000/2"]


def test_bibtex_in_another_encoding_is_read_where_the_name_is_plain(tmp_path: Path) -> None:
    entry = "@article{a, author = {M\u00fcller}, doi = {10.1000/182}}\n".encode("latin-1")
    assert names(read(tmp_path / "refs.bib", entry)) == [HANDBOOK]


def test_an_entry_longer_than_is_held_at_once_is_read_in_pieces(tmp_path: Path) -> None:
    abstract = "x" * 200 + "\n"
    entry = "@article{a,\n abstract = {" + abstract * 12_000 + "},\n doi = {10.1000/182}\n}\n"
    assert names(read(tmp_path / "refs.bib", entry)) == [HANDBOOK]
