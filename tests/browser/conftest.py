"""A real browser before a real proxy. Needs Debian's package chromium; nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.browser.axe import axe_source
from tests.browser.site import Site, open_site
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


@pytest.fixture(scope="module")
async def regular(browser: Browser, site: Site) -> AsyncIterator[tuple[Visitor, Page]]:
    """A visitor who looks at one page after the other in one window, which is three times as fast."""
    one = Visitor(await browser.new_context(), site)
    await one.begin()
    yield one, await one.context.new_page()
    await one.context.close()


@pytest.fixture
async def page(regular: tuple[Visitor, Page]) -> AsyncIterator[Page]:
    """The window of the regular visitor."""
    one, window = regular
    yield window
    one.check()


@pytest.fixture(scope="module")
async def axe(regular: tuple[Visitor, Page]) -> None:
    """Put axe into what the regular visitor opens: from the browser, since a page's policy lets no script of it run."""
    await regular[0].context.add_init_script(axe_source())


@pytest.fixture
async def visit(visitor: NewVisitor) -> Visit:
    """Open a path of the proxy as an ordinary visitor."""
    return (await visitor()).visit
