"""A visitor whose browser is watched: what it asks for, what it complains about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request

from tests.browser.site import Site

#: No sandbox, since tests run as root in containers; no services of the browser's maker; no other host at all.
CHROMIUM_FLAGS: Final = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
#: Milliseconds that the browser may take for one step.
STEP_MS: Final = 10_000
#: Put the violations of the Content-Security-Policy on the console, which a page of ours never writes to.
_REPORT_VIOLATIONS: Final = """
addEventListener("securitypolicyviolation", (e) => console.error("CSP", e.violatedDirective, e.blockedURI));
"""

Visit = Callable[[str], Awaitable[Page]]


class Visitor:
    """A browser context before the proxy; `check` says what went wrong unseen."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.context = context
        self._house = site
        self._asked: list[str] = []
        self._documents: set[str] = set()
        self._complaints: list[tuple[str, str]] = []

    async def begin(self) -> None:
        """Watch from here on."""
        self.context.set_default_timeout(STEP_MS)
        self.context.on("request", self._on_request)
        self.context.on("console", self._on_console)
        self.context.on("weberror", lambda error: self._complaints.append(("", str(error.error))))
        await self.context.add_init_script(_REPORT_VIOLATIONS)

    async def visit(self, path: str) -> Page:
        """Open a path of the proxy in a page of its own."""
        page = await self.context.new_page()
        await page.goto(self._house.at(path))
        return page

    def check(self) -> None:
        """Fail for a request to a host that is not ours and for anything on the console."""
        ours = {urlsplit(url).netloc for url in (self._house.base, self._house.branded, self._house.landing)}
        assert [url for url in self._asked if urlsplit(url).netloc not in ours] == []
        # Chromium writes every answer of 400 and above to the console: of a page itself that is no error.
        assert [text for url, text in self._complaints if url not in self._documents] == []

    def _on_request(self, request: Request) -> None:
        self._asked.append(request.url)
        if request.is_navigation_request():
            self._documents.add(request.url)

    def _on_console(self, message: ConsoleMessage) -> None:
        failed_to_load = message.text.startswith("Failed to load resource")
        self._complaints.append((message.location["url"] if failed_to_load else "", message.text))
