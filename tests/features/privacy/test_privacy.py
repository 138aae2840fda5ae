"""The page on which readers see what this instance stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from doi_proxy.assembly.core import build_pages
from doi_proxy.assembly.settings import Settings
from doi_proxy.features.privacy.page import PrivacyFacts, read_privacy
from doi_proxy.web.pages import Link
from tests.web.proxy import Proxy
from tests.web.test_pages import Page

PAGES = build_pages(Settings())
PRIVACY = PrivacyFacts(2, "file", 30, ("doi.org",), 24, 64, has_countries=True)


@pytest.mark.parametrize(
    ("facts", "said", "not_said"),
    [
        (replace(PRIVACY, log_level=None), "writes no log of requests", "decide how long"),
        (replace(PRIVACY, log_level=0), "An address is stored together with a DOI", "writes no log"),
        (replace(PRIVACY, log_level=1), "not the address itself", "writes no log"),
        (replace(PRIVACY, log_level=2), "It does not log your address", "writes no log"),
        (replace(PRIVACY, log_level=3), "neither your address nor the DOI", "writes no log"),
        (replace(PRIVACY, store="memory"), "in memory until it ends", "in a file"),
        (replace(PRIVACY, store="server"), "in a database server", "in a file"),
        (replace(PRIVACY, hosts=()), "sends nothing to the registry", "sends the DOI to"),
        (replace(PRIVACY, has_countries=False), "first 24 bits", "country of your address"),
    ],
)
def test_the_privacy_page_says_what_the_settings_say(facts: PrivacyFacts, said: str, not_said: str) -> None:
    words = Page(
        PAGES.render("privacy", Link(""), "en", "privacy.title", privacy=facts, cookies="privacy.cookies_none").decode()
    ).words
    assert said in words and not_said not in words


def test_the_privacy_page_is_made_from_the_settings() -> None:
    given = Settings(
        access_log="json",
        privacy_level=1,
        store_url="redis://user:secret@store/0",
        upstream_url="https://user:secret@one.example,https://two.example",
        cache_grace=1.5 * 86_400,
    )
    assert read_privacy(given, given.upstream_url) == PrivacyFacts(
        1, "server", 2, ("one.example", "two.example"), 24, 64, has_countries=False
    )
    assert read_privacy(Settings(mode="sealed"), ()).hosts == ()
    # The path of a file and the addresses inside a NAT are not for readers.
    urls = ("hdl:?203.0.113.7=10.0.0.7", "hdl:/etc/site.json?203.0.113.7=10.0.0.7", "hdl://handle.example:2641")
    assert read_privacy(Settings(), urls).hosts == ("hdl:", "handle.example")


@pytest.mark.anyio
async def test_every_page_links_to_the_privacy_page() -> None:
    async with Proxy() as proxy:
        assert Page((await proxy.get("/", accept_language="en")).text).links["/privacy"] == "Privacy"
        assert Page((await proxy.get("/privacy", accept_language="en")).text).one("h1").text.startswith("Privacy")
