"""The five pages that most readers see: by keyboard alone, at a zoom of 200 %, and as a screen reader gets them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pytest
from playwright.async_api import Page, ViewportSize, expect

from tests.browser.conftest import NewVisitor
from tests.browser.site import STALE, UNKNOWN, UNREACHABLE, WORK
from tests.table import table

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.nightly]

#: 1280 px at a zoom of 200 % (WCAG 2.1, 1.4.4 Resize Text).
ZOOMED: Final[ViewportSize] = {"width": 640, "height": 400}
#: Presses of Tab until the content has the focus, at most: the links of the header.
_MAX_STOPS: Final = 12


@dataclass(frozen=True, slots=True)
class MainPage:
    """A page: its path, its heading, the sentence that says what happened, and the role and name of its action."""

    path: str
    heading: str
    sentence: str
    role: str
    action: str


MAIN_PAGES: Final = (
    MainPage("/", "Resolve a DOI", "Enter a DOI to go straight to the work that it names.", "textbox", "DOI"),
    MainPage(f"/{WORK}?noredirect", "DOI record", "This DOI leads to", "link", "Go to the work"),
    MainPage(f"/{UNKNOWN}", "DOI Not Found", "This DOI is not registered in the DOI System.", "textbox", "DOI"),
    MainPage(
        f"/{UNREACHABLE}",
        "This DOI could not be verified",
        "We do not know whether it exists.",
        "link",
        "Try again",
    ),
    MainPage(
        f"/help/{STALE}",
        "Help with this DOI",
        "This DOI leads to",
        "link",
        "The Internet Archive's copies of the page",
    ),
)


@table("seen", MAIN_PAGES, ids=[seen.heading for seen in MAIN_PAGES])
async def test_a_screen_reader_gets_what_happened_then_the_action(visitor: NewVisitor, seen: MainPage) -> None:
    page = await (await visitor()).visit(seen.path)
    whole = await page.locator("body").aria_snapshot()
    assert re.findall(r'heading "(.+)" \[level=1\]', whole) == [seen.heading]
    content = await page.get_by_role("main").aria_snapshot()
    order = [content.index(words) for words in (seen.heading, seen.sentence, f'{seen.role} "{seen.action}"')]
    assert order == sorted(order)
    # A sign says to the eye what the sentence says.
    assert not re.search("[\N{BALLOT X}\N{CHECK MARK}]", content)


@table("seen", MAIN_PAGES, ids=[seen.heading for seen in MAIN_PAGES])
async def test_the_action_is_reached_by_keyboard_and_what_is_folded_opens(visitor: NewVisitor, seen: MainPage) -> None:
    page = await (await visitor()).visit(seen.path)
    await _press_tab_until(page, seen)
    for folded in await page.locator("main details").all():
        summary = folded.locator("summary").first
        await summary.focus()
        await page.keyboard.press("Enter")
        assert await folded.evaluate("(one) => one.open")


async def _press_tab_until(page: Page, seen: MainPage) -> None:
    action = page.get_by_role("main").get_by_role(seen.role, name=seen.action, exact=True).first  # type: ignore[arg-type]
    for _ in range(_MAX_STOPS):
        await page.keyboard.press("Tab")
        if await action.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError(f"{seen.action!r} is not among the first {_MAX_STOPS} stops")


@table("seen", MAIN_PAGES, ids=[seen.heading for seen in MAIN_PAGES])
async def test_at_200_percent_nothing_is_cut_off(visitor: NewVisitor, seen: MainPage) -> None:
    page = await (await visitor(viewport=ZOOMED, device_scale_factor=2)).visit(seen.path)
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await expect(page.get_by_role("main").get_by_role(seen.role, name=seen.action, exact=True).first).to_be_visible()  # type: ignore[arg-type]
