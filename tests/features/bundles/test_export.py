"""Records become a bundle: which records, each once, and in a file that appears when it is complete."""

from __future__ import annotations

import gzip
import stat
from io import BytesIO
from pathlib import Path

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.bundles.bundle import BundleEnd, BundleWriter, OutputFile, read_bundle
from doi_proxy.features.bundles.export import RecordWriter, export_all, export_prefix
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import Origin, Resolution
from doi_proxy.system.progress import Bar
from doi_proxy.upstream.source import SealedSource
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock
from tests.parts import usual_cache, usual_resolver

pytestmark = pytest.mark.anyio


def resolution(one: Entry, origin: Origin = Origin.HIT) -> Resolution:
    return Resolution(HandleName(one.key), one, origin)


def keys(file: BytesIO) -> list[str]:
    """The keys of a bundle that has no checksum yet."""
    items = read_bundle(BytesIO(file.getvalue()))
    return [item.key for item in items if isinstance(item, Entry)]


async def fill(clock: Clock, *entries: Entry) -> TieredStore:
    cache = usual_cache("memory:", clock=clock)
    for one in entries:
        await cache.put(one)
    return cache


def test_records_are_written_once_and_when_they_are_to_be() -> None:
    file = BytesIO()
    records = RecordWriter(BundleWriter(file))
    for one in (entry("10.1/A"), missing("10.1/B"), entry("10.1/A")):
        records.record_resolution(resolution(one))
    assert file.getvalue() == b""
    records.write()
    records.record_resolution(resolution(entry("10.1/A")))
    records.record_resolution(resolution(entry("10.1/C")))
    records.write()
    records.write()
    assert keys(file) == ["10.1/A", "10.1/B", "10.1/C"]


def test_only_answers_of_the_upstream_are_written() -> None:
    file = BytesIO()
    records = RecordWriter(BundleWriter(file))
    for number, origin in enumerate(Origin):
        records.record_resolution(resolution(entry(f"10.1/{number}"), origin))
    records.write()
    left_out = (Origin.LOCAL, Origin.REGISTRY)
    assert keys(file) == [f"10.1/{number}" for number, origin in enumerate(Origin) if origin not in left_out]


async def test_every_record_of_the_cache_is_exported() -> None:
    expected = {f"10.1/{number}" for number in range(450)}
    cache = await fill(Clock(NOW), *map(entry, expected))
    file = BytesIO()
    await export_all(cache, BundleWriter(file), Bar())
    assert set(keys(file)) == expected
    await cache.close()


async def test_a_prefix_is_exported_with_the_records_that_its_redirects_need() -> None:
    clock = Clock(NOW)
    alias = b'[{"index":1,"type":"HS_ALIAS","data":{"format":"string","value":"10.2/END"},"ttl":86400}]'
    aliased = entry("10.1/ALIAS")
    aliased = Entry(aliased.key, type(aliased.answer)(aliased.answer.code, alias), NOW, NOW + 60, NOW + 120)
    cache = await fill(clock, aliased, missing("10.1/GONE"), entry("10.10/X"), entry("10.2/END"), entry("10.2/OTHER"))
    file = BytesIO()
    records = RecordWriter(BundleWriter(file))
    resolver = usual_resolver(cache, SealedSource(), clock, observer=records)
    destinations = Destinations(resolver, PrefixChain(resolver), resolves="doi")
    await export_prefix(destinations, HandleName("10.1"), records, Bar())
    assert sorted(keys(file)) == ["10.1/ALIAS", "10.1/GONE", "10.2/END"]
    await resolver.close()
    await cache.close()


def test_a_file_gets_its_name_when_it_is_complete_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "bundle.ndjson"
    path.write_bytes(b"yesterday's")
    with OutputFile(str(path)) as output:
        output.file.write(b"today's")
        assert path.read_bytes() == b"yesterday's"
        output.keep()
    assert path.read_bytes() == b"today's"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_complete_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bundle.ndjson"
    with pytest.raises(RuntimeError), OutputFile(str(path)) as output:
        output.file.write(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_compressed_bundle_has_no_time_in_it(tmp_path: Path) -> None:
    contents = []
    for name in ("a.gz", "b.gz"):
        with OutputFile(str(tmp_path / name)) as output:
            writer = BundleWriter(output.file)
            writer.add(entry())
            writer.finish()
            output.keep()
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    read = list(read_bundle(BytesIO(gzip.decompress(contents[0]))))
    assert read[0] == entry()
    assert isinstance(read[1], BundleEnd)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--output .*missing/bundle.ndjson: cannot be written"):
        OutputFile(str(tmp_path / "missing/bundle.ndjson"))
