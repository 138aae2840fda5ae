"""Bundles and seeds of another hand: cut, of wrong types, with huge counts. Nothing raises, and the log is bounded."""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.assembly.core import open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.bundles.bundle import BundleEnd, BundleWriter, Checksum, read_bundle
from doi_proxy.features.bundles.import_bundle import MAX_NAMED_IN_SEED as MAX_NAMED
from doi_proxy.features.bundles.import_bundle import BundleImport, ImportBounds, Seed
from tests.cache.entries import NOW, bundle, entry, missing
from tests.clock import Clock

pytestmark = pytest.mark.anyio


_LINE: Final = b'{"handle":"10.1000/BAD","responseCode":1,"values":[],%b}\n'
HOSTILE: Final = {
    "gzip": b"\x1f\x8b\x08" + bytes(range(256)) * 40,
    "open brackets": b"[" * 1_000_000,
    "nested values": b'{"handle":"10.1/X","values":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "nested checksum": b'{"checksum":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "blank lines": b"\n" * 10_000,
    "no end": b'{"handle":"10.1000/BAD"',
    "bytes": b"\xff\xfe\x00\n" * 1_000,
    "numbers": b'{"handle":1}\n[]\nnull\n1e999\n{"handle":null}\n',
    "names": b'{"handle":"10.1000"}\n{"handle":"%00"}\n{"handle":"doi-proxy:1:purges"}\n{"handle":"\\u0000/x"}\n',
    "code": b'{"handle":"10.1000/BAD","responseCode":%d}\n' % 2**80,
    "code of text": b'{"handle":"10.1000/BAD","responseCode":"1"}\n',
    "late time": _LINE % b'"fetched":"99999-01-01T00:00:00Z"',
    "time of a number": _LINE % b'"fetched":1',
    "long time": _LINE % (b'"fetched":"' + b"9" * 100_000 + b'"'),
    "lines": b'{"checksum":"sha256:","lines":%d}\n' % 2**70,
    "negative lines": b'{"checksum":"sha256:","lines":-1}\n',
    "format": b'{"bundle":%d,"handle":"10.1000/BAD"}\n' % 2**70,
    "format of text": b'{"bundle":"1","handle":"10.1000/BAD"}\n',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
async def test_nothing_of_it_is_taken(content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, path = Clock(), tmp_path / "seed.ndjson"
    path.write_bytes(content)
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), None, clock=clock, ceiling=86_400.0)
    work = BundleImport(cache, ImportBounds(60.0, 86_400.0, 86_400.0, sealed=True), clock)
    *items, end = read_bundle(BytesIO(content))
    assert isinstance(end, BundleEnd)
    assert end.checksum is not Checksum.RIGHT
    for item in items:
        await work.add(item)
    with caplog.at_level(logging.WARNING):
        await Seed(path, cache, clock, 1_000.0, 60.0).start()
    # A line without a value is a name without an answer; it is no record.
    assert [found.key async for found in cache.scan() if found.answer.values] == []
    assert len(caplog.records) <= MAX_NAMED + 1


async def test_a_seed_is_stored_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doi_proxy.features.sqlite.writer.MAX_PENDING", 200)
    monkeypatch.setattr("doi_proxy.features.bundles.import_bundle._BATCH", 100)
    clock, path = Clock(), tmp_path / "seed.ndjson"
    with path.open("wb") as file:
        writer = BundleWriter(file)
        for number in range(300):
            writer.add(entry(f"10.1000/{number:05}"))
        writer.finish()
    settings = Settings(store_url=f"sqlite:///{tmp_path}/store.sqlite3", cache_memory_bytes=1_000_000)
    cache = open_cache(settings, clock)
    await Seed(path, cache, clock, 1_000.0, 60.0).start()
    await cache.flush()
    stats = await cache.stats()
    assert stats.store is not None
    assert (stats.store.entries, stats.healthy) == (300, True)
    await cache.close()


# --- How long the answers of a seed count ----------------------------------------------------------------------------


async def test_a_not_found_ends_with_its_own_ttl_and_only_that_of_a_prefix_is_kept_as_long_as_a_record(
    tmp_path: Path,
) -> None:
    clock, path = Clock(), tmp_path / "seed.ndjson"
    path.write_bytes(bundle(entry("10.1000/A"), missing("10.1000/B"), missing("10.1000")))
    memory = MemoryStore(1_000_000, clock=clock)
    await Seed(path, TieredStore(memory, None, clock=clock, ceiling=1e9), clock, 1_000.0, 30.0).start()
    served = {}
    for seconds in (29, 30, 999, 1_000):
        clock.advance(NOW + seconds - clock())
        served[seconds] = {found.key async for found in memory.scan() if found.is_usable(clock())}
        memory.drop_expired()
        assert memory.entries == (3 if seconds < 30 else 2)
    assert served == {29: {"10.1000/A", "10.1000/B", "10.1000"}, 30: {"10.1000/A"}, 999: {"10.1000/A"}, 1_000: set()}
