"""One function of suggestions for every door: a page, the form and lists offer the same names."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote, unquote

import pytest

from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

BROWSER: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
REGISTERED: Final = (
    "10.5555/j.cell.2011.02.013",
    "10.5555/slc-2024-00003/",
    "10.5555/978-3-319-55696-3",
    "10.5555/978-3-319-55696-3_16",
    "10.5555/nature12373",
    "10.5555/corner",
    "10.48550/arXiv.1706.03762",
    "10.5555/1520(1996)077<0935:W>2.0.CO;2-#",
)
#: A text, the name that is registered and meant, and the rule.
MEANT: Final = (
    ("10.5555/j.cell.2011.02.O13", "10.5555/j.cell.2011.02.013", "look-alike"),
    ("10.5555/slc-2024-00003", "10.5555/slc-2024-00003/", "missing-slash-at-end"),
    ("10.5555/nature12373x", "10.5555/nature12373", "nearest"),
    ("10.5555/comer", "10.5555/corner", "look-alike"),
)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(upstream_rate=1_000) as started:
        for name in REGISTERED:
            started.upstream.put(name, url="https://example.org/")
        # The nearest names are those that this resolver knows.
        await started.get("/10.5555/nature12373")
        yield started


def linked(page: str) -> list[str]:
    return [unquote(path) for path in re.findall(r'href="/(10\.[^"]+)"', page)]


@table(("text", "name", "rule"), MEANT)
async def test_a_name_that_does_not_exist_has_the_same_suggestion_at_every_door(
    proxy: Proxy, text: str, name: str, rule: str
) -> None:
    got = await proxy.post("/api/resolve?suggest=checked", json.dumps([text]), content_type="application/json")
    [row] = got.json
    assert row["verdict"] == "not_found"
    assert row["suggestions"][0] == {"doi": name, "rule": rule, "exists": True}
    assert row["best"]["doi"] == name
    for page in (
        await proxy.get(f"/{quote(text)}", accept=BROWSER),
        await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER),
    ):
        assert page.status == 404 and name in linked(page.text)


async def test_both_readings_of_a_name_that_may_go_on_are_offered(proxy: Proxy) -> None:
    page = await proxy.post("/", f"hdl={quote('10.5555/978-3-319-55696-3 16')}", accept=BROWSER)
    assert page.status == 200
    assert linked(page.text) == ["10.5555/978-3-319-55696-3_16", "10.5555/978-3-319-55696-3"]
    body = "See 10.5555/978-3-319-55696-3 16 pages"
    got = await proxy.post("/api/resolve?extract=true&suggest=checked&output=json", body, content_type="text/plain")
    [row] = got.json
    assert (row["verdict"], row["best"]["confidence"]) == ("resolved", "likely")
    assert [one["doi"] for one in row["suggestions"]] == ["10.5555/978-3-319-55696-3"]


async def test_a_name_that_follows_by_rule_is_offered_if_it_exists(proxy: Proxy) -> None:
    for text, name in (("arXiv:1706.03762", "10.48550/arXiv.1706.03762"), ("arXiv:1706.99999", None)):
        got = await proxy.post("/api/resolve?suggest=checked", json.dumps([text]), content_type="application/json")
        [row] = got.json
        assert row["verdict"] == "not_a_doi"
        assert [one["doi"] for one in row["suggestions"]] == ([name] if name else [])
        page = await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER)
        assert (name in linked(page.text)) if name else (page.status, linked(page.text)) == (400, [])


async def test_an_entry_without_a_doi_has_the_name_of_its_preprint(proxy: Proxy) -> None:
    entry = "@misc{a, title = {Attention}, eprint = {1706.03762}, archiveprefix = {arXiv}}"
    got = await proxy.post("/api/resolve?suggest=checked&output=json", entry, content_type="text/x-bibtex")
    [row] = got.json
    assert (row["input"], row["reason"]) == ("Attention", "no-doi")
    assert row["suggestions"] == [{"doi": "10.48550/arXiv.1706.03762", "rule": "arxiv", "exists": True}]
