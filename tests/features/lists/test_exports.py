"""Exports of fifteen programs: the page, HTTP and the command read the same names from each."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.list_formats.formats import format_of_head, format_of_name
from tests.features.lists.command_bench import Bench
from tests.features.lists.test_references import form
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

EXPORTS: Final = sorted((Path(__file__).parent / "exports").iterdir())
A, B = "10.5555/a", "10.5555/b_2"
#: Texts of one reference a paragraph: lists of names for HTTP and the command only as running text.
TEXTS: Final = ("endnote.txt", "numbered.txt")
#: The works of each export: two with a name, and a book without one. Some have fewer.
FEWER: Final[dict[str, list[str | None]]] = {
    "crossref-work.json": [A],
    "datacite-work.json": [A],
    "names.txt": [A, B],
}


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as started:
        for name in (A, B):
            started.upstream.put(name, url="https://example.org/")
        yield started


def works(file: Path) -> list[str | None]:
    return FEWER.get(file.name, [A, B, None])


async def test_what_was_read_is_said_at_every_door(proxy: Proxy, bench: Bench) -> None:
    table = "A title,10.5555/a\nTwo,10.5555/a 10.5555/b_2\n"
    page = await proxy.post(
        "/references", form(table.encode(), "t.csv"), content_type="multipart/form-data; boundary=xyz"
    )
    assert "References: 3." in page.text and "Entries of the file: 2. Column that was read: 2." in page.text
    got = await proxy.post("/api/resolve", table, content_type="text/csv")
    rows = [json.loads(line) for line in got.text.splitlines()]
    assert [(row["line"], row["doi"]) for row in rows] == [(1, "10.5555/a"), (2, "10.5555/a"), (2, "10.5555/b_2")]
    assert rows[0]["message"] == "The table has no heading; its column 2 was read."
    path = bench.write("t.csv", table)
    ended = await bench.run(path, "--only-cached")
    assert f"{path}: column 2\n3 rows from 2 entries: unverified 3\n" in ended.errors


async def test_a_heading_that_names_no_doi_is_said(proxy: Proxy) -> None:
    """The first record may be a row without a DOI. Its names are not known to be those of columns."""
    got = await proxy.post("/api/resolve", "A title,2020\nAnother,10.5555/a\n", content_type="text/csv")
    (row,) = [json.loads(line) for line in got.text.splitlines()]
    assert row["doi"] == "10.5555/a" and "Line 1 was read as the names of the columns" in row["message"]


async def test_a_number_is_the_key_of_a_work(proxy: Proxy) -> None:
    got = await proxy.post("/api/resolve", '[{"id": 7, "doi": "10.5555/a"}]', content_type="application/json")
    assert json.loads(got.text)[0]["key"] == "7"


def test_there_are_forty_exports() -> None:
    assert len(EXPORTS) >= 40


@pytest.mark.parametrize("file", EXPORTS, ids=lambda file: file.name)
async def test_an_export_has_the_same_rows_at_every_door(proxy: Proxy, file: Path) -> None:
    data = file.read_bytes()
    page = await proxy.post("/references", form(data, file.name), content_type="multipart/form-data; boundary=xyz")
    assert page.status == 200
    shown = re.findall(r'<p class="outcome is-(\w+)">.*?(?=</div></td></tr>)', page.text, re.DOTALL)
    assert sorted(shown) == sorted("registered" if name else "without" for name in works(file)), page.text
    is_text = file.name in TEXTS
    wanted = [name for name in works(file) if name or not is_text]
    form_of = format_of_name(file.name) or format_of_head(data.decode("utf-8", "replace").lstrip("\ufeff"))
    media_type = "text/plain" if form_of is None else form_of.media_types[0]
    query = "?output=ndjson&extract=true" if is_text else "?output=ndjson"
    got = await proxy.post(f"/api/resolve{query}", data, content_type=media_type)
    rows = [json.loads(line) for line in got.text.splitlines()]
    assert [row["doi"] and row["doi"].upper() for row in rows] == [name and name.upper() for name in wanted]
    assert all(row["verdict"] == "resolved" or row["reason"] == "no-doi" for row in rows)


@pytest.mark.real_time  # The command is synchronous: it reads files.
@pytest.mark.parametrize("is_text", [False, True], ids=["lists", "running text"])
async def test_the_command_has_the_rows_of_all_exports(bench: Bench, is_text: bool) -> None:
    for name in (A, B):
        bench.upstream.put(name, url="https://example.org/")
    files = [file for file in EXPORTS if (file.name in TEXTS) == is_text]
    wanted = [name and name.upper() for file in files for name in works(file) if name or not is_text]
    ended = await bench.run(*files, *["--extract"] * is_text)
    assert [row["doi"] and row["doi"].upper() for row in ended.rows] == wanted
    assert all(row["verdict"] == "resolved" or row["reason"] == "no-doi" for row in ended.rows)
    assert (ended.status, ": resolved" in ended.errors) == (0, True), ended.errors
