"""Makes the pictures of README in docs/images/: `python -m tests.browser.readme_pictures`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from playwright.async_api import ViewportSize, async_playwright

from tests.browser.proxy_process import ROOT
from tests.browser.site import UNKNOWN, open_site
from tests.browser.watched import CHROMIUM_FLAGS

FOLDER: Final = Path(ROOT, "docs/images")
#: Each picture by its name: the path, whether it shows the branding example, and the size in CSS pixels.
PICTURES: Final[dict[str, tuple[str, bool, ViewportSize]]] = {
    "home": ("/", False, {"width": 640, "height": 560}),
    "not-found": (f"/{UNKNOWN}", True, {"width": 640, "height": 560}),
}


async def main() -> None:
    """Write every picture, in English and in the light scheme."""
    FOLDER.mkdir(exist_ok=True)
    async with open_site() as site, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        for name, (path, branded, size) in PICTURES.items():
            page = await browser.new_page(viewport=size, locale="en", color_scheme="light")
            await page.goto(site.at(path, branded=branded))
            await page.screenshot(path=FOLDER / f"{name}.png")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
