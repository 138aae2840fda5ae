"""The manual as a site: its search finds what readers, librarians, programmers and operators look for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from playwright.async_api import Browser

from tests.browser.watched import STEP_MS
from tests.cluster.processes import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.nightly]

#: What a person types, and the page with the answer.
QUESTIONS: Final = {
    # A reader, and a librarian
    "dead link": "docs/help",
    "check bibliography": "docs/references",
    "typing mistake": "docs/suggestions",
    "EZproxy": "docs/library-copy",
    "logo": "docs/branding",
    "tombstone": "docs/local-records",
    "what is logged": "docs/privacy",
    "privacy cookies": "docs/privacy",
    # A programmer
    "502": "docs/errors",
    "404": "docs/errors",
    "budget-spent": "docs/errors",
    "RequestTooLarge": "docs/errors",
    "Zotero": "docs/clients",
    "CORS": "docs/api",
    "Cache-Status": "docs/caching",
    "find names in a text Python": "docs/doi-names",
    # An operator
    "DOI_PROXY_STORE_URL": "docs/settings",
    "upstream_rate": "docs/settings",
    "nginx": "docs/operations",
    "air-gapped": "docs/offline",
    "backup": "docs/operations",
    "Sentinel": "docs/valkey",
    "how much memory": "docs/scale",
    "DoiProxyCouldNotVerify": "docs/runbook",
    "9457": "docs/errors",
}
#: Results that a reader sees without scrolling.
SEEN: Final = 5
CUT: Final = """() => [...document.querySelectorAll("pre")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.innerText.slice(0, 60))"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL and the folder of the site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("manual")
    build = [str(Path(sys.executable).with_name("sphinx-build")), "--quiet", "-c", "docs", "-b", "dirhtml"]
    subprocess.run([*build, "-d", str(folder / ".doctrees"), ".", str(folder / "site")], cwd=ROOT, check=True)
    site = folder / "site"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", site
        server.shutdown()
        thread.join()


async def test_the_search_finds_the_page_of_each_question(browser: Browser, manual: tuple[str, Path]) -> None:
    page = await browser.new_page()
    page.set_default_timeout(STEP_MS)
    missed = {}
    for question, expected in QUESTIONS.items():
        await page.goto(f"{manual[0]}/search/?q={question}")
        await page.wait_for_function("document.querySelector('.search-summary')?.innerText")
        links = "links => links.map(link => new URL(link.href).pathname.slice(1, -1))"
        found = (await page.locator("ul.search > li > a").evaluate_all(links))[:SEEN]
        if expected not in found:
            missed[question] = found
    await page.close()
    assert missed == {}


async def test_no_line_of_code_is_cut(browser: Browser, manual: tuple[str, Path]) -> None:
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(STEP_MS)
    cut = {}
    for file in sorted(manual[1].rglob("index.html")):
        await page.goto(f"{manual[0]}/{file.relative_to(manual[1])}")
        if found := await page.evaluate(CUT):
            cut[str(file.relative_to(manual[1]))] = found
    await page.close()
    assert cut == {}
