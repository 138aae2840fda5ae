"""A row says to which entry of its list it belongs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

BIBTEX = """@article{smith2020,
  title = {A},
  doi = {10.5555/a}
}
@comment{none}
@book{jones1999, title = {Without}}
@misc{link, url = {https://doi.org/10.5555/b}}
"""
ENTRIES = [(3, "smith2020", "a"), (6, "jones1999", None), (7, "link", "b")]
RIS = """TY  - JOUR
TI  - The first
DO  - 10.5555/a
ER  -
TY  - BOOK
T1  - The second
ER  -
TY  - JOUR
UR  - https://doi.org/10.5555/b
"""


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as started:
        for name in ("10.5555/a", "10.5555/b"):
            started.upstream.put(name, url="https://example.org/")
        yield started


async def rows(proxy: Proxy, path: str, body: str, content_type: str) -> list[dict[str, Any]]:
    got = await proxy.post(path, body, content_type=content_type)
    assert got.status == 200, got.text
    return [json.loads(line) for line in got.text.splitlines()]


def places(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["line"], row["key"], row["doi"]) for row in found]


@table(
    ("content_type", "body", "expected", "title"),
    [
        (
            "text/x-bibtex",
            BIBTEX,
            ENTRIES,
            "Without",
        ),
        ("application/x-bibtex", BIBTEX, ENTRIES, "Without"),
        ("application/x-research-info-systems", RIS, [(3, "1", "a"), (5, "2", None), (9, "3", "b")], "The second"),
    ],
)
async def test_a_row_has_the_key_of_its_entry_and_one_without_a_name_has_a_row(
    proxy: Proxy, content_type: str, body: str, expected: list[tuple[Any, ...]], title: str
) -> None:
    wanted = [(line, key, name and f"10.5555/{name}") for line, key, name in expected]
    found = await rows(proxy, "/api/resolve", body, content_type)
    assert places(found) == wanted
    assert [row["verdict"] for row in found] == ["resolved", "not_a_doi", "resolved"]
    assert found[1]["input"].startswith(title)
    assert [row["reason"] for row in found] == [None, "no-doi", None]
    assert places(await rows(proxy, "/api/parse", body, content_type)) == wanted


@table(
    ("text", "reason"),
    [
        ("Smith J. A title. 2010/11", "no-doi"),
        ("", "no-doi"),
        ("10.5555", None),
        ("doi: unknown", None),
        ("1O.5555 /a b c d e", None),
        ("https://example.org/2010/a", "no-doi"),
    ],
)
@table("query", ["", "?suggest=true"])
async def test_a_text_without_a_doi_is_told_apart_from_a_broken_one(
    proxy: Proxy, text: str, reason: str | None, query: str
) -> None:
    got = await proxy.post(f"/api/resolve{query}", json.dumps([text]), content_type="application/json")
    assert [(row["verdict"], row["reason"]) for row in got.json] == [("not_a_doi", reason)]


@table(
    ("content_type", "body", "echoes"),
    [
        ("application/x-ndjson", '{"doi": "10.5555/a", "ID": 7}\n"10.5555/b"\n{"id": "x"}\n', [7, None, "x"]),
        ("text/csv", "id,doi\n7,10.5555/a\nx,10.5555/b\n", ["7", "x"]),
        ("application/x-ndjson", json.dumps({"doi": "10.5555/a", "id": [1]}), [None]),
        ("application/x-ndjson", json.dumps({"doi": "10.5555/a", "id": "y" * 300}), ["y" * 200]),
        ("application/x-ndjson", json.dumps({"doi": "10.5555/a", "id": 2**63}), [None]),
    ],
)
async def test_a_member_of_an_item_is_repeated(proxy: Proxy, content_type: str, body: str, echoes: list[Any]) -> None:
    found = await rows(proxy, "/api/resolve?echo=id", body, content_type)
    assert [row["echo"] for row in found] == echoes
    assert "echo" not in (await rows(proxy, "/api/resolve", body, content_type))[0]


async def test_a_row_has_the_likeliest_name(proxy: Proxy) -> None:
    got = await proxy.post(
        "/api/resolve?suggest=true", json.dumps(["10.5555/a", "10.5555/a.", "hello"]), content_type="application/json"
    )
    assert [row["best"] for row in got.json] == [
        {"doi": "10.5555/a", "confidence": "literal", "rule": None},
        {"doi": "10.5555/a", "confidence": "sure", "rule": "trailing-punctuation"},
        None,
    ]
