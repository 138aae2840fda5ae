"""With local records, every way gives the same bytes, and a prepared answer dies with the record that it stands on."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.features.local_records.files import FileBounds, LocalFiles
from doi_proxy.features.local_records.records import LocalRecord, LocalRecords
from doi_proxy.server.prepared_answers import PreparedAnswers
from doi_proxy.server.protocol import ServerProtocol
from tests.clock import Clock
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


def read_again(records: Path, server: Server) -> None:
    """What a reload does."""
    assert isinstance(server.application.prepared, PreparedAnswers)
    resolver = server.application.prepared._resolver

    def use(read: LocalRecords) -> None:
        resolver.local_records = read

    LocalFiles(records, FileBounds(), server.clock, use).load()


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
    read_again(records, server)
    assert b"Merged." in (await server.answers(get("/10.1000/gone")))[0]
    assert len(uses) == 1


async def test_a_hot_name_without_a_local_record_is_not_looked_up_among_them(records: Path) -> None:
    server = Server(Clock(), ServerProtocol, local_records=records)
    for _ in range(3):
        assert HOT in (await server.answers(get("/10.1000/182")))[0]
    assert isinstance(server.application.prepared, PreparedAnswers)
    known, asked = server.application.prepared._resolver.local_records, list[str]()
    assert isinstance(known, LocalRecords)

    def find(key: str, _: float) -> LocalRecord | None:
        asked.append(key)
        return None

    known._find = find  # type: ignore[assignment]
    assert HOT in (await server.answers(get("/10.1000/182")))[0]
    assert asked == []
    records.write_text(RECORDS.replace("10.1000/target", "10.1000/182"), encoding="utf-8")
    read_again(records, server)
    assert HERE in (await server.answers(get("/10.1000/182")))[0]


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
