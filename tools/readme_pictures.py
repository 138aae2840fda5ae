"""Makes the picture of README, docs/images/references.png: `python -m tools.readme_pictures`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from playwright.async_api import ViewportSize, async_playwright

from tests.browser.site import open_site
from tests.browser.watched import CHROMIUM_FLAGS
from tests.cluster.processes import ROOT

FILE: Final = Path(ROOT, "docs/images/references.png")
#: In CSS pixels.
SIZE: Final[ViewportSize] = {"width": 880, "height": 860}
REGISTERED: Final = ("10.1000/182", "10.5555/catalogue.2019.17", "10.5555/library-links")
#: References as they stand in a thesis. One DOI has an O for a zero, one is not registered.
TEXT: Final = """\
International DOI Foundation (2019). DOI Handbook. https://doi.org/10.1000/182
Example A (2019). How catalogues cite. Journal of Examples 4, 17-29. doi:10.5555/catalogue.2O19.17
Example B (2021). Links that last. Example Press. https://doi.org/10.5555/library-links.
Example C (2023). Half of a name. Journal of Examples 8, 1-9. https://doi.org/10.5555/half-of
Example D (1987). A book without a DOI. 3rd edition. Example Press.
"""


async def main() -> None:
    """Write the picture, in English and in the light scheme."""
    async with open_site() as site, async_playwright() as playwright:
        for name in REGISTERED:
            site.upstream.put(name, url="https://example.org/")
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        page = await browser.new_page(viewport=SIZE, locale="en", color_scheme="light")
        await page.goto(site.at("/references", branded=True))
        await page.locator("#text").fill(TEXT)
        await page.locator("main button").click()
        await page.wait_for_load_state()
        await page.screenshot(path=FILE)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
