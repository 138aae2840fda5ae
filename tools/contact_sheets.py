"""Makes contact sheets, a dozen pages in each picture: `python -m tools.contact_sheets --help`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, Literal

from playwright.async_api import Browser, Page, async_playwright

from tests.browser.pages_seen import AFTER_THE_FORM, EVERY_PAGE
from tests.browser.site import BYPASSING, Site, open_site
from tests.browser.watched import CHROMIUM_FLAGS, STEP_MS
from tests.cluster.processes import ROOT

FOLDER: Final = Path(ROOT, "build/contact_sheets")
Scheme = Literal["light", "dark"]
#: Each face with its languages: the branding example offers two.
FACES: Final[dict[str, tuple[str, ...]]] = {"plain": ("en", "de", "fr", "es"), "branded": ("en", "de")}
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
#: Of the pictures on a sheet.
MAX_STRIPS: Final = 12


@dataclass(frozen=True, slots=True)
class Size:
    """A width of the window in CSS pixels, and how its pages are put on a sheet.

    A page is cut into strips of `strip_height`, of which the first `max_strips` are shown, in columns of `column`. If
    the last would be short, it belongs to the one before it.
    """

    width: int
    strip_height: int
    max_strips: int
    column: int


TELEPHONE: Final = Size(360, strip_height=1060, max_strips=3, column=255)
DESKTOP: Final = Size(1120, strip_height=820, max_strips=2, column=510)
SIZES: Final = {str(size.width): size for size in (TELEPHONE, DESKTOP)}
#: A strip below this height, in CSS pixels, is not worth a place.
SHORT: Final = 160
#: Of a whole sheet, in CSS pixels.
SHEET_WIDTH: Final = 1560


@dataclass(frozen=True, slots=True)
class Look:
    """One way to look at the pages."""

    face: str
    language: str
    size: Size
    scheme: Scheme

    def __str__(self) -> str:
        """The beginning of a file name."""
        return f"{self.face}-{self.language}-{self.size.width}-{self.scheme}"


@dataclass(frozen=True, slots=True)
class Strip:
    """A piece of a page, as a PNG."""

    title: str
    png: bytes


async def cut_page(page: Page, title: str, size: Size) -> list[Strip]:
    """The strips of the page that is open."""
    height = await page.evaluate("document.documentElement.scrollHeight")
    count = max(1, -(-(height - SHORT) // size.strip_height))
    strips = []
    for number in range(min(size.max_strips, count)):
        top = number * size.strip_height
        bottom = height if number + 1 == count else top + size.strip_height
        clip = {"x": 0, "y": top, "width": size.width, "height": bottom - top}
        png = await page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        strips.append(Strip(f"{title} {number + 1}" if number else title, png))
    return strips


async def cut_pages(browser: Browser, site: Site, look: Look, titles: Sequence[str]) -> list[Strip]:
    """The strips of all pages in one look."""
    window = {"width": look.size.width, "height": 780}
    context = await browser.new_context(viewport=window, locale=look.language, color_scheme=look.scheme)  # type: ignore[arg-type]
    context.set_default_timeout(STEP_MS)
    page = await context.new_page()
    strips = []
    is_branded = look.face == "branded"
    for title in titles:
        path, _ = EVERY_PAGE.get(title, ("/", 200))
        if BYPASSING in path:
            await site.spend_bypass(branded=is_branded)
        await page.goto(site.at(path, branded=is_branded))
        if title in AFTER_THE_FORM:
            await page.locator("[name=hdl]").fill(AFTER_THE_FORM[title])
            await page.locator("[name=hdl]").press("Enter")
            await page.wait_for_load_state()
        strips += await cut_page(page, title, look.size)
    await context.close()
    return strips


def sheet_html(strips: Sequence[Strip], column: int) -> str:
    """A page that shows the strips, each under its title."""
    figures = "".join(
        f'<figure>{one.title}<img src="data:image/png;base64,{b64encode(one.png).decode()}"></figure>' for one in strips
    )
    return f"""<!doctype html><style>
    body {{ margin: 5px; display: flex; flex-wrap: wrap; gap: 4px; align-items: start; background: #777; }}
    figure {{ margin: 0; width: {column}px; font: 11px sans-serif; color: #fff; }}
    img {{ display: block; width: 100%; }}</style>{figures}"""


async def write_sheets(browser: Browser, folder: Path, look: Look, strips: Sequence[Strip]) -> None:
    """Write the strips of a look to as many sheets as they need."""
    page = await browser.new_page(viewport={"width": SHEET_WIDTH, "height": 100})
    for number, first in enumerate(range(0, len(strips), MAX_STRIPS), 1):
        await page.set_content(sheet_html(strips[first : first + MAX_STRIPS], look.size.column), wait_until="load")
        await page.screenshot(path=folder / f"{look}-{number}.png", full_page=True)
    await page.close()


def looks(arguments: argparse.Namespace) -> Iterator[Look]:
    """The looks that the arguments select."""
    for face, size, scheme in product(arguments.face, arguments.width, arguments.scheme):
        for language in FACES[face]:
            if language in arguments.language:
                yield Look(face, language, SIZES[size], scheme)


async def main(arguments: argparse.Namespace) -> None:
    """Write the sheets of every look."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    titles = [title for title in (*EVERY_PAGE, *AFTER_THE_FORM) if arguments.page in title]
    async with open_site() as site, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        for look in looks(arguments):
            strips = await cut_pages(browser, site, look, titles)
            await write_sheets(browser, arguments.folder, look, strips)
            print(f"{look}: {len(strips)} strips of {len(titles)} pages")
        await browser.close()


def parse() -> argparse.Namespace:
    """The arguments. Without any, every page is shown in every look."""
    parser = argparse.ArgumentParser(prog="python -m tools.contact_sheets", description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--page", default="", help="part of the names of the pages, see pages_seen.py")
    for name, choices in (("face", FACES), ("language", FACES["plain"]), ("width", SIZES), ("scheme", SCHEMES)):
        parser.add_argument(f"--{name}", nargs="+", choices=list(choices), default=list(choices))
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
