"""Every page as it is seen: in both colour schemes, by axe, on narrow screens, in German, as pictures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.browser.axe import audit
from tests.browser.conftest import NewVisitor, Window
from tests.browser.pages_seen import EVERY_PAGE
from tests.browser.site import EVERY_FORMAT, STALE, UNKNOWN, UNREACHABLE, WORK, Site
from tests.browser.watched import STEP_MS, Visit
from tests.cluster.processes import ROOT
from tests.table import table

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


# --- The pages by keyboard alone (WCAG 2.1: 2.1.1, 2.4.1 Bypass Blocks, 2.4.3 Focus Order, 2.4.7 Focus Visible) ------


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


# --- The five pages that most readers see: by keyboard alone, at a zoom of 200 %, and as a screen reader gets the ----


#: 1280 px at a zoom of 200 % (WCAG 2.1, 1.4.4 Resize Text).
ZOOMED: Final[ViewportSize] = {"width": 640, "height": 400}
#: Presses of Tab until the content has the focus, at most: the links of the header.
_MAX_STOPS_BROWSER_MAIN_PAGES: Final = 12


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
    for _ in range(_MAX_STOPS_BROWSER_MAIN_PAGES):
        await page.keyboard.press("Tab")
        if await action.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError(f"{seen.action!r} is not among the first {_MAX_STOPS_BROWSER_MAIN_PAGES} stops")


@table("seen", MAIN_PAGES, ids=[seen.heading for seen in MAIN_PAGES])
async def test_at_200_percent_nothing_is_cut_off(visitor: NewVisitor, seen: MainPage) -> None:
    page = await (await visitor(viewport=ZOOMED, device_scale_factor=2)).visit(seen.path)
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await expect(page.get_by_role("main").get_by_role(seen.role, name=seen.action, exact=True).first).to_be_visible()  # type: ignore[arg-type]


# --- The manual as a site: its search finds what readers, librarians, programmers and operators look for -------------


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
