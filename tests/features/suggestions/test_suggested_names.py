"""Not-found pages: which suggested names are shown, and how few queries that takes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import quote, unquote

import pytest

from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

QUERIES = "doi_proxy.features.suggestions.suggested_names.QUERIES"
QUERY_TIMEOUT = "doi_proxy.features.suggestions.suggested_names.QUERY_TIMEOUT"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
#: Two names are suggested for it: without the title of the page and with it.
ASKED = "10.5555/1.full.pdf"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as started:
        yield started


def suggested(got: Reply) -> list[str]:
    _, _, section = got.text.partition('aria-labelledby="suggestions"')
    return [unquote(path) for path in re.findall(r'<li>\s*<a href="/([^"]+)"', section.partition("</section>")[0])]


async def test_without_queries_the_rules_decide_the_order() -> None:
    async with Proxy(**{QUERIES: 0}) as proxy:
        proxy.upstream.put("10.5555/1.full", url="https://example.org/")
        got = await proxy.get(f"/{ASKED}", accept=BROWSER)
        assert got.status == 404 and suggested(got) == ["10.5555/1", "10.5555/1.full"]
        assert proxy.upstream.queries("10.5555/1") == proxy.upstream.queries("10.5555/1.full") == 0


async def test_a_name_without_the_slash_at_its_end_is_offered_once(proxy: Proxy) -> None:
    rows = (await proxy.get("/10.5555/1/", accept="application/problem+json")).json["suggestions"]
    page = (await proxy.get("/10.5555/1/", accept=BROWSER)).text
    assert "10.5555/1" in [row["doi"] for row in rows]
    assert page.count('href="/10.5555/1"') == 1


async def test_names_that_do_not_exist_are_not_suggested(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/1.full", url="https://example.org/")
    for _ in range(2):
        assert suggested(await proxy.get(f"/{ASKED}", accept=BROWSER)) == ["10.5555/1.full"]
    assert proxy.upstream.queries("10.5555/1") == proxy.upstream.queries("10.5555/1.full") == 1


async def test_a_name_that_exists_comes_before_one_of_which_nothing_is_known() -> None:
    async with Proxy(**{QUERIES: 0}) as proxy:
        proxy.upstream.put("10.5555/1.full", url="https://example.org/")
        assert (await proxy.get("/10.5555/1.full")).status == 302
        assert suggested(await proxy.get(f"/{ASKED}", accept=BROWSER)) == ["10.5555/1.full", "10.5555/1"]


async def test_one_name_of_which_nothing_is_known_is_not_called_several() -> None:
    one, many = "Or this one?", "Or one of these?"
    async with Proxy(**{QUERIES: 0}) as proxy:
        proxy.upstream.put("10.5555/a", url="https://example.org/")
        await proxy.get("/10.5555/a")
        for path, expected, other in (
            ("/see%2010.5555%2Fa%20and%2010.5555%2Fb", one, many),
            ("/see%2010.5555%2Fa%20and%2010.5555%2Fb%20and%2010.5555%2Fc", many, one),
        ):
            text = (await proxy.get(path, accept=BROWSER, accept_language="en")).text
            assert expected in text and other not in text


async def test_a_name_that_cannot_be_verified_stays(proxy: Proxy) -> None:
    proxy.upstream.fault("10.5555/1", "reset")
    proxy.upstream.put("10.5555/1.full", url="https://example.org/")
    assert suggested(await proxy.get(f"/{ASKED}", accept=BROWSER)) == ["10.5555/1.full", "10.5555/1"]


async def test_a_page_does_not_wait_for_a_slow_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QUERY_TIMEOUT, 0.01)
    async with Proxy() as proxy:
        proxy.upstream.hold("10.5555/1")
        proxy.upstream.hold("10.5555/1.full")
        got = await proxy.get(f"/{ASKED}", accept=BROWSER)
        assert got.status == 404 and suggested(got) == ["10.5555/1", "10.5555/1.full"]
        proxy.upstream.release("10.5555/1")
        proxy.upstream.release("10.5555/1.full")


async def test_a_flood_of_missing_names_makes_few_queries_for_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QUERY_TIMEOUT, 0.01)
    async with Proxy() as proxy:
        names = [f"10.5555/{number}" for number in range(20)]
        for name in names:
            proxy.upstream.hold(name)
        await asyncio.gather(*(proxy.get(f"/{name}.", accept=BROWSER) for name in names))
        assert 1 <= sum(proxy.upstream.queries(name) for name in names) <= 8
        for name in names:
            proxy.upstream.release(name)


async def test_a_program_causes_no_queries_for_suggestions(proxy: Proxy) -> None:
    assert (await proxy.get(f"/{ASKED}")).status == 404
    assert proxy.upstream.queries("10.5555/1") == proxy.upstream.queries("10.5555/1.full") == 0


@pytest.mark.parametrize(
    ("public_url", "asked", "names"),
    [
        ("https://doi.example.org", "https://doi.example.org/10.5555/1", ["10.5555/1"]),
        ("https://doi.example.org", "https://doi.example.org/aabbe", ["10/aabbe"]),
        ("https://www.example.org:8443/doi/", "https://www.example.org:8443/doi/aabbe", ["10/aabbe"]),
        ("https://doi.example.org", "https://doi.example.net/aabbe", []),
    ],
)
async def test_a_url_of_this_resolver_has_the_page_of_its_name_or_suggests_it(
    public_url: str, asked: str, names: list[str]
) -> None:
    async with Proxy(**{"public_url": public_url, QUERIES: 0}) as proxy:
        got = await proxy.post("/", body=f"hdl={asked}", accept=BROWSER)
        if asked.endswith("/10.5555/1"):
            assert (got.status, '<bdi translate="no">10.5555/1</bdi>' in got.text) == (404, True)
        else:
            assert (got.status, [link.removeprefix("doi/") for link in suggested(got)]) == (400, names)


async def test_a_text_that_is_not_a_name_suggests_what_is_in_it(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555%2F1%0Asecond%20line", accept=BROWSER)
    assert got.status == 400 and suggested(got) == ["10.5555/1", "10.5555/1second"]
    assert proxy.upstream.queries() == 0


CITATION = "Smith J (2021). Call to update. AMA J Ethics 23(7):550. doi:10.5555/amajethics.2021.550."


async def test_the_form_finds_the_one_name_of_a_citation(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/amajethics.2021.550", url="https://example.org/")
    for text in (
        CITATION,
        "https://publisher.example/doi/10.5555/amajethics.2021.550/full",
    ):
        got = await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER)
        assert (got.status, got["location"]) == (200, None)
        assert 'class="button" href="/10.5555/amajethics.2021.550"' in got.text
    # The name with what may be a part of it was looked up too.
    assert proxy.upstream.queries() == 2


async def test_the_form_finds_the_short_doi_in_a_url_of_this_resolver() -> None:
    async with Proxy(public_url="https://doi.example.org") as proxy:
        proxy.upstream.put("10/aabbe", url="https://example.org/")
        got = await proxy.post("/", body="hdl=https://doi.example.org/aabbe", accept=BROWSER)
        assert (got.status, 'class="button" href="/10/aabbe"' in got.text) == (200, True)


async def test_the_one_name_of_a_citation_has_the_page_that_it_has_alone(proxy: Proxy) -> None:
    proxy.upstream.fault("10.5555/silent", "status", status=503)
    for text, name, status, title in (
        (CITATION, "10.5555/amajethics.2021.550", 404, "DOI Not Found"),
        ("see 10.5555/silent, p. 3", "10.5555/silent", 502, "This DOI could not be verified"),
    ):
        got = await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER)
        assert (got.status, title in got.text, f'<bdi translate="no">{name}</bdi>' in got.text) == (status, True, True)


async def test_each_name_of_a_text_has_a_button(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555")
    for text in ("10.5555/a., 10.5555/b. and more", "see 10.5555/A and https://doi.org/10.5555/b or doi:10.5555/b"):
        got = await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER)
        assert (got.status, "DOIs in your text" in got.text) == (200, True)
        assert [path.lower() for path in re.findall(r'class="button" href="/([^"]+)"', got.text)] == [
            "10.5555/a",
            "10.5555/b",
        ]
    got = await proxy.post("/", "hdl=no+name", accept=BROWSER)
    assert (got.status, 'class="button" href' in got.text) == (400, False)


async def test_a_likely_name_whose_prefix_nobody_has_is_not_in_the_text(proxy: Proxy) -> None:
    for text, shown in (("about 10.5556/182 of", "Not a DOI"), ("about doi:10.5556/182 of", "DOI Not Found")):
        got = await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER)
        assert (got.status, shown in got.text) == (400 if shown == "Not a DOI" else 404, True)
    body = "about 10.5556/182 of"
    got = await proxy.post("/api/resolve?extract=true&suggest=checked&output=json", body, content_type="text/plain")
    assert [(row["doi"], row["verdict"], row["reason"]) for row in got.json] == [(None, "not_a_doi", "no-doi")]


async def test_a_text_in_the_form_is_not_taken_for_a_name_in_an_outage(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/a", url="https://example.org/")
    assert (await proxy.get("/10.5555/a")).status == 302
    for name in ("10.5555/a and more", "10.5555/b and more", "10.5555/b", "10.5555/a and 10.5555/b"):
        proxy.upstream.fault(name, "status", status=503)
    for text, status, button in (
        ("10.5555/a and more", 200, ["10.5555/a"]),
        ("10.5555/b and more", 502, ["10.5555/b"]),  # the button to try again
        ("10.5555/a and 10.5555/b", 200, ["10.5555/a", "10.5555/b"]),
    ):
        got = await proxy.post("/", f"hdl={quote(text)}", accept=BROWSER)
        assert (got.status, re.findall(r'class="button" href="/([^"]+)"', got.text)) == (status, button)
        assert ('<bdi translate="no">10.5555/b</bdi>' in got.text) == ("b" in text)


async def test_one_word_with_two_prefixes_is_a_name(proxy: Proxy) -> None:
    got = await proxy.post("/", "hdl=10.5555/a10.5555/b", accept=BROWSER)
    assert (got.status, "DOI Not Found" in got.text) == (404, True)


async def test_the_form_resolves_a_name_as_it_stands_before_it_reads_it_otherwise(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/a", url="https://example.org/a")
    proxy.upstream.put("10.5555/a/full", url="https://example.org/full")
    proxy.upstream.fault("10.5555/a/pdf", "status", status=503)
    assert (await proxy.post("/", "hdl=10.5555/a/full", accept=BROWSER))["location"] == "https://example.org/full"
    assert (await proxy.post("/", "hdl=10.5555/a/pdf", accept=BROWSER)).status == 502
    got = await proxy.post("/", "hdl=10.5555/a/abstract", accept=BROWSER)
    assert (got.status, 'class="button" href="/10.5555/a"' in got.text) == (200, True)
    got = await proxy.post("/", "hdl=10.5555/a/abstract", accept="application/json")
    assert (got.status, got.json["suggestions"][0]["doi"]) == (404, "10.5555/a")


async def test_a_citation_is_helped_in_an_outage_too(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/amajethics.2021.550", url="https://example.org/", ttl=10)
    await proxy.get("/10.5555/amajethics.2021.550")
    proxy.clock.advance(100_000)
    proxy.upstream.fault("10.5555/amajethics.2021.550", "status", status=503)
    got = await proxy.post("/", f"hdl={quote(CITATION)}", accept=BROWSER)
    assert (got.status, 'class="button" href="/10.5555/amajethics.2021.550"' in got.text) == (200, True)


async def test_neither_a_path_nor_a_program_gets_the_page_of_the_form(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/amajethics.2021.550", url="https://example.org/")
    await proxy.get("/10.5555/amajethics.2021.550")
    assert (await proxy.get(f"/{quote(CITATION)}", accept=BROWSER)).status == 400
    got = await proxy.post("/", f"hdl={quote(CITATION)}", accept="application/json")
    assert (got.status, got.json["suggestions"][0]["doi"]) == (400, "10.5555/amajethics.2021.550")
