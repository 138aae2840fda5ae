"""A thesis at every door: the page, HTTP and the command read the same references from a .docx file."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zipfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import pytest

from doi_proxy.list_formats.docx import read_docx
from doi_proxy.list_formats.fair_lock import FairLock
from tests.features.lists.command_bench import Bench
from tests.features.lists.test_references import FORM, document, form, many_parts, paragraphs
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
A, B = "10.5555/a", "10.5555/b_2"
THESIS: Final = document(
    paragraphs(
        *(f"Paragraph {number} of 2020 cites 10.5555/text{number}." for number in range(60)),
        "References",
        f"Smith J (2020) A title. https://doi.org/{A}.",
        "Jones K (2019) Without one.",
        f"Doe L (2018) Another. https://doi.org/{B.replace('10.', 'l0.')}",
    )
)
ROWS: Final = [(A, "resolved"), (None, "not_a_doi"), (B, "resolved")]
BIBTEX: Final = "% a comment\n@article{smith,\n  doi = {10.5555/a},\n}\n@misc{jones, title = {Without}}\n"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as started:
        for name in (A, B):
            started.upstream.put(name, url="https://example.org/")
        yield started


async def send(proxy: Proxy, data: bytes | str, kind: str = DOCX, query: str = "", **headers: str) -> Any:
    got = await proxy.post(f"/api/resolve?output=json{query}", data, content_type=kind, **headers)
    assert got.status == 200, got.text
    return got.json


async def test_the_references_of_a_document_are_its_rows(proxy: Proxy) -> None:
    rows = await send(proxy, THESIS, query="&suggest=checked")
    assert [(row["doi"], row["verdict"]) for row in rows] == ROWS
    assert [(row["line"], row["reason"]) for row in rows] == [(62, None), (63, "no-doi"), (64, None)]
    assert rows[2]["best"] == {"doi": B, "confidence": "sure", "rule": "letter-for-digit"}
    packed = await send(proxy, gzip.compress(THESIS), content_encoding="gzip")
    assert [row["doi"] for row in packed] == [A, None, B]
    parsed = await proxy.post("/api/parse", THESIS, content_type=DOCX)
    assert [json.loads(line)["doi"] for line in parsed.text.splitlines()] == [A, None, B]


async def test_the_page_has_the_same_references(proxy: Proxy) -> None:
    page = await proxy.post("/references", form(THESIS, "thesis.docx"), content_type=FORM)
    assert sorted(re.findall(r'<p class="outcome is-(\w+)">', page.text)) == ["corrected", "registered", "without"]


@pytest.mark.real_time  # The command is synchronous: it reads a file.
async def test_the_command_has_the_same_rows(bench: Bench) -> None:
    for name in (A, B):
        bench.upstream.put(name, url="https://example.org/")
    ended = await bench.run(bench.write("thesis.docx", THESIS))
    assert [(row["doi"], row["verdict"]) for row in ended.rows] == ROWS
    assert ended.status == 0  # An entry without a DOI is not a failure.
    every = await bench.run(bench.write("thesis.docx", THESIS), "--extract")
    assert len(every.rows) == 62
    damaged = await bench.run(bench.write("damaged.docx", THESIS[:-9]))
    assert (damaged.status, "damaged.docx: The document cannot be read" in damaged.errors) == (2, True)


@table(
    ("create", "status", "reason"),
    [
        (lambda: b"not a document", 400, "not a ZIP archive"),
        (lambda: document(paragraphs("x" * 3_000_000), method=zipfile.ZIP_STORED), 400, "its text is too long"),
        (lambda: document("<w:r/>" * 3_000_000), 400, "too large when it is unpacked"),
        (lambda: document("<w:p/>" * 100_001), 400, "too many paragraphs"),
        (lambda: document("", head='<!DOCTYPE d [<!ENTITY a "aaaa">]>'), 400, "document type declaration"),
        (many_parts, 400, "too many parts"),
        (lambda: b"PK\x03\x04" + b"x" * (4 * 1024 * 1024), 413, "larger than 4194304 bytes"),
    ],
)
async def test_a_hostile_document_is_refused(
    proxy: Proxy, create: Callable[[], bytes], status: int, reason: str
) -> None:
    got = await proxy.post("/api/resolve", create(), content_type=DOCX)
    assert (got.status, reason in got.json["detail"]) == (status, True), got.text


async def test_one_block_of_all_documents_is_parsed_in_a_turn() -> None:
    data = document("<w:p/>" * 20_000)

    async def count_turns(documents: int) -> int:
        lock, turns = FairLock(), 0
        reading = asyncio.gather(*(read_docx(data, partial(lock.hold, str(number))) for number in range(documents)))
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        await reading
        return turns

    assert await count_turns(10) > 5 * await count_turns(1)


@table(
    ("body", "names"),
    [
        (BIBTEX, [A, None]),
        (f"TY  - JOUR\nDO  - {A}\nER  - \n", [A]),
        (f"title,doi\nx,{A}\n", [A]),
        (f'["{A}", "{B}"]', [A, B]),
        (f"{A}\n{B}\n", [A, B]),
        (f"\n\n# names, doi:\n{A}", [A]),
    ],
)
async def test_a_list_that_is_sent_as_text_is_read_by_its_beginning(
    proxy: Proxy, body: str, names: list[str | None]
) -> None:
    assert [row["doi"] for row in await send(proxy, body, "text/plain")] == names
