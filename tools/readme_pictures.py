"""Makes the pictures of README in docs/images/: `python -m tools.readme_pictures`."""

from __future__ import annotations

import asyncio
import math
import shutil
from pathlib import Path
from typing import Final

from playwright.async_api import Page, Route, ViewportSize, async_playwright

from doi_proxy.assembly.core import build_pages
from doi_proxy.assembly.settings import Settings
from doi_proxy.features.status.models import EventStatus, HistoryPoint, Status, UpstreamName
from doi_proxy.features.status.page import page_facts
from doi_proxy.features.status.summary import summarize
from doi_proxy.web.pages import Link
from tests.browser.site import UNKNOWN, open_site
from tests.browser.watched import CHROMIUM_FLAGS
from tests.cluster.processes import ROOT

FOLDER: Final = Path(ROOT, "docs/images")
#: Each picture by its name: the path, whether it shows the branding example, and the size in CSS pixels.
PICTURES: Final[dict[str, tuple[str, bool, ViewportSize]]] = {
    "home": ("/", False, {"width": 640, "height": 560}),
    "not-found": (f"/{UNKNOWN}", True, {"width": 640, "height": 560}),
    "status": ("/status?format=html", False, {"width": 640, "height": 680}),
}
#: Of the invented day: its points, and the seconds of each.
_POINTS: Final = 288
_STEP: Final = 300


def invented_day(end: int) -> list[HistoryPoint]:
    """The 24 hours before `end`: few requests at night, and an outage of the upstream at 16:00."""
    points = []
    begin = end - end % _STEP - _POINTS * _STEP
    for number in range(_POINTS):
        hour = (begin + number * _STEP) % 86_400 / 3_600
        tide, ripple = math.cos(2 * math.pi * (hour - 2) / 24), math.sin(number / 3) * math.sin(number / 7)
        requests = round(900 - 700 * tide + 60 * ripple)
        outage = 16 <= hour < 16.8
        hits = round(requests * (0.94 + 0.03 * math.sin(number / 9)))
        seconds = None if outage else 0.18 + 0.05 * math.sin(number / 13) + 0.02 * math.sin(number / 4)
        point = HistoryPoint(
            start=begin + number * _STEP,
            requests=requests,
            answers=requests,
            hits=hits,
            stale=80 + number % 5 if outage else 0,
            unverified=40 + number % 7 if outage else 0,
            questions=requests - hits,
            upstream_seconds=seconds,
            loop_delay=0.001,
            down=_STEP if outage else 0,
        )
        points.append(point)
    return points


async def show_invented_day(page: Page) -> None:
    """Put the invented day into the page `/status`. The numbers below the plot stay those of the proxy."""
    pages = build_pages(Settings())

    async def answer(route: Route) -> None:
        reply = await route.fetch(url=route.request.url.replace("html", "json"))
        status = Status.model_validate(await reply.json())
        end = status.started + status.uptime
        history = invented_day(end)
        down = [point.start for point in history if point.down]
        outage = EventStatus(kind="outage", at=down[0], until=down[-1] + _STEP, detail="doi.org", count=1)
        upstreams = [UpstreamName(name="doi.org", state="ok", down_since=None)]
        day = {"history": history, "upstream_seconds": 0.182, "events": [outage]}
        status = status.model_copy(update={**day, "started": end - 40 * 86_400, "uptime": 40 * 86_400})
        status = status.model_copy(update={"summary": summarize(status, upstreams, end)})
        await route.fulfill(
            body=pages.render("status", Link(""), "en", "status.title", **page_facts(status)),
            content_type="text/html;charset=utf-8",
        )

    await page.route("**/status?*", answer)


async def main() -> None:
    """Write every picture, in English and in the light scheme."""
    FOLDER.mkdir(exist_ok=True)
    async with open_site() as site, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        for name, (path, branded, size) in PICTURES.items():
            page = await browser.new_page(viewport=size, locale="en", color_scheme="light")
            await show_invented_day(page)
            await page.goto(site.at(path, branded=branded))
            await page.screenshot(path=FOLDER / f"{name}.png")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
