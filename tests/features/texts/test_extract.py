"""`POST /api/extract` finds every name in a text, with its place. No upstream is queried."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from doi_proxy.features.texts.http import FoundNameModel
from doi_proxy.list_formats import extraction
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

TEXT = "Jones (10.1001/a.6.7), see http://dx.doi.org/10.1000/dead, and 10.1371/journal.\npone.0123456."
BIBTEX = "@article{a, doi = {10.1000/18\\_2}, url = {https://doi.org/10.1000/18\\_2} }\n@book{b, note={10.1000/b}}"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        yield proxy


async def send(proxy: Proxy, body: str | bytes, kind: str = "text/plain", query: str = "", **headers: str) -> Reply:
    return await proxy.post(f"/api/extract{query}", body, content_type=kind, **headers)


def rows(got: Reply) -> list[dict[str, Any]]:
    assert (got.status, got["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in got.text.splitlines()]


async def test_each_name_has_its_place_and_reading(proxy: Proxy) -> None:
    found = rows(await send(proxy, TEXT))
    assert proxy.upstream.queries() == 0
    assert [one["doi"] for one in found] == ["10.1001/a.6.7", "10.1000/dead", "10.1371/journal.pone.0123456"]
    assert [TEXT[one["start"] : one["end"]] for one in found] == [one["text"] for one in found]
    assert {(one["confidence"], one["rule"]) for one in found} >= {("likely", "blank")}
    assert [FoundNameModel.model_validate(one).model_dump() for one in found] == found


async def test_a_text_without_a_name_has_no_row(proxy: Proxy) -> None:
    assert rows(await send(proxy, "Nothing here.")) == rows(await send(proxy, "")) == []
    assert (await send(proxy, "", query="?output=json")).json == []


@table(
    ("query", "accept", "media_type"),
    [
        ("?output=json", "*/*", "application/json"),
        ("", "application/json", "application/json"),
        ("?output=csv", "*/*", "text/csv; charset=utf-8; header=present"),
    ],
)
async def test_the_answer_has_the_form_that_the_client_wants(
    proxy: Proxy, query: str, accept: str, media_type: str
) -> None:
    got = await send(proxy, TEXT, query=query, accept=accept)
    assert got["content-type"] == media_type
    assert got.text.count("10.1001/a.6.7") == 2


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/x-bibtex", "text/x-bibtex", "text/markdown"])
async def test_names_are_found_in_files_of_any_format(proxy: Proxy, kind: str) -> None:
    plain = rows(await send(proxy, BIBTEX, kind))
    packed = rows(await send(proxy, gzip.compress(BIBTEX.encode()), kind, content_encoding="gzip"))
    assert [one["doi"] for one in plain] == ["10.1000/18_2", "10.1000/18_2", "10.1000/b"]
    assert packed == plain


async def test_a_text_in_json_has_the_same_rows_as_a_json_array(proxy: Proxy) -> None:
    body = json.dumps({"text": TEXT, "other": 1})
    assert (await send(proxy, body, "application/json")).json == rows(await send(proxy, TEXT))
    packed = gzip.compress(body.encode())
    assert len((await send(proxy, packed, "application/json", content_encoding="gzip")).json) == 3
    assert rows(await send(proxy, body, "application/json", "?output=ndjson")) == rows(await send(proxy, TEXT))


@table(
    ("body", "status"),
    [(body, 400) for body in ("", "[]", "{}", '{"text": 1}', '{"text": "\\ud800"}', b'{"text": "\xff"}', '{"text": "')]
    + [(json.dumps({"text": "x" * extraction.MAX_JSON_BYTES}), 413)],
)
async def test_json_without_a_text_is_refused(proxy: Proxy, body: str | bytes, status: int) -> None:
    got = await send(proxy, body, "application/json")
    assert (got.status, got["content-type"]) == (status, "application/problem+json")


async def test_other_bodies_and_parameters_are_refused(proxy: Proxy) -> None:
    assert (await send(proxy, "x", "application/pdf")).status == 415
    assert (await send(proxy, b"\x1f\x8bx", content_encoding="gzip")).status == 400
    assert (await send(proxy, "x", query="?output=xml")).status == 400


async def test_bytes_that_are_no_text_harm_nothing(proxy: Proxy) -> None:
    noise = Random(3).randbytes(100_000)
    found = rows(await send(proxy, b"\xef\xbb\xbf" + noise + b" 10.1000/182 " + noise))
    assert [one["doi"] for one in found] == ["10.1000/182"]


async def test_a_text_can_have_any_length(proxy: Proxy) -> None:
    names = [f"10.1000/{number}" for number in range(3_000)]
    found = rows(await send(proxy, "See " + " and so on, see ".join(names)))
    assert [one["doi"] for one in found] == names
