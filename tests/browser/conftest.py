"""A real browser before a real proxy. Needs Debian's package chromium; nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.browser.axe import axe_source
from tests.browser.pages_seen import EVERY_PAGE
from tests.browser.site import BYPASSING, Site, open_site
from tests.browser.watched import CHROMIUM_FLAGS, Visit, Visitor

#: The command of Debian's package of the same name.
CHROMIUM: Final = "chromium"
#: Makes visitors; keywords are those of Playwright's `new_context`.
NewVisitor = Callable[..., Awaitable[Visitor]]


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Skip all of this folder at once, with one message, where there is no browser."""
    if shutil.which(CHROMIUM) is None:
        pytest.skip("the browser tests need a browser: apt-get install chromium", allow_module_level=True)


@pytest.fixture(scope="module")
async def site(anyio_backend: str) -> AsyncIterator[Site]:
    """A proxy with records."""
    async with open_site() as opened:
        yield opened


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    """One browser for the tests of a module; each has visitors, and with them cookies and cache, of its own."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=CHROMIUM_FLAGS)
        yield started
        await started.close()


@pytest.fixture
async def visitor(browser: Browser, site: Site) -> AsyncIterator[NewVisitor]:
    """Make visitors, and at the end find out whether anything went wrong that none of them could see."""
    visitors: list[Visitor] = []

    async def new(**how: Any) -> Visitor:
        visitors.append(Visitor(await browser.new_context(**how), site))
        await visitors[-1].begin()
        return visitors[-1]

    yield new
    for one in visitors:
        await one.context.close()
        one.check()


class Window:
    """One window, in which a regular visitor looks at one page after the other."""

    def __init__(self, visitor: Visitor, page: Page, site: Site) -> None:
        self.visitor, self.page, self._site = visitor, page, site
        self._shown: tuple[str, bool, str] | None = None
        self._status = 0

    async def show(self, key: str, *, branded: bool = False, language: str = "en") -> int:
        """Load a page of EVERY_PAGE, unless it is the one that is shown. Returns the status of the answer."""
        wanted = (key, branded, language)
        if self._shown != wanted:
            self._shown = None
            await self.page.set_extra_http_headers({"Accept-Language": language})
            if BYPASSING in EVERY_PAGE[key][0]:
                await self._site.spend_bypass(branded=branded)
            answer = await self.page.goto(self._site.at(EVERY_PAGE[key][0], branded=branded))
            assert answer is not None
            self._shown, self._status = wanted, answer.status
        return self._status


@pytest.fixture(scope="module")
async def regular(browser: Browser, site: Site) -> AsyncIterator[Window]:
    """The window of all tests of a module, which is three times as fast as a window for each."""
    one = Visitor(await browser.new_context(), site)
    await one.begin()
    yield Window(one, await one.context.new_page(), site)
    await one.context.close()


@pytest.fixture
async def window(regular: Window) -> AsyncIterator[Window]:
    """The window of the regular visitor, who at the end finds out whether anything went wrong unseen."""
    yield regular
    regular.visitor.check()


@pytest.fixture(scope="module")
async def axe(regular: Window) -> None:
    """Put axe into what the regular visitor opens: from the browser, since a page's policy lets no script of it run."""
    await regular.visitor.context.add_init_script(axe_source())


@pytest.fixture
async def visit(visitor: NewVisitor) -> Visit:
    """Open a path of the proxy as an ordinary visitor."""
    return (await visitor()).visit
