"""A bundle that replaces what a store has: which names are deleted, and when none is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.commands.main import main
from doi_proxy.features.bundles.bundle import read_bundle
from doi_proxy.features.bundles.import_bundle import ImportBounds
from doi_proxy.features.bundles.replacement import BundleReplacement, ListedNames
from tests.cache.conftest import valkey_url
from tests.cache.entries import NOW, entry, missing
from tests.cache.entries import bundle as bundle_of
from tests.clock import Clock
from tests.parts import usual_cache

__all__ = ["valkey_url"]

BOUNDS = ImportBounds(60.0, 86_400.0, 86_400.0, sealed=False)
OLD = "https://old.example/"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.valkey)])
async def cache(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[TieredStore]:
    """An empty store of each kind."""
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    if request.param == "valkey":
        # No other test has a record in this database.
        url = request.getfixturevalue("valkey_url").replace("/0", "/7")
    opened = usual_cache(url, clock=clock)
    yield opened
    for one in await entries(opened):
        await opened.delete(one.key)
    await opened.close()


async def entries(cache: TieredStore) -> list[Entry]:
    await cache.flush()
    return sorted([found async for found in cache.scan()], key=lambda found: found.key)


async def replace_all(cache: TieredStore, clock: Clock, *records: Entry, ends: bool = True) -> str:
    with closing(ListedNames()) as names:
        work = BundleReplacement(cache, BOUNDS, clock, names)
        for item in read_bundle(BytesIO(bundle_of(*records))):
            await work.add(item)
        await work.finish()
        if ends:
            await work.delete_others()
    return work.report.describe_counts()


@pytest.mark.anyio
async def test_a_name_that_was_purged_in_the_source_is_gone(cache: TieredStore, clock: Clock) -> None:
    source = [entry(f"10.1000/{number}") for number in range(150)]
    assert await replace_all(cache, clock, *source) == "new 150, kept 0, expired 0, refused 0, deleted 0"
    assert await replace_all(cache, clock, *source[:20]) == "new 0, kept 20, expired 0, refused 0, deleted 130"
    assert [one.key for one in await entries(cache)] == sorted(one.key for one in source[:20])


@pytest.mark.anyio
async def test_an_older_record_replaces_a_newer_one(cache: TieredStore, clock: Clock) -> None:
    await cache.put(entry("10.1000/182"))
    await cache.put(entry("10.1000/183"))
    older = replace(entry("10.1000/182", url=OLD), fetched_at=NOW - 100)
    gone = missing("10.1000/183", fetched_at=NOW - 10)
    assert await replace_all(cache, clock, older, gone) == "new 2, kept 0, expired 0, refused 0, deleted 0"
    found = await entries(cache)
    assert [(one.key, one.is_negative) for one in found] == [("10.1000/182", False), ("10.1000/183", True)]
    assert OLD.encode() in found[0].answer.values


@pytest.mark.anyio
async def test_what_is_expired_in_the_bundle_is_gone(cache: TieredStore, clock: Clock) -> None:
    for name in ("10.1000/182", "10.1000/183"):
        await cache.put(entry(name))
    expired = replace(entry("10.1000/183"), stale_until=NOW - 1)
    counts = await replace_all(cache, clock, entry("10.1000/182"), expired)
    assert counts == "new 0, kept 1, expired 1, refused 0, deleted 1"
    assert [one.key for one in await entries(cache)] == ["10.1000/182"]


@pytest.mark.anyio
async def test_what_the_upstream_answered_since_the_import_began_stays(cache: TieredStore, clock: Clock) -> None:
    with closing(ListedNames()) as names:
        work = BundleReplacement(cache, BOUNDS, clock, names)
        clock.advance(5)
        for name in ("10.1000/182", "10.1000/183"):
            await cache.put(replace(entry(name), fetched_at=clock()))
        await work.add(entry("10.1000/182", url=OLD))
        await work.delete_others()
    assert [(one.key, one.fetched_at) for one in await entries(cache)] == [
        ("10.1000/182", clock()),
        ("10.1000/183", clock()),
    ]


@pytest.mark.anyio
async def test_an_import_that_is_stopped_has_deleted_nothing(cache: TieredStore, clock: Clock) -> None:
    await cache.put(entry("10.1000/182"))
    await replace_all(cache, clock, entry("10.1000/183"), ends=False)
    assert [one.key for one in await entries(cache)] == ["10.1000/182", "10.1000/183"]


# --- The command -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The URL of a store with two names."""
    url, bundle = f"sqlite:///{tmp_path}/store.sqlite3", tmp_path / "first.ndjson"
    bundle.write_bytes(bundle_of(future("10.1000/182"), future("10.1000/183")))
    assert main(["cache", "import", "--store-url", url, str(bundle)]) == 0
    capsys.readouterr()
    return url


def future(key: str) -> Entry:
    """A record that is usable by the clock of the machine."""
    return replace(entry(key), fresh_until=NOW + 10**9, stale_until=NOW + 10**9)


def exported(store: str, tmp_path: Path) -> list[str]:
    output = tmp_path / "exported.ndjson"
    main(["cache", "export", "--store-url", store, "--output", str(output)])
    return sorted(found.key for found in read_bundle(BytesIO(output.read_bytes())) if isinstance(found, Entry))


def test_the_command_says_how_many_names_it_deleted(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle.ndjson"
    bundle.write_bytes(bundle_of(future("10.1000/182")))
    assert main(["cache", "import", "--store-url", store, "--replace", str(bundle)]) == 0
    assert capsys.readouterr().out == "new 0, kept 1, expired 0, refused 0, deleted 1; checksum right\n"
    assert exported(store, tmp_path) == ["10.1000/182"]


@pytest.mark.parametrize(
    "content",
    [
        bundle_of(future("10.1000/182")).replace(b"sha256:", b"sha256:0"),
        bundle_of(future("10.1000/182")).splitlines(keepends=True)[0],
        bundle_of(future("10.1000/182")).replace(b'"handle":"10.1000/182"', b'"handle":""'),
        bundle_of(),
        bundle_of(replace(entry("10.1000/182"), fetched_at=0.0, fresh_until=0.0, stale_until=1.0)),
        b"",
    ],
    ids=["changed", "cut", "refused line", "empty bundle", "expired", "empty file"],
)
def test_a_bundle_that_is_not_whole_deletes_nothing(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    bundle = tmp_path / "bundle.ndjson"
    bundle.write_bytes(content)
    assert main(["cache", "import", "--store-url", store, "--format", "bundle", "--replace", str(bundle)]) == 1
    assert "no name was deleted: the bundle is not whole, or has no usable record\n" in capsys.readouterr().err
    assert exported(store, tmp_path) == ["10.1000/182", "10.1000/183"]


def test_a_bundle_without_a_checksum_can_be_accepted(store: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.ndjson"
    bundle.write_bytes(bundle_of(future("10.1000/182")).splitlines(keepends=True)[0])
    assert main(["cache", "import", "--store-url", store, "--replace", "--no-checksum", str(bundle)]) == 0
    assert exported(store, tmp_path) == ["10.1000/182"]


def test_it_is_not_for_files_of_agencies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("doi,url\n10.1000/182,https://example.org/\n")
    assert main(["cache", "import", "--store-url", f"sqlite:///{tmp_path}/store", "--replace", str(table)]) == 2
    assert "--replace is for bundles, and " in capsys.readouterr().err
