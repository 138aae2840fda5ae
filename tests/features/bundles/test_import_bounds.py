"""Imported records keep within the bounds of the proxy that imports them, and a seed says no more than it knows."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from doi_proxy.cache.entry import FOREVER
from doi_proxy.features.bundles.bundle import Refused, to_line
from doi_proxy.features.bundles.import_bundle import BundleImport, ImportBounds, bound_entry, import_bundle
from doi_proxy.system.progress import Bar
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock
from tests.parts import usual_cache
from tests.web.proxy import Proxy

BOUNDS = ImportBounds(negative_ttl=10, ttl_ceiling=1000, grace=5000, sealed=False)
SEALED = ImportBounds(negative_ttl=60, ttl_ceiling=86_400, grace=5000, sealed=True)


def test_a_sealed_proxy_keeps_records_for_ever_and_lets_not_found_expire() -> None:
    bounded = bound_entry(entry(), SEALED, NOW + 365 * 86_400)
    assert (bounded.fresh_until, bounded.stale_until) == (entry().fresh_until, FOREVER)
    assert not bound_entry(missing(), SEALED, NOW + 61).is_usable(NOW + 61)


def test_a_record_is_fresh_and_usable_no_longer_than_the_proxy_allows() -> None:
    long = bound_entry(entry(ttl=1e8, grace=1e8), BOUNDS, NOW)
    assert (long.fresh_until, long.stale_until) == (NOW + 1000, NOW + 6000)
    short = entry(ttl=10, grace=20)
    assert bound_entry(short, BOUNDS, NOW) == short
    negative = bound_entry(missing(), BOUNDS, NOW)
    assert (negative.fresh_until, negative.stale_until) == (NOW + 10, NOW + 10)


class Damaged(io.BytesIO):
    """A file that ends with an error."""

    def readline(self, size: int | None = -1) -> bytes:
        if line := super().readline(size):
            return line
        raise OSError("damaged")


@pytest.mark.anyio
@pytest.mark.parametrize(("lines", "number"), [([], 1), ([to_line(entry()), b"no record\n"], 3)])
async def test_the_place_where_a_file_cannot_be_read_on_is_reported(lines: list[bytes], number: int) -> None:
    clock = Clock()
    cache = usual_cache("memory:", clock=clock)
    report = await import_bundle(BundleImport(cache, BOUNDS, clock), "a.ndjson", Damaged(b"".join(lines)), Bar())
    assert report.refused[-1] == Refused(number, "the rest of the file cannot be read: damaged")
    await cache.close()


# --- The page of a seed record says no more about its age than the seed does -----------------------------------------


SEED = '{"handle": "10.5555/A", "values": [{"index": 1, "type": "URL", "data": "https://example.org/a"}]}\n'


@pytest.mark.anyio
async def test_a_record_without_times_was_never_confirmed_as_far_as_its_page_knows(tmp_path: Path) -> None:
    path = tmp_path / "seed.ndjson"
    path.write_text(SEED)
    async with Proxy(seed=path) as proxy:
        proxy.upstream.fault("10.5555/A", "reset")
        page = await proxy.get("/10.5555/A?noredirect", accept="text/html")
        rows = await proxy.ask(
            "POST", "/api/resolve?output=json", body='["10.5555/A"]', content_type="application/json"
        )
    assert page.status == 200 and "It could not be confirmed just now." in page.text
    assert "last confirmed" not in page.text
    assert page["age"] is None
    assert rows.json[0]["age"] is None and rows.json[0]["stale"]
