"""Lists in pieces: the borders of the pieces do not matter, and every limit holds."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doi_proxy.errors import UnreadableList
from doi_proxy.list_formats.bibliographies import ENDNOTE, MEDLINE, RIS, WEB_OF_SCIENCE, BibtexReader, TaggedReader
from doi_proxy.list_formats.body import ListSource, has_gzip_name
from doi_proxy.list_formats.entries import WITHOUT_DOI, Item, ListItem, UnreadableItem, expand
from doi_proxy.list_formats.formats import BY_NAME, ReferencesReader, format_of_head
from doi_proxy.list_formats.json_lists import MAX_DEPTH, JsonLinesReader, JsonListReader, explain_json
from doi_proxy.list_formats.lines import LineCutter, LinesReader, ListReader, Utf8Stream, open_gunzip
from doi_proxy.list_formats.tables import ColumnReader
from tests.table import table

LIMIT: Final = 100
READERS: Final[dict[str, Callable[[], ListReader]]] = {
    "lines": lambda: LinesReader(LIMIT),
    "table": lambda: ColumnReader(LIMIT),
    "json": lambda: JsonListReader(LIMIT),
    "ndjson": lambda: JsonLinesReader(LIMIT),
    "bibtex": lambda: BibtexReader(LIMIT),
    "ris": lambda: TaggedReader(RIS, LIMIT),
    "medline": lambda: TaggedReader(MEDLINE, LIMIT),
    "endnote": lambda: TaggedReader(ENDNOTE, LIMIT),
    "wos": lambda: TaggedReader(WEB_OF_SCIENCE, LIMIT),
}


def read(reader: ListReader, *pieces: bytes) -> list[Item]:
    items = [item for piece in pieces for item in reader.feed(piece)]
    return [item for group in expand(items + reader.end()) for item in group]


def texts(reader: ListReader, *pieces: bytes) -> list[str]:
    return [item.text for item in read(reader, *pieces) if isinstance(item, ListItem)]


def outcome(make: Callable[[], ListReader], *pieces: bytes) -> list[Item] | str:
    """The items, or the message of the error."""
    try:
        return read(make(), *pieces)
    except UnreadableList as error:
        return error.message


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
@example("lines", b"\xef\xbb\xbf10.5555/a\r\n#no\n\n10.5555/b", [1, 2, 13])
@example("table", b'n,doi\r\n1,"10.5555/a\nb"\n2,"x""y"\n', [7, 15, 16])
@example("json", b'\xef\xbb\xbf [ "a\\"b\\\\", {"doi": "c,]"} ]\n', [1, 3, 8, 9, 12])
@example("json", b"[" * 50, [10])
@example("ndjson", b'"a"\r\n{"DOI": "b"}\nx', [2, 6])
@example("lines", b"x" * 300 + b"\ny", [90, 101, 103])
@example(
    "bibtex", "@article{a,\n doi = {10.1000/1},\r\né}\n@misc{\nurl={https://doi.org/10.1000/2}}@".encode(), [13, 40]
)
@example(
    "ris", b"TY  - JOUR\r\nDO  - 10.1000/1\nER  - \n\xc3\xa9\rUR  - https://doi.org/10.1000/2\n" + b"x" * 110, [11]
)
def test_the_borders_of_pieces_do_not_matter(kind: str, data: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(borders)]
    whole, cut, single = (
        outcome(READERS[kind], *parts) for parts in ([data], pieces, [bytes([byte]) for byte in data])
    )
    if isinstance(whole, str):
        # Which of two errors is seen first may depend on the pieces.
        assert isinstance(cut, str) and isinstance(single, str)
    else:
        assert whole == cut == single


@table(
    ("name", "column", "form"),
    [
        ("refs.bib", None, "bibtex"),
        ("refs.BIB.GZ", "doi", "bibtex"),
        ("refs.ris", None, "ris"),
        ("a.ndjson", None, "jsonl"),
        ("a.jsonl.gz", None, "jsonl"),
        ("a.json", None, "json"),
        ("a.tsv", None, "csv"),
        ("a.nbib", None, "medline"),
        ("a.ENW", None, "endnote"),
        ("a.ciw", None, "wos"),
        ("a.txt", None, None),
        ("-", None, None),
        ("-", "doi", "csv"),
    ],
)
def test_the_name_of_a_file_says_its_format(name: str, column: str | None, form: str | None) -> None:
    found = ListSource(name, None, column).format
    assert (found and found.name) == form
    assert has_gzip_name(name) == name.lower().endswith(".gz")


def test_lines_without_blanks_and_comments_keep_their_numbers() -> None:
    data = b"\xef\xbb\xbf10.5555/a\r\n\r\n# a comment\n  10.5555/b \n10.5555/c"
    assert read(LinesReader(LIMIT), data) == [
        ListItem("10.5555/a", 1),
        ListItem("  10.5555/b ", 4),
        ListItem("10.5555/c", 5),
    ]


@pytest.mark.parametrize("make", [READERS["lines"], READERS["ndjson"]])
def test_a_line_that_is_too_long_or_not_utf_8_does_not_end_the_list(make: Callable[[], ListReader]) -> None:
    items = read(make(), b"x" * (LIMIT + 1) + b'\n"10.5555/\xff"\n' + b'"10.5555/a"\n')
    assert [type(item) for item in items] == [UnreadableItem, ListItem, ListItem]
    assert isinstance(items[0], UnreadableItem) and items[0].message == "Line 1 is longer than 100 bytes; shorten it."
    assert "ÿ" in items[1].text and isinstance(items[1], ListItem)
    assert items[1].note == "Line 2 is not UTF-8; it was read as Windows-1252."


def test_a_line_as_long_as_the_limit_is_whole() -> None:
    assert texts(LinesReader(LIMIT), b"x" * LIMIT + b"\r\n", b"y" * LIMIT) == ["x" * LIMIT, "y" * LIMIT]


def test_an_endless_line_takes_no_more_memory_than_the_limit() -> None:
    reader = LinesReader(LIMIT)
    for _ in range(1_000):
        assert reader.feed(b"x" * 1_000) == []
    assert len(reader._lines._rest) <= LIMIT + 2
    assert [type(item) for item in reader.end()] == [UnreadableItem]


def test_a_spreadsheet_is_refused_by_name() -> None:
    with pytest.raises(UnreadableList, match=r"a ZIP archive, such as \.xlsx or \.docx; save it as CSV"):
        read(LinesReader(LIMIT), b"PK\x03\x04\x14\x00\n\x00\n")


def test_the_names_of_a_citation_file_have_their_lines() -> None:
    reader = BY_NAME["cff"].open(LIMIT, None, None)
    data = b'cff-version: 1.2.0\ndoi: 10.5555/a\nreferences:\n  - doi: "10.5555/b"\n'
    assert [(item.text, item.line) for item in read(reader, data) if isinstance(item, ListItem)] == [
        ("10.5555/a", 2),
        ("10.5555/b", 4),
    ]


@table("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-8"])
@table("size", [1, 3, 100])
def test_a_list_in_utf_16_is_turned_into_utf_8(encoding: str, size: int) -> None:
    data, stream = "10.5555/ä\n".encode(encoding), Utf8Stream()
    pieces = [stream.feed(data[start : start + size]) for start in range(0, len(data), size)]
    assert texts(LinesReader(LIMIT), *pieces, stream.end()) == ["10.5555/ä"]


@table(
    ("head", "form"),
    [
        ("@article{a,\n", "bibtex"),
        ("% a comment\n\n@Misc{b", "bibtex"),
        ("TY  - JOUR\n", "ris"),
        ("\nPMID- 123\n", "medline"),
        ("%0 Book\n", "endnote"),
        ("FN Clarivate\nVR 1.0\nPT J\n", "wos"),
        ("# a comment\ncff-version: 1.2.0\n", "cff"),
        ('{"message": {"items": []}}', "json"),
        ("[]", "json"),
        ("title;DOI\n", "csv"),
        ("sep=;\n", "csv"),
        ("10.5555/a\n", None),
        ("Smith, J. (2010), doi: 10.5555/a\n", None),
    ],
)
def test_the_beginning_of_a_list_tells_its_format(head: str, form: str | None) -> None:
    found = format_of_head(head)
    assert (found and found.name) == form


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_column_doi_is_read_in_any_case(separator: str) -> None:
    data = separator.join(["title", "DOI", "year"]) + "\r\n" + separator.join(["x", "10.5555/a", "1"]) + "\r\n"
    assert texts(ColumnReader(LIMIT), data.encode()) == ["10.5555/a"]


def test_a_field_in_quotes_has_separators_quotes_and_line_breaks() -> None:
    """The examples of RFC 4180, section 2, rules 5 to 7."""
    data = b'title,doi\n"a, ""b""\r\nc",10.5555/a\n\n"",10.5555/b\nshort\n'
    assert read(ColumnReader(LIMIT), data) == [
        ListItem("10.5555/a", 2),
        ListItem("10.5555/b", 5),
        UnreadableItem("short", 6, WITHOUT_DOI, None, None, "no-doi"),
    ]


def test_a_named_column_is_read() -> None:
    data = b"doi,DOI (main)\n10.5555/a,10.5555/b\n"
    assert texts(ColumnReader(LIMIT, "DOI (main)"), data) == ["10.5555/b"]
    assert texts(ColumnReader(LIMIT, "doi (MAIN)"), data) == ["10.5555/b"]


def test_a_missing_column_is_an_error_that_names_the_columns() -> None:
    with pytest.raises(UnreadableList, match="Line 1 has no column 'name'; name one of its columns: 'title', 'year'"):
        read(ColumnReader(LIMIT, "name"), b"title,year\n")


@table(
    ("data", "names"),
    [
        ("Title,DOI Link\nx,https://doi.org/10.5555/a\n", ["https://doi.org/10.5555/a"]),
        ("TI\tDI\nx\t10.5555/a\n", ["10.5555/a"]),
        ("sep=;\r\nTitle;DOI\r\n\"A; B\";10.5555/a\r\n", ["10.5555/a"]),
        ("sep=|\nTitle|DOI\nx|10.5555/a\n", ["10.5555/a"]),
        ("title,link\nx,https://doi.org/10.5555/a\n", ["10.5555/a"]),
        ("title,doi,link\nx,,https://doi.org/10.5555/a\n", ["10.5555/a"]),
        ("title,doi\nx,10.5555/a 10.5555/b\n", ["10.5555/a", "10.5555/b"]),
        ("doi\n'10.5555/a\n\"=HYPERLINK(\"\"https://doi.org/10.5555/b\"\",\"\"x\"\")\"\n", ["10.5555/a", "https://doi.org/10.5555/b"]),
    ],
)  # fmt: skip
def test_tables_as_programs_write_them(data: str, names: list[str]) -> None:
    assert texts(ColumnReader(LIMIT), data.encode()) == names


def test_a_record_without_a_name_has_a_row_with_its_reason() -> None:
    [item] = read(ColumnReader(LIMIT), b"title,year\nA title,2010\n")
    assert isinstance(item, UnreadableItem) and (item.text, item.line, item.reason) == ("A title", 2, "no-doi")


def test_a_carriage_return_inside_a_record_is_an_error_of_this_record() -> None:
    items = read(ColumnReader(LIMIT), b"doi\n10.5555/a\rb\n10.5555/c\n")
    assert [type(item) for item in items] == [UnreadableItem, ListItem]
    with pytest.raises(UnreadableList, match="Line 1 is not CSV: it has a carriage return without a line feed"):
        read(ColumnReader(LIMIT), b"doi\rtitle\n10.5555/a\n")


def test_a_quote_that_is_never_closed_is_an_error_with_its_line() -> None:
    for data in (b'doi\n10.5555/a\n"10.5555/b\n', b'doi\n10.5555/a\n"10.5555/b\n' + b"10.5555/c\n" * 50):
        with pytest.raises(UnreadableList, match="Line 3: a quote is not closed"):
            read(ColumnReader(LIMIT), data)


def test_an_array_has_strings_and_objects() -> None:
    data = json.dumps(["10.5555/a", {"DOI": "10.5555/b", "x": [{"doi": "no"}]}, {"doi": "10.5555/c"}, None, {"x": 1}])
    items = read(JsonListReader(LIMIT), data.encode())
    assert items[:3] == [ListItem("10.5555/a", 1), ListItem("10.5555/b", 2), ListItem("10.5555/c", 3)]
    assert [item.message for item in items[3:] if isinstance(item, UnreadableItem)] == [
        "Item 4 is neither a string nor an object.",
        "This entry has no DOI.",
    ]
    assert texts(JsonListReader(LIMIT, "id"), b'[{"id": "10.5555/a"}]') == ["10.5555/a"]
    assert read(JsonListReader(LIMIT), b" [ ] ") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"10.5555/a\n", "The list is not JSON"),
        (b'{"doi": "10.5555/a"', "Item 1 is not JSON"),
        (b'{"items": [{"doi": "10.5555/a"}', "closing bracket is missing"),
        (b'["10.5555/a"', "closing bracket is missing"),
        (b"", "closing bracket is missing"),
        (b'["10.5555/a"] x', "text after the array"),
        (b'["10.5555/a"}', "a brace is closed"),
        (b'["' + b"x" * 200, "Item 1 is longer than 100 bytes"),
        (b'["a","' + b"x" * 200 + b'"]', "Item 2 is longer than 100 bytes"),
        (b"[" * (MAX_DEPTH + 1), "more than 32 open brackets"),
    ],
)
def test_an_array_that_cannot_be_read_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(UnreadableList, match=message):
        read(JsonListReader(LIMIT), data)


def test_a_value_that_is_not_json_does_not_end_the_array() -> None:
    items = read(JsonListReader(LIMIT), b'["10.5555/a", nonsense, "\\ud800", "10.5555/b",]')
    assert [type(item) for item in items] == [ListItem, UnreadableItem, UnreadableItem, ListItem, UnreadableItem]


def test_a_compressed_list_that_cannot_be_read_is_an_error_of_the_list() -> None:
    with pytest.raises(UnreadableList, match="The gzip data is damaged"):
        list(open_gunzip(100.0).feed(b"10.5555/a\n"))


def test_the_garbage_collector_does_not_count_lines_and_items() -> None:
    items = read(LinesReader(LIMIT), b"10.5555/a\n" + b"x" * (LIMIT + 1))
    lines = LineCutter(LIMIT).feed(b"10.5555/a\n")
    assert [type(item) for item in items] == [ListItem, UnreadableItem]
    assert not any(gc.is_tracked(one) for one in (*items, *lines))


@pytest.mark.parametrize(
    ("data", "lone"),
    [
        (rb'["\ud800"]', r"\ud800"),
        (rb'["\uDC00 "]', r"\uDC00"),
        (rb'{"\ud83d\ude00\ud83d": 1}', r"\ud83d"),
        (rb'["\\\udfff"]', r"\udfff"),
        (rb'["\\ud800', None),
        (rb'["\u0041\ud83d\ude00', None),
        (rb'["\ud8', None),
        (b'["' + rb"\n" * 100_000, None),
    ],
)
def test_half_a_surrogate_pair_is_named(data: bytes, lone: str | None) -> None:
    found = explain_json(data, ValueError("another reason"))
    assert found == (
        f"{lone} is half a surrogate pair, not a character; send both halves" if lone else "another reason"
    )


def test_a_long_paragraph_is_read_a_part_at_a_time() -> None:
    reader = ReferencesReader(65_536)
    groups = list(expand([*reader.feed(b"see 10.1000/182 10.1000/183 " * 500), *reader.end()]))
    names = [item.text for group in groups for item in group if isinstance(item, ListItem)]
    assert names == ["10.1000/182", "10.1000/183"]
    # One turn of the event loop finds the names of 256 characters.
    assert len(groups) >= 500 * 28 // 256
