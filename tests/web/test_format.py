"""`?format=` on a name leads where the media type in `Accept` leads, without that header."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doi_proxy.resolver.resolution import MEDIA_TYPES
from tests.table import table
from tests.values import BROWSER, value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

PAGE = "http://publisher.example/article"
CROSSREF = "https://api.crossref.org/v1/works/{hdl}/transform"
RULES = """
[[service]]
name = "ezproxy"
label = "EZproxy"
kind = "ezproxy"
url = "https://ezproxy.example.edu/login"
[[rule]]
service = "ezproxy"
prefixes = ["10.5555"]
"""


def put(proxy: Proxy, template: str = CROSSREF) -> None:
    """A name that leads to a page, an alias of it, and an agency that offers metadata."""
    location = f'<locations><location weight="0" http_role="conneg" href_template="{template}"/></locations>'
    proxy.upstream.put("10.5555", [value(20, "HS_NAMESPACE", "<HS_NAMESPACE><locs>10.SERV/A</locs></HS_NAMESPACE>")])
    proxy.upstream.put("10.SERV/A", [value(4, "10320/loc", location)])
    proxy.upstream.put("10.5555/a", url=PAGE)
    proxy.upstream.put("10.5555/alias", [value(1, "HS_ALIAS", "10.5555/a")])


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        put(proxy)
        yield proxy


def metadata(format_: str) -> str:
    return f"https://api.crossref.org/v1/works/10.5555%2Fa/transform/{MEDIA_TYPES[format_]}"


class TestWhereItLeads:
    @table("accept", [BROWSER, "*/*", "text/turtle"])
    @table("format_", MEDIA_TYPES)
    async def test_to_the_metadata_whatever_accept_says(self, proxy: Proxy, format_: str, accept: str) -> None:
        got = await proxy.get(f"/10.5555/a?format={format_}", accept=accept)
        assert (got.status, got["location"]) == (302, metadata(format_))

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("target", ["/10.5555/a?format=BibTeX", "/openurl?id=doi:10.5555/a&format=bibtex"])
    async def test_by_every_method_and_path(self, proxy: Proxy, method: str, target: str) -> None:
        assert (await proxy.ask(method, target))["location"] == metadata("bibtex")

    async def test_by_a_form(self, proxy: Proxy) -> None:
        assert (await proxy.post("/", "hdl=10.5555/a&format=ris"))["location"] == metadata("ris")

    async def test_an_agency_without_such_addresses_as_accept_leads(self) -> None:
        async with Proxy() as proxy:
            put(proxy, "https://data.example/{hdl}")
            got = await proxy.get("/10.5555/a?format=bibtex", accept=BROWSER)
            assert got["location"] == (await proxy.get("/10.5555/a", accept=MEDIA_TYPES["bibtex"]))["location"]
            assert got["location"] == "https://data.example/10.5555%2Fa"

    async def test_without_a_metadata_service_to_the_page(self, proxy: Proxy) -> None:
        proxy.upstream.put("10.1000/182", url=PAGE)
        assert (await proxy.get("/10.1000/182?format=bibtex"))["location"] == PAGE

    async def test_not_through_the_library(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.toml"
        file.write_text(RULES)
        async with Proxy(library_rules=str(file)) as proxy:
            put(proxy)
            for _ in range(2):  # from the upstream, and from memory
                page, data = [await proxy.get(f"/10.5555/a{query}", accept=BROWSER) for query in ("", "?format=ris")]
                assert page["location"] == f"https://ezproxy.example.edu/login?url={PAGE}"
                assert data["location"] == metadata("ris")


async def test_a_plain_request_between_is_not_changed(proxy: Proxy) -> None:
    for _ in range(3):
        assert (await proxy.get("/10.5555/a", accept=BROWSER))["location"] == PAGE
        assert (await proxy.get("/10.5555/a?format=csl", accept=BROWSER))["location"] == metadata("csl")


async def test_an_alias_keeps_it(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/alias?format=bibtex")
    assert (got.status, got["location"]) == (301, "http://doi.example.org/10.5555/a?format=bibtex")


@pytest.mark.parametrize("query", ["noredirect", "action=showvalues"])
async def test_the_record_as_a_page_is_the_same_with_it(proxy: Proxy, query: str) -> None:
    shown, usual = await proxy.get(f"/10.5555/a?{query}&format=bibtex"), await proxy.get(f"/10.5555/a?{query}")
    assert (shown.status, shown.body) == (200, usual.body)


async def test_options_is_the_same_with_it(proxy: Proxy) -> None:
    got = await proxy.ask("OPTIONS", "/10.5555/a?format=nonsense")
    assert (got.status, got["allow"]) == (204, "GET, HEAD, POST, OPTIONS")


class TestUnknownFormats:
    @table("text", ["pdf", "", "application/x-bibtex", "bibtex2"])
    @table("path", ["/10.5555/a?", "/10.5555/a?noredirect&", "/openurl?id=doi:10.5555/a&"])
    async def test_are_400_that_names_the_known_ones(self, proxy: Proxy, path: str, text: str) -> None:
        got = await proxy.get(f"{path}format={text}", accept=BROWSER)
        assert got.status == 400
        assert ", ".join(MEDIA_TYPES) in got.text

    async def test_are_a_problem_for_a_program(self, proxy: Proxy) -> None:
        got = await proxy.get("/10.5555/a?format=pdf", accept="application/json")
        assert (got.status, got["content-type"]) == (400, "application/problem+json")
        assert got.json["type"].endswith("#invalid-parameter")
        assert got.json["detail"] == f"format must be one of {', '.join(MEDIA_TYPES)}, not 'pdf'."


@pytest.mark.parametrize(
    ("path", "status", "suggested"),
    [
        ("10.5555/a.", 404, "10.5555/a"),
        ("see_10.5555/a", 400, "10.5555/a"),
    ],
)
async def test_the_suggestions_of_a_page_keep_it(proxy: Proxy, path: str, status: int, suggested: str) -> None:
    got = await proxy.get(f"/{path}?format=bibtex", accept=BROWSER)
    assert (got.status, f'href="/{suggested}?format=bibtex"' in got.text) == (status, True)
    usual = await proxy.get(f"/{path}", accept=BROWSER)
    assert f'href="/{suggested}"' in usual.text
