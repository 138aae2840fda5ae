"""`/openurl`, by which library software sends names, and the parameters with which a link server sends people back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

TARGET = "http://example.org/target"
HANDBOOK = "DOI Handbook, section 3.8 (appropriate copy)"
OPENURL = "ANSI/NISO Z39.88-2004, section 9"


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/demo_DOI", url=TARGET)
        proxy.upstream.put("10.1000/a<b>&c;d#e%25", url=TARGET)
        proxy.upstream.put("10.1000/a b", url=TARGET)
        for name in ("10.1000/a%20b", "10.1000/only%20literal"):
            proxy.upstream.put(name, url=f"{TARGET}/literal")
        yield proxy


@table(
    ("query", "source"),
    [
        ("id=doi%3A10.1000%2Fdemo_DOI", HANDBOOK),
        ("id=DOI:10.1000/DEMO_doi", HANDBOOK),
        ("rft_id=info:doi/10.1000/demo_DOI", OPENURL),
        # Several identifiers: the first that is a DOI.
        ("rft_id=info:pmid/123&rft_id=info:doi/10.1000/demo_DOI", OPENURL),
        ("id=pmid:123&rft_id=info:doi/10.1000/demo_DOI", OPENURL),
        ("id=https://doi.org/10.1000/demo_DOI", "what people paste"),
        ("id=10.1000/demo_DOI", "what people paste"),
        ("id=doi:%2010.1000/demo_DOI", "what people paste"),
        ("id=doi:+10.1000/demo_DOI", "KEV: a blank is a plus sign"),
        ("rft_id=info:doi/&rft_id=info:doi/10.1000/demo_DOI", "an empty field of a form"),
        ("id=&id=doi:&rft_id=&rft_id=info:doi/10.1000/demo_DOI", "empty fields of a form"),
        ("doi=10.1000/demo_DOI", "what other software sends"),
        ("rft.doi=10.1000%2Fdemo_DOI&rft.au=Smith", "COinS of some programs"),
        # A URI has escapes of its own.
        ("rft_id=info:doi/10.1000%2Fa%2520b", OPENURL),
        ("rft_id=https%3A%2F%2Fdoi.org%2F10.1000%2Fa%2520b", OPENURL),
        ("rft_id=info:doi/10.1000/a%3Cb%3E%26c%3Bd%2523e%252525", OPENURL),
        # The name is in the query: escapes are decoded once.
        ("id=doi:10.1000/a%3Cb%3E%26c%3Bd%23e%2525", HANDBOOK),
    ],
)
async def test_an_openurl_leads_where_its_name_leads(proxy: Proxy, query: str, source: str) -> None:
    for method in ("GET", "HEAD"):
        got = await proxy.ask(method, f"/openurl?{query}")
        assert (got.status, got["location"]) == (302, TARGET), source


async def test_the_literal_reading_of_a_uri_counts_if_it_alone_is_registered(proxy: Proxy) -> None:
    got = await proxy.get("/openurl?rft_id=info:doi/10.1000/only%2520literal")
    assert (got.status, got["location"]) == (302, f"{TARGET}/literal")
    assert (await proxy.get("/OpenURL?id=doi:10.1000/a%2520b"))["location"] == f"{TARGET}/literal"
    assert (await proxy.get("/openurl?rft_id=info:doi/10.1000/no%2520name")).status == 404


@pytest.mark.parametrize("query", ["", "id=", "id=pmid:123", "rft_id=info:pmid/1&rft.au=Smith", "doi=123", "id=10"])
async def test_an_openurl_without_a_doi_is_400_and_says_what_to_send(proxy: Proxy, query: str) -> None:
    got = await proxy.get(f"/openurl?{query}")
    assert got.status == 400 and "rft_id=info:doi/" in got.text
    assert "No DOI in this OpenURL" in got.text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("id=doi:10.1000/none", 404),
        ("id=doi:10.1000/", 400),
        ("id=doi:10.1000/a%00b", 400),
        # An escape that is no UTF-8 is U+FFFD in a query, which no registered name holds.
        ("id=doi:10.1000/%FF", 404),
        # A label without a name is an empty value.
        ("id=doi:%0d%0a", 400),
    ],
)
async def test_a_name_that_is_missing_or_none_is_told_as_ever(proxy: Proxy, query: str, status: int) -> None:
    got = await proxy.get(f"/openurl?{query}")
    assert (got.status, got["location"]) == (status, None)


async def test_markup_in_an_openurl_is_escaped(proxy: Proxy) -> None:
    got = await proxy.get("/openurl?id=doi:10.1000/%3Cscript%3Ealert(1)%3C/script%3E")
    assert got.status == 404 and "<script" not in got.text


async def test_other_parameters_work_as_ever(proxy: Proxy) -> None:
    got = await proxy.get("/openurl?id=doi:10.1000/demo_DOI&urlappend=%3Fa")
    assert got["location"] == f"{TARGET}?a"
    assert (await proxy.get("/openurl?id=doi:10.1000/demo_DOI&noredirect")).status == 200


@pytest.mark.parametrize(
    "query",
    [
        "rft_id=https%3A%2F%2Fpublisher.example%2Fdoi%2Fabs%2F10.1000%2Fdemo_DOI",
        "id=pmid:1&rft_id=info:oclcnum/1&rft_id=see%20doi:10.1000/demo_DOI.",
        "rft_id=info:doi/doi:10.1000/demo_DOI",
        "rft_id=info:pmid/1&rft.au=doi:10.1000/demo_DOI",
    ],
)
async def test_the_name_inside_another_identifier_is_suggested(proxy: Proxy, query: str) -> None:
    got = await proxy.get(f"/openurl?{query}", accept="text/html")
    assert got.status == 400 and 'href="/10.1000/demo_DOI"' in got.text
