"""The pages by keyboard alone (WCAG 2.1: 2.1.1, 2.4.1 Bypass Blocks, 2.4.3 Focus Order, 2.4.7 Focus Visible)."""

from __future__ import annotations

from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from tests.browser.site import EVERY_FORMAT, WORK, Site
from tests.browser.watched import Visit

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.nightly]

#: What has the focus: its words, how its focus shows, and whether it is on the screen.
_FOCUSED: Final = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  return {
    words: (one.innerText || one.id).trim(),
    outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    seen: box.width > 0 && box.left >= 0 && box.right <= innerWidth && box.top < innerHeight && box.bottom > 0,
  };
}"""
#: Stops on one way through a page; no page has more.
_MAX_STOPS: Final = 60


async def stops(page: Page) -> list[dict[str, Any]]:
    """Press Tab until the focus leaves the page."""
    found = []
    for _ in range(_MAX_STOPS):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement === document.body"):
            break
        found.append(await page.evaluate(_FOCUSED))
    return found


async def test_the_tab_key_goes_through_the_home_page_in_reading_order(visit: Visit, site: Site) -> None:
    found = await stops(await visit("/"))
    assert [one["words"] for one in found] == [
        "Skip to content",
        "DOI resolver",
        "Check my references",
        "Which agency?",
        "API documentation",
        "hdl",
        "Resolve",
        "Show the record instead",
        "Check my references",
        "10.1000/182",
        "10.1000/182?noredirect",
        "10.1000",
        "/api/handles/10.1000/182",
        "Privacy",
    ]


@pytest.mark.parametrize("path", ["/", f"/{WORK}/", f"/{EVERY_FORMAT}?noredirect", "/docs"])
async def test_the_focus_is_always_on_the_screen_and_always_shows(visit: Visit, path: str) -> None:
    found = await stops(await visit(path))
    assert len(found) > 3
    assert [one["words"] for one in found if one["outline"] < 2 or not one["seen"]] == []


async def test_the_skip_link_shows_when_it_has_the_focus_and_leads_into_the_content(visit: Visit) -> None:
    page = await visit("/")
    skip = page.get_by_role("link", name="Skip to content")
    await expect(skip).not_to_be_in_viewport()
    await page.keyboard.press("Tab")
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("DOI", exact=True)).to_be_focused()


async def test_a_doi_is_resolved_without_a_mouse(visit: Visit, site: Site) -> None:
    page = await visit("/")
    for _ in range(6):
        await page.keyboard.press("Tab")
    await page.keyboard.type(WORK)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Space")
    await expect(page.get_by_role("heading", level=1)).to_have_text("DOI record")


async def test_the_link_without_the_trailing_slash_is_followed_without_a_mouse(visit: Visit, site: Site) -> None:
    page = await visit(f"/{WORK}/")
    link = page.get_by_role("link", name=WORK, exact=True)
    for _ in range(_MAX_STOPS):
        await page.keyboard.press("Tab")
        if await link.evaluate("(one) => one === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(site.landing)
