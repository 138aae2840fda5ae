"""Request vectors, replayed in this process: what a proxy answers, row by row, as in a black-box conformance run.

`tests/vectors/records.jsonl` is what the upstream knows, `tests/vectors/vectors.jsonl` what is asked for. A row
passes when every key of its "expect" holds; {B} is the proxy's own base URL; "source" says where the row comes from,
and a "note" why it deviates from the reference.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.handle_protocol.server import HandleServer
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

FOLDER: Final = Path(__file__).resolve().parents[1] / "vectors"
BASE: Final = "http://doi.example.org"
#: What "expect" may hold.
KEYS: Final = {
    "status", "location", "no_location", "expires_in", "vary_accept", "link", "json", "json_len", "json_handle", "xml",
    "body_has", "body_lacks",
}  # fmt: skip
Row = dict[str, Any]


def rows(file: str) -> list[Row]:
    return [json.loads(line) for line in (FOLDER / file).read_text("utf-8").splitlines()]


VECTORS: Final = rows("vectors.jsonl")


@pytest.fixture(scope="module", params=["HTTP API", "handle server"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    """A proxy whose upstream is an HTTP API, and one whose upstream is a server of the native Handle protocol."""
    is_native = request.param == "handle server"
    async with HandleServer() as server, Proxy(**({"upstream_url": server.url} if is_native else {})) as proxy:
        upstream = server if is_native else proxy.upstream
        for record in rows("records.jsonl"):
            upstream.put(record["handle"], record["values"])
        yield proxy


def test_every_row_has_its_own_id_a_source_and_known_expectations() -> None:
    ids = [row["id"] for row in VECTORS]
    assert len(set(ids)) == len(ids)
    assert all(row["source"] for row in VECTORS)
    assert {key for row in VECTORS for key in row["expect"]} <= KEYS


@table("row", VECTORS, ids=lambda row: row["id"])
async def test_a_request_is_answered_as_expected(proxy: Proxy, row: Row) -> None:
    headers = {name.lower().replace("-", "_"): value for name, value in row["headers"]}
    got = await proxy.ask(
        row["method"],
        row["target"],
        body=row["body"] or "",
        http_version=row["opts"].get("ver", "HTTP/1.1").removeprefix("HTTP/"),
        **headers,
    )
    assert differences(row["expect"], got, proxy.clock()) == []


def absolute(location: str | None) -> str | None:
    """A location as a client follows it: relative ones name this proxy (RFC 9110, section 10.2.2)."""
    return BASE + location if location is not None and location.startswith("/") else location


def differences(expect: Row, got: Reply, now: float) -> list[str]:
    """What does not hold."""
    wanted = expect["status"] if isinstance(expect["status"], list) else [expect["status"]]
    vary = [field.strip().lower() for field in (got["vary"] or "").split(",")]
    holds: dict[str, Any] = {
        "status": lambda: got.status in wanted,
        "location": lambda: absolute(got["location"]) == expect["location"].replace("{B}", BASE),
        "no_location": lambda: got["location"] is None,
        "expires_in": lambda: got.expires == now + expect["expires_in"],
        "vary_accept": lambda: "accept" in vary,
        "link": lambda: got.all("link") == expect["link"],
        "json": lambda: got.json == expect["json"],
        "json_len": lambda: len(got.json) == expect["json_len"],
        "json_handle": lambda: got.json["handle"] == expect["json_handle"],
        "xml": lambda: elements(got.text) == elements(expect["xml"]),
        "body_has": lambda: all(text in got.text for text in expect["body_has"]),
        "body_lacks": lambda: not any(text in got.text for text in expect["body_lacks"]),
    }
    return [f"{key}: wanted {expect[key]!r}, got {got!r}" for key in expect if not holds[key]()]


def elements(xml: str) -> list[tuple[str, dict[str, str]]]:
    """Names and attributes of an XML document's elements."""
    return [(element.tag, dict(element.attrib)) for element in ET.fromstring(xml).iter()]
