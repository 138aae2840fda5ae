"""Rows as NDJSON, CSV and a JSON array."""

from __future__ import annotations

import csv
import json
from typing import Any, Final

import pytest

from doi_proxy.list_formats.writing import (
    AlignedWriter,
    JsonArrayWriter,
    JsonLinesWriter,
    RowWriter,
    TableWriter,
    UrlWriter,
)

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
