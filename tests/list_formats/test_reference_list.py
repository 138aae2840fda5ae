"""Where the references are in a text, the media type of a body, and how rows are written."""

from __future__ import annotations

import csv
import json
from typing import Any, Final

import pytest

from doi_proxy.errors import UnsupportedBody
from doi_proxy.list_formats.body import read_body_format
from doi_proxy.list_formats.reference_list import NOTES, find_references
from doi_proxy.list_formats.writing import (
    AlignedWriter,
    JsonArrayWriter,
    JsonLinesWriter,
    RowWriter,
    TableWriter,
    UrlWriter,
)
from doi_proxy.web.media_types import CSV, JSON, NDJSON, TEXT
from doi_proxy.web.request import media_type_of

NUMBERED = """References
[1] Smith J, Jones K. A title that is long enough to be
broken in two lines. 2020. doi:10.1000/1
[2] Doe L. A book. 1999.
[3] Roe M. Another title, which goes on
in the next line and then in
a third one. https://doi.org/10.1000/3
"""
WRAPPED = """Bibliography
Adams, J. A. (2019). A title that fills the whole line and then goes on in
the next one, with the name of a journal. Journal of Titles, 12(3), 1-20.
https://doi.org/10.1000/1
Brown, K. (2020). Another title that fills the whole line until its very end
and goes on. Publisher.
Clark, L., & Dean, M. (2021). The third title, as long as the others are, and
the rest of it. Journal, 3. https://doi.org/10.1000/3
"""
BLANK_LINES = "Literatur\n\nSmith\n  A title\n  10.1000/\n  1\n\nJones\n  nothing\n"
ONE_A_LINE = "Smith (2020) A title. 10.1000/1\nJones, without one\nDoe 10.1000/3\n"


def references(text: str, *, is_document: bool = False) -> list[str]:
    found = find_references(text, is_document=is_document)
    return [" ".join(text[start:stop].split()) for start, stop in found.places]


@pytest.mark.parametrize(
    ("text", "count", "first", "last"),
    [
        (NUMBERED, 3, "[1] Smith", "doi.org/10.1000/3"),
        (NUMBERED.replace("[", "").replace("]", "."), 3, "1. Smith", "doi.org/10.1000/3"),
        (WRAPPED, 3, "Adams", "doi.org/10.1000/3"),
        (BLANK_LINES, 2, "Smith", "nothing"),
        (ONE_A_LINE, 3, "Smith", "10.1000/3"),
    ],
)
def test_the_references_of_a_list(text: str, count: int, first: str, last: str) -> None:
    found = references(text)
    assert len(found) == count, found
    assert found[0].startswith(first) and found[-1].endswith(last)


@pytest.mark.parametrize(
    "heading",
    ["References", "7. REFERENCES", "## Bibliography", "Literaturverzeichnis", "Références", "5.2 Bibliografía:"],
)
def test_the_last_heading_with_something_after_it_begins_the_list(heading: str) -> None:
    text = f"{heading}\nA chapter (2020).\n{heading}\nSmith (2020)\nJones (2021)\nAppendix\nNo (1999)\n{heading}\n"
    assert references(text) == ["Smith (2020)", "Jones (2021)"]


def test_without_a_heading_paragraphs_of_a_long_text_count_that_look_like_references() -> None:
    text = "A paragraph.\n" * 100 + "Smith (2020) A title.\nBibliography of all\n12. Jones\nDoe 10.1000/1\n"
    assert references(text, is_document=True) == ["Smith (2020) A title.", "12. Jones", "Doe 10.1000/1"]
    assert find_references(text, is_document=True).left_out == 101
    assert find_references(f"{text}References\nSmith\n", is_document=True).left_out == 0
    assert references("Smith\nJones\n") == ["Smith", "Jones"]


def test_the_notes_of_a_document_are_not_references() -> None:
    assert references(f"References\nSmith (2020)\n{NOTES}1 See Jones (1999).\n", is_document=True) == ["Smith (2020)"]


def test_a_heading_is_found_where_a_block_of_the_search_ends() -> None:
    paragraphs = "A paragraph.\n" * (16_384 // 13)
    assert references(f"{paragraphs}Bibliography\nSmith\n", is_document=True) == ["Smith"]


# --- The media type of a body by its Content-Type (RFC 9110, section 8.3) --------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [
        ("text/plain", TEXT),
        (" Text/Plain ;charset=UTF-8", TEXT),
        ('text/plain; charset="utf-8"; format=flowed', TEXT),
        ("text/plain; charset=us-ascii", TEXT),
        ("text/csv; header=present; charset=utf-8", CSV),
        ("text/tab-separated-values", CSV),
        ("application/jsonl", NDJSON),
        ("application/ndjson", NDJSON),
        ("application/x-jsonlines", NDJSON),
    ],
)
def test_a_format_has_several_names_and_parameters(content_type: str, media_type: str) -> None:
    assert read_body_format(content_type, None, supported=(TEXT, CSV, NDJSON)).media_type == media_type


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        (None, "The body is without a media type; send it as text/plain or application/json."),
        ("text/csv", "The body is text/csv; send it as text/plain or application/json."),
        ("x" * 100, f"The body is {'x' * 80}; send it as text/plain or application/json."),
        ("text/plain; charset=Latin-1; x=y", "The body is in the encoding latin-1; send it in UTF-8."),
    ],
)
def test_another_format_or_encoding_is_refused_with_those_that_are_read(content_type: str | None, message: str) -> None:
    with pytest.raises(UnsupportedBody) as caught:
        read_body_format(content_type, None, supported=(TEXT, JSON))
    assert caught.value.message == message


