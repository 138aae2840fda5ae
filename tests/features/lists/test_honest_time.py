"""How long a list takes is said before it begins."""

from __future__ import annotations

import json

import pytest

from app.assembly.settings import Settings
from app.features.check import Inspection
from app.features.lists.honest_time import Pace, find_unreachable_concurrency, read_pace
from tests.table import table
from tests.web.proxy import running


class _Set(Inspection):
    def is_set(self, name: str) -> bool:
        return True


@table(
    ("names", "latency", "seconds"),
    [(200, 0.0, 18), (10_000, 0.02, 998), (25, 0.0, 0), (1, 0.0, 0), (8_000, 2.0, 2_000)],
)
def test_an_estimate_is_the_slower_of_budget_and_places(names: int, latency: float, seconds: int) -> None:
    assert read_pace(Settings()) == Pace(10.0, 25.0, 8)
    assert read_pace(Settings()).estimate(names, latency) == seconds


@table(("wanted", "most", "workers", "places"), [(64, 16, 1, 8), (8, 16, 2, 4), (9, 2, 4, 1)])
def test_lookups_that_never_get_a_place_are_a_warning(wanted: int, most: int, workers: int, places: int) -> None:
    settings = Settings(
        batch_concurrency=wanted, upstream_max_concurrency=most, workers=workers, store_url="sqlite:///x"
    )
    [found] = find_unreachable_concurrency(_Set(settings))
    assert found.severity == "warning" and f"set batch_concurrency to {places}" in found.remedy


def test_what_can_be_reached_is_no_warning() -> None:
    assert list(find_unreachable_concurrency(_Set(Settings(batch_concurrency=8)))) == []
    assert list(find_unreachable_concurrency(Inspection(Settings(upstream_max_concurrency=2)))) == []


@pytest.mark.anyio
@table(
    ("content_type", "body", "names"),
    [
        ("text/plain", "10.5555/a\n" * 30, 30),
        ("application/json", json.dumps(["10.5555/a"] * 30), 29),
        ("text/x-bibtex", "@misc{a, doi={10.5555/a}}\n" * 3, 3),
    ],
)
async def test_the_head_has_an_estimate(content_type: str, body: str, names: int) -> None:
    async with running() as proxy:
        got = await proxy.post("/api/resolve", body, content_type=content_type)
        assert (got["doi-proxy-estimate"] or "").startswith(f"names={names}, seconds=")
        cached = await proxy.post("/api/resolve?only=cached", body, content_type=content_type)
        assert cached["doi-proxy-estimate"] is None
