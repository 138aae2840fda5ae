"""Content negotiation end to end: prefix record, service handle, metadata; and how few questions that takes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fake_upstream import EVERY_NAME
from tests.values import BROWSER, value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

BIBTEX = "application/x-bibtex"
PAGE = "http://publisher.example/article"
#: What asks the prefix chain: its two records, once.
CHAIN = ("10.5555", "10.SERV/AGENCY")


def agency(proxy: Proxy, prefix: str = "10.5555", *, ttl: int = 86400, status: str = "", more: str = "") -> None:
    """A prefix whose agency offers metadata."""
    namespace = f"<HS_NAMESPACE><locs>10.SERV/AGENCY</locs>{status}</HS_NAMESPACE>"
    proxy.upstream.put(prefix, [value(20, "HS_NAMESPACE", namespace, ttl)])
    locations = (
        '<locations http_sc="302"><location weight="0" http_role="conneg" href_template="https://data.example/{hdl}"/>'
        f"{more}</locations>"
    )
    services = [value(3, "10320/ra_name", "Agency", ttl), value(4, "10320/loc", locations, ttl)]
    proxy.upstream.put("10.SERV/AGENCY", services)


def put(proxy: Proxy, *, ttl: int = 86400) -> str:
    """A name that leads to a page."""
    name = proxy.name()
    proxy.upstream.put(name, url=PAGE, ttl=ttl)
    return name


def data(name: str) -> str:
    return "https://data.example/" + name.replace("/", "%2F")


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        agency(proxy)
        yield proxy


class TestWhereItLeads:
    async def test_one_name_leads_each_client_where_it_asks_to_go(self, proxy: Proxy) -> None:
        name = put(proxy)
        for accept, location in [(BROWSER, PAGE), (BIBTEX, data(name)), (BROWSER, PAGE), (BIBTEX, data(name))] * 3:
            assert (await proxy.get(f"/{name}", accept=accept))["location"] == location

    async def test_a_location_of_the_type_asked_for_goes_first(self, proxy: Proxy) -> None:
        agency(proxy, more='<location weight="0" media-type="application/rdf+xml" href="http://rdf.example/"/>')
        name = put(proxy)
        accept = "application/rdf+xml, application/json;q=0.5"
        assert (await proxy.get(f"/{name}", accept=accept))["location"] == "http://rdf.example/"
        assert (await proxy.get(f"/{name}", accept="application/json"))["location"] == data(name)

    async def test_a_record_s_own_metadata_go_before_the_agency_s(self, proxy: Proxy) -> None:
        name = proxy.name()
        xml = (
            '<locations><location http_role="conneg" weight="1" href="http://own.example/" http_sc="303"/>'
            f'<location href="{PAGE}" weight="1" http_role="browser"/></locations>'
        )
        proxy.upstream.put(name, [value(1, "10320/loc", xml)])
        no_nslocs = proxy.name()
        proxy.upstream.put(
            no_nslocs, [value(1, "10320/loc", xml.replace("<locations", "<locations no_nslocs='true'", 1))]
        )
        assert (await proxy.get(f"/{name}", accept=BIBTEX))["location"] == "http://own.example/"
        assert (await proxy.get(f"/{name}", accept=BROWSER))["location"] == PAGE
        got = await proxy.get(f"/{no_nslocs}", accept=BIBTEX)
        assert (got.status, got["location"]) == (303, "http://own.example/")

    async def test_a_prefix_without_an_agency_leads_to_the_page(self, proxy: Proxy) -> None:
        proxy.upstream.put("10.7777/a", url=PAGE)
        assert (await proxy.get("/10.7777/a", accept=BIBTEX))["location"] == PAGE


class TestQuestions:
    async def queries(self, proxy: Proxy, path: str, **headers: str) -> list[int]:
        before = [proxy.upstream.queries(name) for name in CHAIN]
        await proxy.get(path, **headers)
        return [proxy.upstream.queries(name) - count for name, count in zip(CHAIN, before, strict=True)]

    @pytest.mark.parametrize("accept", [BROWSER, "*/*", "application/pdf"])
    async def test_a_page_asks_nothing_of_the_prefix(self, proxy: Proxy, accept: str) -> None:
        assert await self.queries(proxy, f"/{put(proxy)}", accept=accept) == [0, 0]

    @pytest.mark.parametrize(
        ("query", "accept"), [("", BIBTEX), ("?locatt=id:1", BROWSER), ("?action=showurls", BROWSER)]
    )
    async def test_what_depends_on_the_prefix_asks_once_for_all_its_names(
        self, proxy: Proxy, query: str, accept: str
    ) -> None:
        assert await self.queries(proxy, f"/{put(proxy)}{query}", accept=accept) == [1, 1]
        for _ in range(5):
            assert await self.queries(proxy, f"/{put(proxy)}{query}", accept=accept) == [0, 0]


class TestTime:
    async def test_a_redirect_ends_with_the_first_record_it_stands_on(self, proxy: Proxy) -> None:
        agency(proxy, ttl=120)
        name = put(proxy)
        got = await proxy.get(f"/{name}", accept=BIBTEX)
        assert (got.expires, got.max_age) == (proxy.clock() + 120, 120)
        # As the prefix's part counts down, so does the redirect.
        proxy.clock.advance(100)
        assert (await proxy.get(f"/{name}", accept=BIBTEX)).max_age == 20
        assert (await proxy.get(f"/{name}", accept=BROWSER)).expires == proxy.clock() - 100 + 86400


class TestSilence:
    @pytest.mark.parametrize("silent", CHAIN)
    @pytest.mark.parametrize("fault", ["reset", "status", "garbage"])
    async def test_a_request_for_metadata_gets_could_not_verify(self, proxy: Proxy, silent: str, fault: str) -> None:
        proxy.upstream.fault(silent, fault, **({"status": 503} if fault == "status" else {}))
        name = put(proxy)
        got = await proxy.get(f"/{name}", accept=BIBTEX)
        assert got.status in (502, 503, 504) and got["location"] is None and got["cache-control"] == "no-store"
        # Readers are not concerned.
        assert (await proxy.get(f"/{name}", accept=BROWSER))["location"] == PAGE

    async def test_a_name_whose_prefix_had_no_record_keeps_its_target_in_an_outage(self, proxy: Proxy) -> None:
        proxy.upstream.put("10.7777/a", url=PAGE, ttl=3600)
        await proxy.get("/10.7777/a", accept=BIBTEX)
        proxy.clock.advance(7200)
        proxy.upstream.fault(EVERY_NAME, "reset")
        plain, got = await proxy.get("/10.7777/a"), await proxy.get("/10.7777/a", accept=BIBTEX)
        assert (got.status, got["location"], got.max_age) == (302, PAGE, 0)
        assert plain["location"] == PAGE
        assert all("detail=upstream-unreachable" in (each["cache-status"] or "") for each in (plain, got))
        # An answer about the prefix itself needs a recent one.
        assert (await proxy.get("/10.7777")).status == 502
        assert (await proxy.get("/ra/10.7777")).json == [{"DOI": "10.7777", "status": "Could not verify"}]

    @pytest.mark.parametrize("path", ["?action=showurls", "?locatt=id:nowhere"])
    async def test_so_is_who_asks_for_a_location_that_may_be_the_prefix_s(self, proxy: Proxy, path: str) -> None:
        proxy.upstream.fault("10.5555", "reset")
        assert (await proxy.get(f"/{put(proxy)}{path}")).status in (502, 503, 504)


class TestInactivePrefix:
    STATUS = (
        "<status>inactive</status><statusmsg>Closed &lt;b&gt; in 2020</statusmsg><contact>help@agency.example</contact>"
    )

    @pytest.mark.parametrize(
        ("query", "accept"), [("", BIBTEX), ("?action=showurls", BROWSER), ("?locatt=a:b", BROWSER)]
    )
    async def test_its_names_are_404_with_what_the_registry_says(self, proxy: Proxy, query: str, accept: str) -> None:
        agency(proxy, status=self.STATUS)
        got = await proxy.get(f"/{put(proxy)}{query}", accept=accept)
        assert got.status == 404 and got["location"] is None
        assert "Closed &lt;b&gt; in 2020" in got.text and "help@agency.example" in got.text


class TestContact:
    async def test_a_hostile_contact_is_escaped(self, proxy: Proxy) -> None:
        agency(proxy, status="<contact>javascript:alert(1) &lt;img src=x onerror=y&gt;\"'</contact>")
        got = await proxy.get("/10.5555/no-such-name", accept=BROWSER)
        assert got.status == 404 and "<img" not in got.text and 'href="javascript' not in got.text.lower()

    async def test_a_silent_prefix_does_not_hide_that_the_name_is_missing(self, proxy: Proxy) -> None:
        proxy.upstream.fault("10.5555", "reset")
        assert (await proxy.get("/10.5555/no-such-name", accept=BROWSER)).status == 404
