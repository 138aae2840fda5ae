"""`/api/parse` and `/api/resolve` read the same bodies as the same lists."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

JSON, NDJSON, TEXT, CSV = "application/json", "application/x-ndjson", "text/plain", "text/csv"
A, B = "10.1000/a", "10.1000/b"
BOM: Final = b"\xef\xbb\xbf"

#: A media type, a body, and the inputs of its rows.
LISTS: Final[dict[str, tuple[str, bytes, list[str]]]] = {
    "array": (JSON, b'["10.1000/a", "10.1000/b"]', [A, B]),
    "array of objects": (JSON, b'[{"doi": "10.1000/a"}, {"DOI": "10.1000/b", "x": 1}]', [A, B]),
    "array after a BOM": (JSON, BOM + b'["10.1000/a"]', [A]),
    "array with other values": (JSON, b'["10.1000/a",7,{"x": 1},""]', [A, "7", '{"x": 1}', ""]),
    "array with half a surrogate pair": (JSON, b'["\\ud800", "10.1000/a"]', ['"\\ud800"', A]),
    "empty array": (JSON, b"[]", []),
    "lines of JSON": (NDJSON, b'"10.1000/a"\n\n{"doi": "10.1000/b"}\r\n', [A, B]),
    "lines of JSON by another name": ("application/jsonl", b'"10.1000/a"\n"10.1000/b"', [A, B]),
    "lines of JSON after a BOM": (NDJSON, BOM + b'"10.1000/a"', [A]),
    "a line that is not JSON": (NDJSON, b'10.1000/a\n"10.1000/b"', [A, B]),
    "text": (TEXT, b"10.1000/a\r\n10.1000/b", [A, B]),
    "text after a BOM": (TEXT, BOM + b"10.1000/a\n", [A]),
    "empty lines and comments": (TEXT, b"\n10.1000/a\n  \n\n# x\n10.1000/b\n", [A, B]),
    "a line that is not UTF-8": (TEXT, b"10.1000/\xff\n10.1000/b", ["10.1000/ÿ", B]),
    "a line that is too long": (TEXT, b"x" * 66_000 + b"\n10.1000/b", ["x" * 200, B]),
    "no text": (TEXT, b"", []),
    "UTF-16": (TEXT, "10.1000/a".encode("utf-16"), [A]),
    "two names in a line": (TEXT, b"10.1000/a, 10.1000/b", [A, B]),
    "an object": (JSON, b'{"doi": "10.1000/a"}', [A]),
    "an answer of a service": (JSON, b'{"message": {"items": [{"DOI": "10.1000/a"}, {"DOI": "10.1000/b"}]}}', [A, B]),
    "table without the column": (CSV, b"title\nx\n", ["x"]),
    "a name in another field": ("text/x-bibtex", b"@misc{a, note = {see doi:10.1000/a}}", [A]),
    "table": (CSV, b"title,doi\nx,10.1000/a\ny,10.1000/b\n", [A, B]),
    "table with tabs": ("text/tab-separated-values", b"doi\tn\n10.1000/a\t1\n10.1000/b\t2\n", [A, B]),
    "table after a BOM": (CSV, BOM + b"DOI;title\n10.1000/a;x\n", [A]),
}
#: Those that neither reads, and the status.
REFUSED: Final[dict[str, tuple[str, bytes, int]]] = {
    "no array": (JSON, b"", 400),
    "another media type": ("text/html", b"10.1000/a", 415),
    "another charset": ("text/plain; charset=latin1", b"10.1000/a", 415),
}
PATHS: Final = ("/api/parse", "/api/resolve?output=ndjson")


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        yield proxy


def inputs(got: Reply) -> list[str]:
    assert got.status == 200, got.text
    rows = got.json if got["content-type"] == JSON else [json.loads(line) for line in got.text.splitlines()]
    return [row["input"] for row in rows]


@table("is_packed", [False, True])
@table(("kind", "body", "expected"), LISTS.values(), ids=LISTS)
async def test_a_list_has_the_same_rows(
    proxy: Proxy, kind: str, body: bytes, expected: list[str], is_packed: bool
) -> None:
    headers = {"content_encoding": "gzip"} if is_packed else {}
    sent = gzip.compress(body) if is_packed else body
    found = [inputs(await proxy.post(path, sent, content_type=kind, **headers)) for path in PATHS]
    assert found == [expected, expected]


@pytest.mark.parametrize(("kind", "body", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_list_that_cannot_be_read_has_the_same_error(proxy: Proxy, kind: str, body: bytes, status: int) -> None:
    answers = [await proxy.post(path, body, content_type=kind) for path in PATHS]
    assert [got.status for got in answers] == [status, status]
    assert answers[0].json["detail"] == answers[1].json["detail"]


async def test_a_row_says_why_its_item_cannot_be_read(proxy: Proxy) -> None:
    body, messages = b"x" * 66_000 + b"\n", []
    for path in PATHS:
        got = await proxy.post(path, body, content_type=TEXT)
        messages.append(json.loads(got.text)["message"])
    assert messages == ["Line 1 is longer than 65536 bytes; shorten it."] * 2


async def test_a_column_is_named_in_the_same_way(proxy: Proxy) -> None:
    for path in ("/api/parse?column=name", "/api/resolve?column=name"):
        got = await proxy.post(path, b"doi,name\nx,10.1000/a\n", content_type=CSV)
        assert inputs(got) == [A]
