"""Every page as it is seen: in both colour schemes, by axe, on narrow screens, in German, as pictures."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.async_api import Page, ViewportSize, expect

from tests.browser.axe import audit
from tests.browser.conftest import NewVisitor, Window
from tests.browser.pages_seen import EVERY_PAGE
from tests.browser.site import STALE, UNKNOWN, WORK
from tests.browser.watched import Visit
from tests.cluster.processes import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.nightly]

#: A folder, such as tests/browser/screenshots, to which every page is written as a PNG; none unless it is set.
SCREENSHOTS: Final = "SCREENSHOTS"
#: A small telephone, in CSS pixels: 1280 px at a zoom of 400 % (WCAG 2.1, 1.4.10 Reflow).
NARROW: Final[ViewportSize] = {"width": 320, "height": 640}
#: An ordinary telephone.
TELEPHONE: Final[ViewportSize] = {"width": 360, "height": 740}
ORDINARY: Final[ViewportSize] = {"width": 1120, "height": 780}
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
#: What axe looks at; colours do not depend on the width.
LOOKS: Final = [(SCHEMES[0], ORDINARY), (SCHEMES[1], TELEPHONE)]
#: Our own face and that of the branding example, in two languages each. The other languages have the same templates,
#: so one look at each is enough. The last is the one that the other tests of a page look at.
FACES: Final = [
    (False, "fr", LOOKS[:1]),
    (False, "es", LOOKS[1:]),
    *((branded, language, LOOKS) for branded in (True, False) for language in ("de", "en")),
]
#: The tests of one page come one after the other: loading it takes longer than looking at it.
of_every_page: Final = pytest.mark.parametrize("key", EVERY_PAGE, scope="module")
#: WCAG 2.1, 1.4.12 Text Spacing.
_WIDE_SPACING: Final = """
* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }
p { margin-bottom: 2em !important; }
"""
_OVERFLOWING: Final = """() => [...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".skip, .unseen, thead") && one.getBoundingClientRect().right > innerWidth + 0.5)
  .map((one) => one.outerHTML.slice(0, 80))"""


#: Open what is folded, and fold it again.
_UNFOLD: Final = """() => {
  window.unfolded = [...document.querySelectorAll("details:not([open])")];
  window.unfolded.forEach((one) => { one.open = true; });
}"""
_FOLD: Final = "window.unfolded.forEach((one) => { one.open = false; })"


async def picture(page: Page, *words: str) -> None:
    """Write the page as seen to a file, if screenshots are requested."""
    folder = os.environ.get(SCREENSHOTS)
    if folder:
        name = re.sub(r"\W+", "-", "-".join(words).lower())
        await page.screenshot(path=Path(ROOT, folder, f"{name}.png"), full_page=True)


@pytest.mark.usefixtures("axe")
@of_every_page
async def test_axe_finds_no_rule_broken_in_either_scheme_language_or_face(window: Window, key: str) -> None:
    page, violations, passes = window.page, [], 0
    for branded, language, looks in FACES:
        await window.show(key, branded=branded, language=language)
        await expect(page.locator("html")).to_have_attribute("lang", language)
        # What is folded is checked as well.
        await page.evaluate(_UNFOLD)
        for scheme, size in looks:
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size(size)
            found = await audit(page)
            violations += found[0]
            passes += found[1]
            face = "branded" if branded else "plain"
            await picture(page, key, face, language, scheme, str(size["width"]))
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.evaluate(_FOLD)
    print(f"axe: {key}: {len(violations)} violations, {passes} rules passed in {len(FACES)} faces")
    assert violations == []
    assert passes > 0


@of_every_page
async def test_a_page_follows_the_colour_scheme(window: Window, key: str) -> None:
    assert await window.show(key) == EVERY_PAGE[key][1]
    page, grounds = window.page, {}
    await page.set_viewport_size(ORDINARY)
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        grounds[scheme] = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        await picture(page, key, scheme)
    assert _brightness(grounds["light"]) > 192
    assert _brightness(grounds["dark"]) < 64


def _brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[0-9.]+", colour)[:3])) / 3


@of_every_page
async def test_a_page_fits_a_narrow_screen_also_with_wide_spacing(window: Window, key: str) -> None:
    await window.show(key)
    page = window.page
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(NARROW)
    await picture(page, key, "narrow")
    await assert_fits(page)
    # As a user's own style sheet: the policy of the page does not reach what the browser itself is told to do.
    await page.evaluate(
        "(css) => { const own = new CSSStyleSheet(); own.replaceSync(css); document.adoptedStyleSheets = [own]; }",
        _WIDE_SPACING,
    )
    await assert_fits(page)
    await page.evaluate("document.adoptedStyleSheets = []")


@of_every_page
async def test_a_page_fits_a_telephone_in_every_language(window: Window, key: str) -> None:
    page = window.page
    await page.set_viewport_size(TELEPHONE)
    for language in ("de", "fr", "es"):
        await window.show(key, language=language)
        await page.evaluate(_UNFOLD)
        await assert_fits(page)
        await page.evaluate(_FOLD)


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_axe_finds_no_rule_broken_in_checked_references(window: Window, scheme: Literal["light", "dark"]) -> None:
    await check_references(window)
    await window.page.emulate_media(color_scheme=scheme)
    violations, _ = await audit(window.page)
    assert violations == []
    await assert_fits(window.page)
    await window.show("home")


async def check_references(window: Window) -> None:
    """Show the outcome of a bibliography on a telephone: one DOI that is registered, and one that is not."""
    page = window.page
    await page.set_viewport_size(TELEPHONE)
    await window.show("home")
    await window.show("references")
    await page.locator("#text").fill(f"Author A (2021). doi:{WORK}.\nAuthor B (2022). doi:{UNKNOWN}")
    await page.locator("main button").click()
    await expect(page.locator("table")).to_have_count(2)


#: What a screen reader is told of a page: its landmarks, headings, and controls. The list is YAML: an item with a colon
#: in its text is quoted.
_PART: Final = re.compile(
    r'^ *- \'?(banner|main|contentinfo|heading|link|button|textbox|table|row)\b(?: "([^"]+)")?(.*)'
)


@pytest.mark.parametrize(
    "key",
    ["home", "values", "not found", "not found, suggestions", "could not verify", "help", "references"],
    scope="module",
)
async def test_a_screen_reader_meets_three_landmarks_one_title_and_only_named_controls(
    window: Window, key: str
) -> None:
    if key == "references":
        await check_references(window)
    else:
        await window.show(key)
    tree = await window.page.locator("body").aria_snapshot()
    parts = [found.groups() for found in map(_PART.match, tree.splitlines()) if found]
    kinds = [kind for kind, *_ in parts]
    assert [kind for kind in kinds if kind in ("banner", "main", "contentinfo")] == ["banner", "main", "contentinfo"]
    levels = [int(rest.split("level=")[1][0]) for kind, _, rest in parts if kind == "heading"]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [part for part in parts if part[0] in ("link", "button", "textbox") and not part[1]] == []
    # On a telephone the rows are blocks, and stay rows of a table.
    assert key != "references" or (kinds.count("table"), kinds.count("row")) == (2, 4)
    await window.show("home")


async def assert_fits(page: Page) -> None:
    assert await page.evaluate(_OVERFLOWING) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_table_keeps_its_rows_for_assistive_technology_on_a_narrow_screen(visitor: NewVisitor) -> None:
    page = await (await visitor(viewport=NARROW)).visit(f"/{WORK}?noredirect")
    await page.get_by_text("Values of the record: 1").click()
    row = page.get_by_role("table", name="Values of the record").get_by_role("row").nth(1)
    await expect(row.get_by_role("cell")).to_have_count(4)
    await expect(page.get_by_role("columnheader")).to_have_count(4)


async def test_a_stale_record_says_so_above_its_values(visit: Visit) -> None:
    page = await visit(f"/{STALE}?noredirect")
    note = page.get_by_role("region", name="This record may be out of date")
    await expect(note).to_be_visible()
    await page.get_by_text("Values of the record: 2").click()
    below = await page.get_by_role("table", name="Values of the record").bounding_box()
    above = await note.bounding_box()
    assert above is not None and below is not None and above["y"] + above["height"] <= below["y"]
