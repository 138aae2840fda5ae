"""Library copy over HTTP: redirects through a service, who gets them, how to skip them, and what caches may keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.table import table
from tests.values import BROWSER
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

RULES: Final = """
exempt = ["arxiv.org"]
[[service]]
name = "ezproxy"
label = "EZproxy <b>"
kind = "ezproxy"
url = "https://ezproxy.example.edu/login"
[[service]]
name = "findit"
label = "FindIt"
kind = "openurl-0.1"
url = "https://findit.example.edu/resolve"
[[rule]]
service = "none"
networks = ["192.0.2.0/24"]
[[rule]]
service = "findit"
hosts = ["deutsch.example"]
languages = ["de"]
[[rule]]
service = "ezproxy"
hosts = ["publisher.com", "deutsch.example"]
"""
TARGET: Final = "https://www.publisher.com/article?a=b&c=d"
EZPROXY: Final = f"https://ezproxy.example.edu/login?url={TARGET}"
HOME: Final = "198.51.100.7"
CAMPUS: Final = "192.0.2.7"


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    file = tmp_path_factory.mktemp("library") / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    async with Proxy(library_rules=file) as proxy:
        proxy.upstream.put("10.1234/1", url=TARGET)
        proxy.upstream.put("10.1234/de", url="https://deutsch.example/")
        proxy.upstream.put("10.1234/open", url="https://arxiv.org/abs/1")
        proxy.upstream.put("10.1234/other", url="https://other.example/")
        proxy.upstream.put("10.1234/evil", url="https://www.publisher.com/a\r\nset-cookie: a=b")
        proxy.upstream.put("10.1234/loop", url="http://doi.example.org/10.1234/1")
        proxy.upstream.put("10.1234/proxied", url="https://www-publisher-com.ezproxy.example.edu/1")
        yield proxy


async def browse(proxy: Proxy, path: str, client: str = HOME, **headers: str) -> Reply:
    return await proxy.ask("GET", path, client=client, accept=BROWSER, **headers)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_browser_is_led_through_the_service(proxy: Proxy, method: str, times: int) -> None:
    for _ in range(times):
        got = await proxy.ask(method, "/10.1234/1", client=HOME, accept=BROWSER)
    assert (got.status, got["location"]) == (302, EZPROXY)
    assert got["cache-control"] == "private, no-store"
    assert got["vary"] == "Accept, Cookie"
    assert (got["cache-status"] or "").endswith("; detail=library-copy")
    assert (
        got["link"] == '<http://doi.example.org/10.1234/1?nols=y>; rel="alternate"; title="Without the library service"'
    )


async def test_a_local_record_exempts_its_name(tmp_path: Path) -> None:
    rules, records = tmp_path / "rules.toml", tmp_path / "records.toml"
    rules.write_text(RULES, encoding="utf-8")
    record = f'[[record]]\ndoi = "10.1234/%s"\ntarget = "{TARGET}"\n%s\n'
    records.write_text(record % ("with", "") + record % ("without", "library = false"), encoding="utf-8")
    async with Proxy(library_rules=rules, local_records=records) as proxy:
        for _ in range(2):
            found = [(await browse(proxy, f"/10.1234/{name}"))["location"] for name in ("with", "without")]
            assert found == [EZPROXY, TARGET]


async def test_the_body_shows_both_ways_as_text(proxy: Proxy) -> None:
    body = (await browse(proxy, "/10.1234/1")).text
    assert 'href="https://ezproxy.example.edu/login?url=https://www.publisher.com/article?a=b&amp;c=d"' in body
    assert "EZproxy &lt;b&gt;" in body
    assert 'href="http://doi.example.org/10.1234/1?nols=y"' in body


@pytest.mark.parametrize(
    ("client", "location"),
    [
        (HOME, EZPROXY),
        ("2001:db8::7", EZPROXY),
        ("not an address", EZPROXY),
        (CAMPUS, TARGET),
        ("::ffff:192.0.2.7", TARGET),
        ("::ffff:198.51.100.7", EZPROXY),
    ],
)
async def test_the_network_of_the_client_decides(proxy: Proxy, client: str, location: str) -> None:
    got = await browse(proxy, "/10.1234/1", client)
    assert got["location"] == location
    # The other client must not get this answer from a cache.
    assert got["cache-control"] == "private, no-store"


async def test_an_address_that_the_client_claims_does_not_count(proxy: Proxy) -> None:
    got = await browse(proxy, "/10.1234/1", HOME, x_forwarded_for=CAMPUS, forwarded=f"for={CAMPUS}", x_real_ip=CAMPUS)
    assert got["location"] == EZPROXY


async def test_the_preferred_language_decides(proxy: Proxy) -> None:
    german = await browse(proxy, "/10.1234/de", accept_language="en;q=0.5, de-CH")
    assert german["location"] == "https://findit.example.edu/resolve?id=doi:10.1234/de"
    english = await browse(proxy, "/10.1234/de", accept_language="en, de;q=0.5")
    assert (english["location"] or "").startswith("https://ezproxy.example.edu/")
    assert german["vary"] == english["vary"] == "Accept, Accept-Language, Cookie"


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "*/*",
        "application/json",
        "application/x-bibtex",
        "application/vnd.citationstyles.csl+json;q=1, text/html;q=0.5",
    ],
)
async def test_programs_get_the_target_of_the_record(proxy: Proxy, accept: str | None) -> None:
    headers = {} if accept is None else {"accept": accept}
    for _ in range(2):
        got = await proxy.ask("GET", "/10.1234/1", client=HOME, user_agent="Mozilla/5.0", **headers)
        assert (got.status, got["location"]) == (302, TARGET)
        assert (got["cache-control"] or "").startswith("public")
        assert "Accept" in (got["vary"] or "")


@pytest.mark.parametrize("path", ["/10.1234/open", "/10.1234/other", "/10.1234/loop", "/10.1234/proxied"])
async def test_what_no_rule_concerns_is_the_same_for_every_client(proxy: Proxy, path: str) -> None:
    seen = {
        (got["location"], got["cache-control"], got["vary"])
        for got in [await browse(proxy, path, client) for client in (HOME, CAMPUS)]
    }
    assert len(seen) == 1
    ((location, control, vary),) = seen
    assert "ezproxy.example.edu/login" not in (location or "")
    assert (control, vary) == ("public, max-age=300", "Accept")


@pytest.mark.parametrize("query", ["nols=y", "nosfx=y", "nols", "nols=n", "a=b&nols=y", "a=b;nosfx"])
async def test_a_parameter_leads_past_the_library(proxy: Proxy, query: str) -> None:
    got = await browse(proxy, f"/10.1234/1?{query}")
    assert got["location"] == TARGET
    assert got["cache-control"] == "public, max-age=300"
    assert (await browse(proxy, f"/openurl?id=doi:10.1234/1&{query}"))["location"] == TARGET


async def test_an_openurl_and_the_form_lead_through_the_service(proxy: Proxy) -> None:
    assert (await browse(proxy, "/openurl?id=doi:10.1234/1"))["location"] == EZPROXY
    got = await proxy.post("/", "hdl=10.1234/1", client=HOME, accept=BROWSER)
    assert got["location"] == EZPROXY


@table(
    ("cookie", "location"),
    [
        ("Library-OpenURL=none", TARGET),
        ('Library-OpenURL="none"', TARGET),
        (
            'a=b; Library-OpenURL="https://findit.example.edu/resolve"; c',
            "https://findit.example.edu/resolve?id=doi:10.1234/1",
        ),
        (
            "Library-OpenURL=https%3A%2F%2Ffindit.example.edu%2Fresolve",
            "https://findit.example.edu/resolve?id=doi:10.1234/1",
        ),
        ('Library-OpenURL="https://evil.example/resolve"', EZPROXY),
        ("Library-OpenURL=%0d%0aSet-Cookie: a=b", EZPROXY),
        ("Library-OpenURL=", EZPROXY),
        ("Library-OpenURL=findit", EZPROXY),
        ("Library-OpenURL=\xff%ff%", EZPROXY),
        ("library-openurl=none", EZPROXY),
        (";" * 20_000 + "Library-OpenURL=none", EZPROXY),
        ("=;==;" * 500, EZPROXY),
    ],
)
async def test_a_cookie_chooses_among_the_configured_services(proxy: Proxy, cookie: str, location: str) -> None:
    got = await browse(proxy, "/10.1234/1", cookie=cookie)
    assert got["location"] == location
    assert got["cache-control"] == "private, no-store"


async def test_a_cookie_does_not_touch_what_no_rule_concerns(proxy: Proxy) -> None:
    got = await browse(proxy, "/10.1234/open", cookie='Library-OpenURL="https://findit.example.edu/resolve"')
    assert got["location"] == "https://arxiv.org/abs/1"


async def test_a_target_with_a_line_break_adds_no_header(proxy: Proxy) -> None:
    got = await browse(proxy, "/10.1234/evil")
    assert got["location"] == "https://ezproxy.example.edu/login?url=https://www.publisher.com/a%0D%0Aset-cookie:%20a=b"
    assert got["set-cookie"] is None


@pytest.mark.parametrize("path", ["/api/handles/10.1234/1", "/10.1234/1?noredirect", "/10.1234/1?action=showurls"])
async def test_records_are_shown_as_they_are(proxy: Proxy, path: str) -> None:
    got = await browse(proxy, path)
    assert got.status == 200
    assert "ezproxy.example.edu" not in got.text


async def test_a_condition_about_the_agency_uses_the_record_of_the_prefix(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    rule = '[[rule]]\nservice = "ezproxy"\nagencies = ["Crossref"]\n'
    file.write_text(RULES.partition("[[rule]]")[0] + rule, encoding="utf-8")
    async with Proxy(library_rules=file) as proxy:
        service = {
            "index": 1,
            "type": "HS_SERV",
            "data": {"format": "string", "value": "10.SERV/CROSSREF"},
            "ttl": 86400,
        }
        proxy.upstream.put("10.1234", [service])
        proxy.upstream.put("10.SERV/CROSSREF", url="https://www.crossref.org/")
        proxy.upstream.put("10.1234/1", url=TARGET)
        proxy.upstream.put("10.5678/1", url=TARGET)
        for _ in range(2):
            assert (await browse(proxy, "/10.1234/1"))["location"] == EZPROXY
            assert (await browse(proxy, "/10.5678/1"))["location"] == TARGET


async def test_redirects_are_counted_by_what_became_of_them(proxy: Proxy) -> None:
    before = await counted(proxy)
    await browse(proxy, "/10.1234/1")
    await browse(proxy, "/10.1234/1", CAMPUS)
    await browse(proxy, "/10.1234/1?nols=y")
    await browse(proxy, "/10.1234/1", cookie="Library-OpenURL=none")
    await browse(proxy, "/10.1234/1", cookie="Library-OpenURL=https://findit.example.edu/resolve")
    await browse(proxy, "/10.1234/open")
    after = await counted(proxy)
    assert {outcome: after[outcome] - before[outcome] for outcome in after} == {
        "sent": 1.0, "left_alone": 1.0, "opted_out": 2.0, "chosen": 1.0
    }  # fmt: skip


async def counted(proxy: Proxy) -> dict[str, float]:
    lines = (await proxy.get("/metrics")).text.splitlines()
    named = [line for line in lines if line.startswith("doi_proxy_library_copies_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in named}


async def test_without_rules_a_browser_gets_the_target() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1234/1", url=TARGET)
        got = await browse(proxy, "/10.1234/1", cookie="Library-OpenURL=none")
        assert (got["location"], got["vary"]) == (TARGET, "Accept")
        assert "/preferences" not in (await proxy.get("/")).text
