"""Commands on the cache obey local records and never write or export them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.features.bundles.export import ExportChoice, export
from doi_proxy.features.bundles.visit import MAX_FAILURES, warm
from tests.fake_upstream import FakeUpstream
from tests.parts import command_context, usual_cache

pytestmark = pytest.mark.anyio

RECORDS = """
[[record]]
doi = "10.5072/local"
target = "https://example.org/local"

[[record]]
doi = "10.5072/gone"
tombstone = { reason = "Withdrawn.", date = 2026-03-01 }

[[record]]
prefix = "10.5073"
deny = "For tests."
"""
DENIED = [f"10.5073/{number}" for number in range(MAX_FAILURES + 5)]


def settings_for(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    (tmp_path / "local.toml").write_text(RECORDS)
    (tmp_path / "list.txt").write_text("\n".join(["10.5072/local", "10.5072/gone", *DENIED, "10.5074/a"]))
    upstream.put("10.5072/local", url="https://example.org/registered")
    upstream.put("10.5074/a", url="https://example.org/a")
    return Settings(
        upstream_url=upstream.url,
        upstream_contact="mailto:library@example.org",
        store_url=f"sqlite:///{tmp_path}/store.sqlite3",
        local_records=tmp_path / "local.toml",
    )


async def keys(settings: Settings) -> set[str]:
    cache = usual_cache(settings.store_url, clock=time.time)
    found = {entry.key async for entry in cache.scan()}
    await cache.close()
    return found


async def test_warm_asks_for_no_local_name_and_goes_on_after_denied_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeUpstream() as upstream:
        settings = settings_for(tmp_path, upstream)
        assert await warm(command_context(settings), [str(tmp_path / "list.txt")], column=None, limit=None) == 1
        verdicts = f"resolved 1, not_found 1, values_not_found 0, invalid 0, could_not_verify {len(DENIED)}, stale 0"
        output = capsys.readouterr()
        assert output.out == f"{verdicts}, skipped 1\n"
        assert "could_not_verify: 10.5073/0: For tests." in output.err
        assert upstream.queries("10.5072/local") == upstream.queries("10.5072/gone") == upstream.queries(DENIED[0]) == 0
        assert "10.5074/A" in await keys(settings)
        assert {"10.5072/LOCAL", "10.5072/GONE"}.isdisjoint(await keys(settings))


async def test_a_local_record_is_not_exported_and_the_one_of_the_store_is(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        settings = settings_for(tmp_path, upstream)
        without = settings.model_copy(update={"local_records": None})
        (tmp_path / "one.txt").write_text("10.5072/local\n")
        path, bundle = str(tmp_path / "one.txt"), tmp_path / "bundle.ndjson"
        choice = ExportChoice([path], queries_upstream=True)
        assert await export(command_context(settings), choice, str(bundle)) == 1
        assert not bundle.exists()
        assert await warm(command_context(without), [path], column=None, limit=None) == 0
        assert await export(command_context(settings), ExportChoice([path]), str(bundle)) == 0
        assert "https://example.org/registered" in bundle.read_text()
        assert "https://example.org/local" not in bundle.read_text()
