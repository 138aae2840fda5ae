"""10320/loc over HTTP: the chosen location and its status, the country of a client, `action=showurls`."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mmdb_writer import MMDBWriter
from netaddr import IPSet  # type: ignore[import-untyped]

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.country.database import Countries
from tests.table import table
from tests.values import value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

#: The client of every request of `tests.web.proxy`.
CLIENT = "192.0.2.7"


def loc(*locations: str, root: str = "", index: int = 1000, ttl: int = 86400) -> dict[str, Any]:
    inner = "".join(f"<location {one}/>" for one in locations)
    return value(index, "10320/loc", f"<locations {root}>{inner}</locations>", ttl)


URL = value(1, "URL", "http://url.example/")
RECORDS: dict[str, list[dict[str, Any]]] = {
    "handbook": [
        loc(
            'id="0" href="http://uk.example.com/" country="gb" weight="0"',
            'id="1" href="http://www1.example.com/" weight="1"',
        )
    ],
    "template": [
        loc(
            'id="1" href_template="http://t.example/?h={hdl}"',
            'id="2" href_template="http://t.example/{hdl:path}" weight="0"',
        )
    ],
    "status": [
        loc(
            'id="root" href="http://s.example/"',
            *(f'id="{sc}" http_sc="{sc}" weight="0" href="http://s.example/{sc}"' for sc in (301, 307, 308, 404)),
            root='http_sc="303"',
        )
    ],
    "several": [loc('href="http://first.example/"'), loc('href="http://second.example/" weight="0"', index=1001)],
    "no-legacy": [URL, loc('href="http://l.example/" weight="0"', root='no_legacy="true"')],
    "url-weight": [URL, loc('href="http://l.example/" weight="0"', root='urlWeight="1"')],
    "address": [
        loc(f'href="http://library.example/" addresses="10.0.0.0/8, {CLIENT}/32" weight="0"', 'href="http://p.example/"')
    ],
    "elsewhere": [loc('href="http://library.example/" addresses="10.0.0.0/8" weight="0"', 'href="http://p.example/"')],
    "language": [
        loc('href="http://de.example/" language="de" weight="0"', 'href="http://en.example/" language="en"')
    ],
    "http-role": [
        loc('href="http://data.example/" http_role="conneg" weight="0"', 'href="http://page.example/"')
    ],
    "includes": [loc('id="own" href="http://own.example/"', root='include="10.5555/included"')],
    "included": [loc('id="in" href_template="http://in.example/{hdl}" weight="0"', ttl=60)],
    "empty": [URL, value(1000, "10320/loc", "<locations/>")],
    "malformed": [URL, value(1000, "10320/loc", "no -- <XML>---")],
    "only-malformed": [value(1000, "10320/loc", "no XML")],
    "nowhere": [loc('id="1" weight="1"')],
    "odd": [loc("""href="http://o.example/?a=&lt;&amp;&quot;'" title="&lt;b&gt; &#10; ä" xml:lang="de" weight="1" """)],
}  # fmt: skip


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        for name, values in RECORDS.items():
            proxy.upstream.put(f"10.5555/{name}", values)
        yield proxy


HANDBOOK = 'DOI Handbook, section "Resolution"'
MANUAL = "technical manual, chapter 12"


@table(
    ("path", "status", "location", "source"),
    [
        ("handbook?locatt=id:0", 302, "http://uk.example.com/", HANDBOOK),
        ("handbook?locatt=id:9", 302, "http://www1.example.com/", HANDBOOK),
        ("handbook?country=us", 302, "http://www1.example.com/", MANUAL),
        ("handbook?locatt=id:0&urlappend=x%3Fy", 302, "http://uk.example.com/x?y", MANUAL),
        ("template", 302, "http://t.example/?h=10.5555%2Ftemplate", MANUAL),
        ("TEMPLATE?locatt=id:2", 302, "http://t.example/10.5555/TEMPLATE", "the name is spelled as asked"),
        ("status", 303, "http://s.example/", MANUAL),
        ("status?locatt=id:301", 301, "http://s.example/301", MANUAL),
        ("several", 302, "http://first.example/", MANUAL),
        ("no-legacy", 302, "http://l.example/", MANUAL),
        ("url-weight", 302, "http://url.example/", MANUAL),
        ("elsewhere", 302, "http://p.example/", MANUAL),
        ("includes?locatt=id:in", 302, "http://in.example/10.5555%2Fincludes", MANUAL),
        ("empty", 302, "http://url.example/", MANUAL),
        ("malformed", 302, "http://url.example/", "as if it were not there"),
        ("only-malformed", 200, None, "as if it were not there"),
        ("nowhere", 200, None, MANUAL),
        ("handbook?noredirect", 200, None, MANUAL),
        ("status?locatt=id:308&redirectionHeaders", 200, "http://s.example/308", "Handle.Net 8.1.1, release notes"),
    ],
)
@table("method", ["GET", "HEAD"])
async def test_a_record_with_locations_leads_to_one(
    proxy: Proxy, method: str, path: str, status: int, location: str | None, source: str
) -> None:
    got = await proxy.ask(method, f"/10.5555/{path}")
    assert (got.status, got["location"]) == (status, location), source
    assert "accept" in (got["vary"] or "").lower().replace(",", " ").split()


@pytest.mark.parametrize("code", [303, 307, 308])
async def test_http_1_0_knows_no_modern_redirect(proxy: Proxy, code: int) -> None:
    path = "/10.5555/status" if code == 303 else f"/10.5555/status?locatt=id:{code}"
    assert (await proxy.ask("GET", path, http_version="1.0")).status == 302
    assert (await proxy.ask("GET", "/10.5555/status?locatt=id:301", http_version="1.0")).status == 301


async def test_a_chance_is_drawn_for_each_request(proxy: Proxy) -> None:
    name = proxy.name()
    proxy.upstream.put(name, [loc(*(f'href="http://{n}.example/"' for n in range(3)))])
    seen = {(await proxy.get(f"/{name}"))["location"] for _ in range(200)}
    assert seen == {f"http://{n}.example/" for n in range(3)}


async def test_what_is_included_ends_the_redirect_too(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/includes")
    assert (got["location"] in ("http://own.example/", "http://in.example/10.5555%2Fincludes"), got.max_age) == (
        True,
        60,
    )


async def test_the_body_links_to_the_location_chosen(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/odd")
    assert got["location"] == "http://o.example/?a=%3C&%22'"
    assert "http://o.example/?a=&lt;&amp;&quot;&#x27;" in got.text


class TestShowUrls:
    async def shown(self, proxy: Proxy, name: str) -> list[dict[str, str]]:
        got = await proxy.get(f"/10.5555/{name}?action=showurls")
        assert (got.status, got["content-type"], got["location"]) == (200, "text/xml;charset=utf-8", None)
        root = ET.fromstring(got.body)
        assert root.tag == "locations" and {child.tag for child in root} <= {"location"}
        return [child.attrib for child in root]

    async def test_every_candidate_is_listed_with_its_address(self, proxy: Proxy) -> None:
        assert await self.shown(proxy, "url-weight") == [
            {"href": "http://l.example/", "weight": "0"},
            {"mode": "legacy", "weight": "1.0", "href": "http://url.example/"},
        ]
        assert (await self.shown(proxy, "template"))[0] == {
            "id": "1",
            "href_template": "http://t.example/?h={hdl}",
            "href": "http://t.example/?h=10.5555%2Ftemplate",
        }

    async def test_the_text_is_that_of_the_handle_system_s_proxy(self, proxy: Proxy) -> None:
        proxy.upstream.put("10.5555/plain", url="http://www.doi.org/hb.html")
        assert (await proxy.get("/10.5555/plain?action=ShowURLs")).text == (
            '<locations>\n<location mode="legacy" weight="1.0" href="http://www.doi.org/hb.html"/>\n</locations>\n'
        )

    async def test_included_locations_are_listed(self, proxy: Proxy) -> None:
        assert [one["id"] for one in await self.shown(proxy, "includes")] == ["own", "in"]

    async def test_what_cannot_be_read_is_told_in_a_comment(self, proxy: Proxy) -> None:
        assert await self.shown(proxy, "malformed") == [
            {"mode": "legacy", "weight": "1.0", "href": "http://url.example/"}
        ]
        assert await self.shown(proxy, "only-malformed") == []
        text = (await proxy.get("/10.5555/only-malformed?action=showurls")).text
        assert "<!-- not read: value 1000: " in text

    async def test_attributes_are_escaped(self, proxy: Proxy) -> None:
        (found,) = await self.shown(proxy, "odd")
        assert found["title"] == "<b> \n ä" and found["href"] == "http://o.example/?a=<&\"'"

    async def test_a_browser_gets_a_page(self, proxy: Proxy) -> None:
        target = "/10.5555/odd?action=showurls"
        got = await proxy.get(target, accept="text/html,*/*;q=0.8", accept_language="fr")
        assert (got.status, got["vary"]) == (200, "Accept, Accept-Language")
        assert "Emplacements d’un DOI" in got.text and "&lt;b&gt;" in got.text and "<b>" not in got.text
        program = await proxy.get(target, accept="text/xml,text/html;q=0.9")
        assert (program["content-type"], program["vary"]) == ("text/xml;charset=utf-8", "Accept")


def database(folder: Path, networks: dict[str, dict[str, Any]], version: int = 6) -> Path:
    writer = MMDBWriter(version, database_type="Test-Country", ipv4_compatible=version == 6)
    for network, record in networks.items():
        writer.insert_network(IPSet([network]), record)
    path = folder / "countries.mmdb"
    writer.to_db_file(str(path))
    return path


def country(code: str) -> dict[str, Any]:
    return {"country": {"iso_code": code, "names": {"en": code}}}


class TestCountry:
    async def test_a_database_tells_the_country_of_a_client(self, tmp_path: Path) -> None:
        path = database(tmp_path, {"192.0.2.0/24": country("GB")})
        async with Proxy(country_database=path) as proxy:
            proxy.upstream.put("10.5555/handbook", RECORDS["handbook"])
            assert (await proxy.get("/10.5555/handbook"))["location"] == "http://uk.example.com/"
            # The parameter goes before the database.
            assert (await proxy.get("/10.5555/handbook?country=us"))["location"] == "http://www1.example.com/"

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("192.0.2.7", "GB"),
            ("::ffff:192.0.2.7", "GB"),
            ("198.51.100.7", None),
            ("203.0.113.7", None),
            ("2001:db8::7", "DE"),
            ("2001:db8::7%eth0", "DE"),
            ("2001:db9::7", None),
            ("", None),
            ("unix:", None),
            ("192.0.2", None),
            ("x" * 1000, None),
        ],
    )
    def test_an_address_has_a_country_or_none(self, tmp_path: Path, address: str, expected: str | None) -> None:
        networks = {"192.0.2.0/24": country("GB"), "2001:db8::/32": country("DE")}
        networks |= {"198.51.100.0/24": {"continent": {"code": "EU"}}, "203.0.113.0/24": {"country": {"iso_code": 7}}}
        assert Countries(database(tmp_path, networks)).country(address) == expected

    def test_a_database_of_ipv4_knows_no_ipv6(self, tmp_path: Path) -> None:
        countries = Countries(database(tmp_path, {"192.0.2.0/24": country("GB")}, version=4)).country
        assert [countries("192.0.2.7"), countries("2001:db8::7")] == ["GB", None]

    @pytest.mark.parametrize("content", [None, b"", b"no database", b"\xab\xcd\xefMaxMind.com"])
    def test_what_is_no_database_is_told_at_the_start(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "countries.mmdb"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigurationError, match="--country-database"):
            Countries(path)

    def test_a_damaged_database_tells_no_country_and_does_no_harm(self, tmp_path: Path) -> None:
        path = database(tmp_path, {"192.0.2.0/24": country("GB")})
        data = bytearray(path.read_bytes())
        data[:64] = b"\xff" * 64
        path.write_bytes(data)
        assert Countries(path).country("192.0.2.7") in (None, "GB")


@pytest.mark.parametrize(
    ("path", "cache_control", "vary"),
    [
        ("address", "private, max-age=300", "Accept"),
        ("handbook", "private, max-age=300", "Accept"),
        ("language", "private, max-age=300", "Accept, Accept-Language"),
        ("http-role", "private, max-age=300", "Accept, User-Agent"),
        # The query is part of the URL, which a cache compares.
        ("handbook?country=gb", "public, max-age=300", "Accept"),
        ("status", "public, max-age=300", "Accept"),
        ("empty", "public, max-age=300", "Accept"),
    ],
)
async def test_what_was_chosen_for_a_client_is_not_shared(path: str, cache_control: str, vary: str) -> None:
    name = path.partition("?")[0]
    async with Proxy() as proxy:
        proxy.upstream.put(f"10.5555/{name}", RECORDS[name])
        for _ in range(2):
            got = await proxy.get(f"/10.5555/{path}")
            assert (got["cache-control"], got["vary"]) == (cache_control, vary)
            # Cache-Control counts before Expires, which ends with the record (RFC 9111, section 5.3).
            assert got.expires == proxy.clock() + 86400


async def test_a_page_in_place_of_a_location_for_some_clients_is_not_shared(proxy: Proxy) -> None:
    name = proxy.name()
    proxy.upstream.put(name, values=[loc(f'href="" addresses="{CLIENT}" weight="0"', 'href="http://p.example/"')])
    page = await proxy.get(f"/{name}")
    assert (page.status, page["cache-control"]) == (200, "private, max-age=300")
    assert page["vary"] == "Accept, Accept-Language"
    assert (await proxy.ask("GET", f"/{name}", client="203.0.113.9"))["location"] == "http://p.example/"


async def test_the_stub_of_redirection_headers_is_a_page(proxy: Proxy) -> None:
    stub = await proxy.get("/10.5555/handbook?redirectionHeaders")
    home = await proxy.get("/")
    assert stub["content-security-policy"] == home["content-security-policy"] is not None
