"""Rows as a table for people and as URLs for scripts."""

from __future__ import annotations

from doi_proxy.list_formats.writing import AlignedWriter, UrlWriter


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
