"""`/api/parse` says what texts are. No upstream is queried."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from doi_names.derived import parse
from doi_proxy.features.texts.command import to_object
from doi_proxy.features.texts.http import ParsedTextModel
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

JSON, NDJSON, TEXT = "application/json", "application/x-ndjson", "text/plain"
BASE = "http://doi.example.org"


def rows(texts: list[str], base: str = BASE) -> list[dict[str, Any]]:
    return [to_object(parse(text, own_hosts=frozenset({"doi.example.org"})), base) for text in texts]


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        yield proxy


async def test_a_text_of_more_than_4096_characters_is_refused_with_the_path_for_it(proxy: Proxy) -> None:
    name = "10.1000/" + "x" * 4_088
    fitting = await proxy.get(f"/api/parse?doi={name}"), await send(proxy, json.dumps([name]), JSON)
    long = await proxy.get(f"/api/parse?doi={name}x"), await send(proxy, f"10.1000/1\n{name}x\n", TEXT)
    assert [got.status for got in fitting] == [200, 200]
    assert [got.status for got in long] == [413, 200]
    _, row = [json.loads(line) for line in long[1].text.splitlines()]
    assert (row["kind"], row["doi"]) == ("not_a_doi", None)
    assert row["message"] == long[0].json["detail"] and "POST /api/resolve" in row["message"]


async def send(proxy: Proxy, body: str | bytes, kind: str, **headers: str) -> Reply:
    return await proxy.post("/api/parse", body, content_type=kind, **headers)


async def test_one_text_gets_one_object_without_a_query_to_the_upstream(proxy: Proxy) -> None:
    got = await proxy.get("/api/parse?doi=https://doi.org/10.1000/182")
    assert proxy.upstream.queries() == 0
    assert (got.status, got.json) == (200, rows(["https://doi.org/10.1000/182"])[0])
    assert (got["content-type"], got["cache-control"]) == (JSON, "public, max-age=3600")
    assert got.json["url"] == f"{BASE}/10.1000/182"


async def test_both_ways_to_encode_a_blank_have_the_same_best_reading(proxy: Proxy) -> None:
    names = ("10.1038/nature12373", "10.1002/a+b", "10.1021/ac061725+")
    words = (*names, "DOI", "[PubMed]", "(2013)", "p. 54", "+", "accessed 5 May 2020")
    for text in map(" ".join, product(("", "see", *words), names, ("", *words))):
        one, other = [
            (await proxy.get(f"/api/parse?doi={encode(text)}")).json["best"] for encode in (quote, quote_plus)
        ]
        assert one == other, text


@table(
    ("query", "best", "suggestion"),
    [
        ("10.1000/a+b", "10.1000/a+b", "10.1000/a"),
        ("10.1021/ac061725+", "10.1021/ac061725+", "10.1021/ac061725"),
        ("10.1000%2Fa+b", "10.1000/a", "10.1000/a+b"),
        ("10.1038/nature12373+accessed+5+May", "10.1038/nature12373", "10.1038/nature12373+accessed+5+May"),
        ("10.1371/+journal.pone.0281521", "10.1371/journal.pone.0281521", "10.1371/+journal.pone.0281521"),
    ],
)
async def test_a_plus_sign_is_a_blank_unless_the_text_is_one_name(
    proxy: Proxy, query: str, best: str, suggestion: str
) -> None:
    got = (await proxy.get(f"/api/parse?doi={query}")).json
    assert got["best"]["doi"] == best and got["suggestions"][0] == {"doi": suggestion, "rule": "plus-sign"}
    assert "plus-sign" in [warning["code"] for warning in got["warnings"]]


@table(
    ("query", "text"),
    [
        (b"doi=10.1000/a;b=c", "10.1000/a;b=c"),
        (b"doi=10.1000/a?b", "10.1000/a?b"),
        (b"doi=10.1000/a%26b%23c", "10.1000/a&b#c"),
        (b"doi=10.1000/pct%252F", "10.1000/pct%2F"),
        (b"doi=", ""),
        (b"x=y&doi=10.1000/1&doi=10.1000/2", "10.1000/1"),
        (b"doi=10.1000/182%00", "10.1000/182\x00"),
    ],
)
async def test_the_query_is_decoded_once(proxy: Proxy, query: bytes, text: str) -> None:
    got = await proxy.get(b"/api/parse?" + query)
    assert (got.status, got.json) == (200, rows([text])[0])


async def test_the_address_here_is_the_public_one() -> None:
    async with Proxy(public_url="https://doi.example.org/sub/") as proxy:
        got = await proxy.get("/sub/api/parse?doi=10.1000/182")
    assert got.json["url"] == "https://doi.example.org/sub/10.1000/182"


@table(
    ("kind", "body", "answered_as", "texts"),
    [
        (
            JSON,
            '["10.1000/\\u0000", "doi:10.1000", "\\ud83d\\ude00"]',
            JSON,
            ["10.1000/\x00", "doi:10.1000", "\U0001f600"],
        ),
        (JSON, "[]", JSON, []),
        (NDJSON, '"10.1000/182"\n\n"abc"\n', NDJSON, ["10.1000/182", "abc"]),
        (TEXT, "10.1000/1\r\n10.1000/2\u2028x\r\n", NDJSON, ["10.1000/1", "10.1000/2\u2028x"]),
    ],
)
async def test_an_array_gets_an_array_and_lines_get_lines(
    proxy: Proxy, kind: str, body: str, answered_as: str, texts: list[str]
) -> None:
    got = await send(proxy, body, kind)
    assert (got.status, got["content-type"], got["cache-control"]) == (200, answered_as, "no-store")
    assert (got.json if answered_as == JSON else [json.loads(line) for line in got.text.splitlines()]) == rows(texts)


async def test_every_row_is_as_described() -> None:
    row = rows(["doi:10.1000/a\u2013b."])[0]
    assert json.loads(ParsedTextModel(**row).model_dump_json(exclude_unset=True)) == row
    assert list(ParsedTextModel.model_fields) == list(row)
    assert set(row) <= asdict(parse("x")).keys() | row.keys()


@table(
    ("kind", "body", "status", "detail"),
    [
        (JSON, "[" * 100_000, 400, "Item 1 has more than 32 open brackets."),
        ("", "10.1000/182", 415, "The body is without a media type; send it as text/plain"),
    ],
)
async def test_a_body_that_cannot_be_read_is_a_problem(
    proxy: Proxy, kind: str, body: str, status: int, detail: str
) -> None:
    got = await send(proxy, body, kind)
    assert (got.status, got["content-type"], got["cache-control"]) == (status, "application/problem+json", "no-store")
    assert got.json["status"] == status
    assert detail in got.json["detail"]


@table(
    ("query", "detail"),
    [
        (b"", "doi: this is required"),
        (b"doi=%FF", "The byte 0xFF at character 1 is not UTF-8."),
        (b"doi=100%", 'The "%" at character 4 is not followed by two hexadecimal digits'),
    ],
)
async def test_a_query_without_a_text_is_a_problem(proxy: Proxy, query: bytes, detail: str) -> None:
    got = await proxy.get(b"/api/parse?" + query)
    assert (got.status, got["content-type"]) == (400, "application/problem+json")
    assert got.json["detail"].startswith(detail)


async def test_requests_are_counted_with_a_route_of_their_own(proxy: Proxy) -> None:
    await proxy.get("/api/parse?doi=x")
    metrics = (await proxy.get("/metrics")).text
    assert 'doi_proxy_http_requests_total{method="GET",route="parse",status="200"} 1.0' in metrics


async def test_a_name_in_the_form_cannot_reach_the_endpoint(proxy: Proxy) -> None:
    got = await proxy.post("/", "hdl=api/parse")
    assert got.status == 400


async def test_the_examples_of_the_documentation_are_real_answers() -> None:
    page = (Path(__file__).parents[3] / "docs/api.md").read_text(encoding="utf-8")
    async with Proxy(public_url="http://127.0.0.1:8000") as proxy:
        one = await proxy.get("/api/parse?doi=https://doi.org/10.1000/a%E2%80%93b.")
        many = await send(proxy, '["10.1000", "hello"]', JSON)
    assert f"\n{one.text}\n" in page
    assert f"\n{many.text}" in page


@table(
    ("body", "reason"),
    [
        (b"a\n" * 10_001, "The list has more than 10000 names; send the rest in another request."),
        ((b"a" * 1_000 + b"\n") * 1_100, "The list is larger than 1048576 bytes; send several requests."),
    ],
)
async def test_a_list_that_is_too_large_ends_with_the_reason(proxy: Proxy, body: bytes, reason: str) -> None:
    got = await send(proxy, body, TEXT)
    assert reason in got.text.splitlines()[-1]
