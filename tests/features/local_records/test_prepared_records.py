"""With local records, every way gives the same bytes, and a prepared answer dies with the record that it stands on."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import MethodType
from typing import Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.features.bundles.export import ExportChoice, export
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.warm import warm
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.store.kept_file import KeptFile
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.parts import command_context, usual_cache
from tests.server.test_prepared_answers import get
from tests.server.ways import Server, Ways, lane_uses

pytestmark = pytest.mark.anyio


RECORDS: Final = """
[[record]]
doi = "10.1000/target"
target = "https://here.example/"

[[record]]
doi = "10.1000/gone"
tombstone = { reason = "Withdrawn.", date = 2026-03-01 }

[[record]]
doi = "10.1000/local-alias"
alias = "10.1000/182"

[[record]]
prefix = "10.9999"
deny = "Not ours."
"""
NAMES: Final = ("target", "gone", "local-alias", "alias")
PATHS: Final = (
    *(f"/10.1000/{name}" for name in NAMES),
    *(f"/10.1000/{name}?noredirect" for name in NAMES),
    *(f"/api/handles/10.1000/{name}?type=URL" for name in NAMES),
    "/10.9999/denied",
)
#: Where 10.1000/182 leads by the cache, and by a local record.
HOT: Final = b"location: http://www.doi.org/hb.html"
HERE: Final = b"location: https://here.example/"
HEADERS: Final = ((), ("Accept: text/html", "Accept-Language: de"), ("Accept: application/json",))


def read_again(server: Server) -> None:
    """What a reload does, without its task."""
    owners = [apply.__self__ for part in server.lifecycle._parts if isinstance(apply := part.apply, MethodType)]
    (files,) = [owner for owner in owners if isinstance(owner, KeptFile) and owner._kind.setting == "local_records"]
    files.load(server.settings)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    file = tmp_path / "records.toml"
    file.write_text(RECORDS, encoding="utf-8")
    return file


async def test_every_way_gives_the_same_bytes(records: Path) -> None:
    requests = [get(path, *lines) for path, lines in product(PATHS, HEADERS)]
    ways = Ways(privacy=0, local_records=records, public_url="https://doi.example.org")
    await ways.compare([([one], 0.3) for one in (*requests, *reversed(requests))])


async def test_a_tombstone_has_a_prepared_page_until_it_says_something_else(records: Path) -> None:
    server = Server(Clock(), ServerProtocol, local_records=records)
    for _ in range(2):
        assert b"Withdrawn." in (await server.answers(get("/10.1000/gone")))[0]
    uses = lane_uses(server.application)
    assert b"Withdrawn." in (await server.answers(get("/10.1000/gone")))[0]
    assert uses == [("GET", 410)]
    records.write_text(RECORDS.replace("Withdrawn.", "Merged."), encoding="utf-8")
    read_again(server)
    assert b"Merged." in (await server.answers(get("/10.1000/gone")))[0]
    assert len(uses) == 1


async def test_a_clock_that_is_set_back_brings_a_local_record_back(records: Path) -> None:
    clock = Clock()
    ends = datetime.fromtimestamp(clock() + 60, UTC).isoformat()
    records.write_text(RECORDS.replace("10.1000/target", f'10.1000/182"\nuntil = {ends}\nnote = "'), encoding="utf-8")
    server = Server(clock, ServerProtocol, local_records=records)
    clock.advance(61)
    for _ in range(3):
        assert HOT in (await server.answers(get("/10.1000/182")))[0]
    clock.advance(-30)
    assert HERE in (await server.answers(get("/10.1000/182")))[0]


# --- Commands on the cache obey local records and never write or export them -----------------------------------------


RECORDS_CACHE_LOCAL_RECORDS = """
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
DENIED = [f"10.5073/{number}" for number in range(25)]


def settings_for(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    (tmp_path / "local.toml").write_text(RECORDS_CACHE_LOCAL_RECORDS)
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
        assert await warm(command_context(settings), ResolveChoice((str(tmp_path / "list.txt"),)), None) == 1
        output = capsys.readouterr()
        assert output.out == f"resolved 2, not_found 1, unverified {len(DENIED)}\n"
        assert "unverified: 10.5073/0: For tests." in output.err
        assert upstream.queries("10.5072/local") == upstream.queries("10.5072/gone") == upstream.queries(DENIED[0]) == 0
        assert "10.5074/A" in await keys(settings)
        assert {"10.5072/LOCAL", "10.5072/GONE"}.isdisjoint(await keys(settings))


async def test_a_local_record_is_not_exported_and_the_one_of_the_store_is(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        settings = settings_for(tmp_path, upstream)
        without = settings.model_copy(update={"local_records": None})
        (tmp_path / "one.txt").write_text("10.5072/local\n")
        path, bundle = str(tmp_path / "one.txt"), tmp_path / "bundle.ndjson"
        assert await warm(command_context(settings), ResolveChoice((path,)), None) == 0
        assert await export(command_context(settings), ExportChoice([path]), str(bundle)) == 1
        assert not bundle.exists()
        assert await warm(command_context(without), ResolveChoice((path,)), None) == 0
        assert await export(command_context(settings), ExportChoice([path]), str(bundle)) == 0
        assert "https://example.org/registered" in bundle.read_text()
        assert "https://example.org/local" not in bundle.read_text()