def test_a_media_type_is_read_without_its_parameters() -> None:
    assert [media_type_of(one) for one in (None, "", "Application/JSON; x=y")] == ["", "", "application/json"]


# --- Rows as NDJSON, CSV and a JSON array ----------------------------------------------------------------------------


ROWS: Final[list[dict[str, Any]]] = [
    {"input": 'a "b", c\n', "doi": None, "stale": False, "message": "é"},
    {"input": "=1+1", "doi": "10.5555/a", "stale": True, "message": None},
]
FIELDS: Final = tuple(ROWS[0])


def written(writer: RowWriter, *groups: list[dict[str, Any]], error: bool = False) -> str:
    body = writer.opening + b"".join(writer.write(group) for group in groups)
    return (body + (writer.fail(400, "Line 3: no.") if error else b"") + writer.closing).decode()


@pytest.mark.parametrize("groups", [[ROWS], [ROWS[:1], [], ROWS[1:]]])
def test_rows_are_read_again_as_they_were(groups: list[list[dict[str, Any]]]) -> None:
    assert [json.loads(line) for line in written(JsonLinesWriter(), *groups).splitlines()] == ROWS
    assert json.loads(written(JsonArrayWriter(), *groups)) == ROWS
    records = list(csv.reader(written(TableWriter(FIELDS), *groups).splitlines(keepends=True)))
    assert records == [list(FIELDS), ['a "b", c\n', "", "false", "é"], ["=1+1", "10.5555/a", "true", ""]]


@pytest.mark.parametrize("writer", [JsonLinesWriter, JsonArrayWriter], ids=["NDJSON", "JSON"])
def test_a_row_is_one_line_for_every_reader(writer: type[RowWriter]) -> None:
    rows = [{"input": "a\x85b\u2028c\u2029d\x0be", "doi": None}]
    assert [json.loads(line) for line in written(writer(), rows).splitlines() if line[:1] == "{"] == rows


def test_no_rows_are_an_empty_list() -> None:
    assert written(JsonLinesWriter()) == ""
    assert json.loads(written(JsonArrayWriter())) == []
    assert written(TableWriter(FIELDS)) == "input,doi,stale,message\r\n"


def test_an_error_is_the_last_thing_in_the_list() -> None:
    error = {"error": {"status": 400, "detail": "Line 3: no."}}
    assert json.loads(written(JsonLinesWriter(), ROWS, error=True).splitlines()[-1]) == error
    assert json.loads(written(JsonArrayWriter(), ROWS, error=True))[-1] == error
    assert json.loads(written(JsonArrayWriter(), error=True)) == [error]
    assert written(TableWriter(FIELDS), error=True).splitlines()[-1] == ",,,error 400: Line 3: no."
    assert written(TableWriter(("doi",)), error=True).splitlines()[-1] == "error 400: Line 3: no."


def test_suggestions_are_names_in_a_cell() -> None:
    rows = [{"suggestions": [{"doi": "10.5555/a", "rule": "label"}, {"doi": "10.5555/b", "rule": "label"}]}]
    assert written(TableWriter(("suggestions",)), rows) == "suggestions\r\n10.5555/a 10.5555/b\r\n"


# --- Rows as a table for people and as URLs for scripts --------------------------------------------------------------


def test_cells_are_aligned_and_long_ones_cut_except_the_last() -> None:
    writer = AlignedWriter(["verdict", "doi", "stale", "url"])
    row = {
        "verdict": "resolved",
        "doi": "10.1000/" + 40 * "x",
        "stale": False,
        "url": "https://example.org/" + 90 * "y",
    }
    assert writer.opening.decode() == f"{'VERDICT':12}  {'DOI':40}  STALE  URL\n"
    lines = writer.write([row]).decode()
    assert lines == f"{'resolved':12}  10.1000/{31 * 'x'}…  no     {row['url']}\n"
    assert writer.fail(503, "Later.") + writer.closing == b"error 503: Later.\n"


def test_a_cell_cannot_move_the_cursor_or_break_its_line() -> None:
    row = {"input": "10.1000/a\x1b[2J\nb\u2028", "message": None, "suggestions": [{"doi": "10.1000/\x9b", "rule": "x"}]}
    line = AlignedWriter(["message", "suggestions", "input"]).write([row]).decode()
    assert line == f"{'':30}  {'10.1000/<U+009B>':30}  10.1000/a<U+001B>[2J<U+000A>b<U+2028>\n"


def test_a_row_without_a_url_has_an_empty_line() -> None:
    writer = UrlWriter()
    assert writer.opening + writer.write([{"url": "https://a/"}, {"url": None}]) == b"https://a/\n\n"
    assert writer.fail(503, "Later.") + writer.closing == b"\n"
