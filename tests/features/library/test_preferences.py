"""`/preferences`: the choice of a service, its cookie, and forms that other sites send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doi_proxy.features.library.library import read_cookie, write_cookie
from tests.features.library.test_redirects import EZPROXY, HOME, RULES, TARGET
from tests.table import table
from tests.values import BROWSER
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    file = tmp_path_factory.mktemp("library") / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    async with Proxy(library_rules=file) as proxy:
        proxy.upstream.put("10.1234/1", url=TARGET)
        yield proxy


@pytest.mark.parametrize(
    ("cookie", "checked"),
    [
        ("", 'value="" checked'),
        ("Library-OpenURL=none", 'value="none" checked'),
        ('Library-OpenURL="https://findit.example.edu/resolve"', 'value="findit" checked'),
        ("Library-OpenURL=https://evil.example/", 'value="" checked'),
    ],
)
async def test_the_page_offers_the_services_and_shows_the_choice(proxy: Proxy, cookie: str, checked: str) -> None:
    got = await proxy.get("/preferences", cookie=cookie)
    assert got.status == 200
    assert checked in got.text and got.text.count("checked") == 1
    assert "EZproxy &lt;b&gt;" in got.text and "?nols=y" in got.text
    assert (got["cache-control"], got["vary"]) == ("no-store", "Accept, Accept-Language, Cookie")
    assert got["set-cookie"] is None


@pytest.mark.parametrize(("service", "location"), [("findit", "findit"), ("none", TARGET), ("", EZPROXY)])
async def test_a_choice_decides_the_next_redirect(proxy: Proxy, service: str, location: str) -> None:
    saved = await proxy.post("/preferences", f"service={service}")
    assert (saved.status, saved["location"]) == (303, "/preferences?saved")
    pair = (saved["set-cookie"] or "").partition(";")[0]
    got = await proxy.ask("GET", "/10.1234/1", client=HOME, accept=BROWSER, cookie=pair)
    assert location in (got["location"] or "")


async def test_the_cookie_holds_the_choice_alone(proxy: Proxy) -> None:
    saved = await proxy.post("/preferences", "service=findit", client=HOME)
    assert saved["set-cookie"] == (
        'Library-OpenURL="https://findit.example.edu/resolve"; Path=/; Max-Age=15552000; SameSite=Lax; HttpOnly'
    )
    removed = await proxy.post("/preferences", "service=")
    assert removed["set-cookie"] == 'Library-OpenURL=""; Path=/; Max-Age=0; SameSite=Lax; HttpOnly'


async def test_the_cookie_is_for_the_sub_path_and_for_https_alone(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    async with Proxy(library_rules=file, public_url="https://www.example.edu/doi/") as proxy:
        saved = await proxy.post("/doi/preferences", "service=none", origin="https://www.example.edu")
        assert saved["location"] == "/doi/preferences?saved"
        assert "; Path=/doi; " in (saved["set-cookie"] or "")
        assert (saved["set-cookie"] or "").endswith("; Secure")


@pytest.mark.parametrize("body", ["service=evil", "service=https://findit.example.edu/resolve", "", "service=FINDIT"])
async def test_a_service_that_is_not_configured_is_refused(proxy: Proxy, body: str) -> None:
    got = await proxy.post("/preferences", body)
    assert (got.status, got["set-cookie"]) == (400, None)


@table(
    ("headers", "status"),
    [
        ({}, 303),
        ({"sec_fetch_site": "same-origin"}, 303),
        ({"sec_fetch_site": "same-origin", "origin": "null"}, 303),
        ({"sec_fetch_site": "none"}, 303),
        ({"origin": "http://doi.example.org"}, 303),
        ({"origin": "https://doi.example.org"}, 303),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "http://doi.example.org"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://doi.example.org.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::1"}, 403),
    ],
)
async def test_a_form_of_another_site_is_refused(proxy: Proxy, headers: dict[str, str], status: int) -> None:
    got = await proxy.post("/preferences", "service=none", **headers)
    assert got.status == status
    assert (got["set-cookie"] is not None) == (status == 303)


async def test_a_body_that_is_too_large_is_refused(proxy: Proxy) -> None:
    got = await proxy.post("/preferences", "service=" + "x" * 100_000)
    assert (got.status, got["set-cookie"]) == (413, None)


async def test_pages_link_to_it_where_there_are_rules(proxy: Proxy) -> None:
    assert 'href="/preferences"' in (await proxy.get("/")).text


async def test_without_rules_the_page_says_so() -> None:
    async with Proxy() as proxy:
        got = await proxy.get("/preferences")
        assert got.status == 200 and "<form" not in got.text
        assert (await proxy.post("/preferences", "service=ezproxy")).status == 400


@pytest.mark.parametrize("value", ["https://a.example/x?a=b&c=%20", 'https://a.example/"\\;,', "none"])
def test_a_cookie_is_read_as_it_was_written(value: str) -> None:
    name, field = write_cookie(value, path="", secure=False)
    pair = field.decode().partition("; ")[0]
    assert name == b"set-cookie" and not set(pair.partition("=")[2][1:-1]) & set(' ",;\\')
    assert read_cookie(f"x=y; {pair}; z") == value
