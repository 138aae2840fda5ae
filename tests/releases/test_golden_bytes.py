"""What this release writes, byte for byte. A change here without a new number costs every user the cache.

A new layout of an entry gets a number in app/features/stored_entry.py, a line in ROWS, and a new STORE_FORMAT. The
lines of earlier layouts stay: they are read for ever. A new release gets its files by make.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from app.assembly.stores import read_tables
from app.cache.entry import Entry
from app.features.bundles.bundle import BUNDLE_FORMAT, BundleEnd, BundleWriter, Refused, read_bundle
from app.features.registry.wire import pack_block, unpack_block, write_block_line
from app.features.sqlite.store import SqliteStore
from app.features.store_compression import decompress
from app.features.store_dictionary import read_dictionary_1
from app.features.store_format import STORE_FORMAT
from app.features.stored_entry import pack, unpack
from tests.cache.entries import entry, missing, verified
from tests.clock import Clock

#: The number of the format that `WRITTEN` and `TABLES` describe.
FORMAT: Final = 3
_PLAIN_ENDS: Final = (
    "0100000040fc54d941000000a05055d941000000e0335fd9415b7b22696e646578223a312c2274797065223a2255524c222c2264617461"
    "223a7b22666f726d6174223a22737472696e67222c2276616c7565223a22687474703a2f2f7777772e646f692e6f72672f68622e68746d6c"
    "227d2c2274746c223a38363430307d5d"
)
#: Rows of each layout that was released, and the entry of each.
ROWS: Final = (
    ("layout 1", entry(), "7b001a2c" + "01" + _PLAIN_ENDS),
    ("layout 1, not found", missing(), "9d77237201" + "6400000040fc54d9410000004ffc54d9410000004ffc54d9415b5d"),
    ("layout 2", entry(), "4c8377f7" + "02" + _PLAIN_ENDS),
    ("layout 2, not found", missing(), "670f9afc02" + "6400000040fc54d9410000004ffc54d9410000004ffc54d9415b5d"),
    ("layout 3", entry(), "e7342573030100000040fc54d9418051010080de2800a3740d2034b7810a33708d9e045ebd83b6d2331600"),
    (
        "layout 3, verified",
        verified(entry()),
        "164ae135830100000040fc54d9418051010080de2800a3740d2034b7810a33708d9e045ebd83b6d2331600",
    ),
    (
        "layout 4",
        entry(),
        "cdb4c8c5040100000040fc54d9418051010080de2800013c005600a3740d2034b7810a33708d9e045ebd83b6d2331600",
    ),
    (
        "layout 4, verified",
        verified(entry()),
        "90ccf90b840100000040fc54d9418051010080de2800013c005600a3740d2034b7810a33708d9e045ebd83b6d2331600",
    ),
)
_NEWEST: Final = ("layout 2, not found", "layout 3", "layout 4")
#: What this release writes. The compressed bytes can differ from one build of zlib to another.
WRITTEN: Final = {row[0]: row for row in ROWS if row[0].startswith(_NEWEST)}
_SHORT_HEAD_BYTES: Final = 22
#: In layout 4, the place of the target follows the head.
_PLACE_BYTES: Final = 5
_CHECK_BYTES: Final = 4
#: The columns of each table.
TABLES: Final = {
    "announcements": "number key",
    "change_log": "number kind key at",
    "change_log_origin": "id name at",
    "change_log_keys": "number total keys",
    "earlier_targets": "number key seen target replaced",
    "entries": "key stale_until last_used data",
    "hand": "id key",
    "imports": "import part note",
    "notes": "name data",
    "purges": "scope at",
    "registry_blocks": "first records data",
    "registry_total": "id records",
    "rewriting": "id place visited rewritten unreadable",
    "totals": "entries bytes",
}
BLOCK: Final = (
    "10.1000/1",
    "c9cee43301e3822e9ad437e43434b3b430b734b33030e074864ebc70c2ab23bdd48ac4dc025000c3751811a9c30800",
    [
        ("10.1000/1", 1_698_796_800, "Crossref", "https://a.example/1"),
        ("10.1000/2", 1_698_796_800, "Crossref", "https://a.example/2"),
    ],
)
LINE: Final = (
    b'{"bundle":1,"handle":"10.1000/182","responseCode":1,"values":[{"index":1,"type":"URL","data":{"format":"string",'
    b'"value":"http://www.doi.org/hb.html"},"ttl":86400}],"fetched":"2023-11-14T22:13:20Z",'
    b'"fresh_until":"2023-11-15T22:13:20Z","stale_until":"2023-12-15T22:13:20Z"}\n'
)


@pytest.mark.parametrize(("one", "row"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_every_layout_that_was_released_is_read(one: Entry, row: str) -> None:
    assert unpack(one.key, bytes.fromhex(row)) == one


def test_the_number_of_the_format_is_the_one_of_these_bytes() -> None:
    assert STORE_FORMAT == FORMAT


@pytest.mark.parametrize(("layout", "one", "row"), list(WRITTEN.values()), ids=list(WRITTEN))
def test_entries_are_written_in_the_layout_of_this_format(layout: str, one: Entry, row: str) -> None:
    has_place = layout.startswith("layout 4")
    written, known = pack(one, with_target=has_place), bytes.fromhex(row)
    if one.answer.values == b"[]":
        assert written == known
        return
    begins = _SHORT_HEAD_BYTES + (_PLACE_BYTES if has_place else 0)
    assert written[_CHECK_BYTES:begins] == known[_CHECK_BYTES:begins]
    assert decompress(written[begins:]) == decompress(known[begins:]) == one.answer.values


def test_a_released_dictionary_does_not_change() -> None:
    digest = "6bfcf5c81c0e76463aa0cb2bfb7eb90493f7e512a13178b13bdb39631fa32dc1"
    assert sha256(read_dictionary_1()).hexdigest() == digest


def test_registry_records_are_read_and_written_in_the_layout_of_this_format() -> None:
    first, data, rows = BLOCK
    assert unpack_block(first, bytes.fromhex(data)) == rows
    written = pack_block(first, list(map(write_block_line, rows)))
    assert written[_CHECK_BYTES] == bytes.fromhex(data)[_CHECK_BYTES]
    assert decompress(written[_CHECK_BYTES + 1 :]) == decompress(bytes.fromhex(data)[_CHECK_BYTES + 1 :])


@pytest.mark.anyio
async def test_a_file_has_the_tables_of_this_format(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    await SqliteStore(path, clock=Clock(), max_bytes=10**9, tables=read_tables()).close()
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            name: " ".join(column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
            for name in names
            if not name.startswith("sqlite_")
        }
    assert columns == TABLES


def test_the_first_line_of_a_bundle_says_its_format() -> None:
    file = BytesIO()
    writer = BundleWriter(file)
    writer.add(entry())
    writer.add(missing())
    lines = file.getvalue().splitlines(keepends=True)
    assert lines[0] == LINE
    assert lines[1].startswith(b'{"handle":')


def test_a_bundle_of_a_newer_release_is_refused_with_one_line() -> None:
    data = LINE.replace(b'"bundle":1', b'"bundle":%d' % (BUNDLE_FORMAT + 1)) + LINE
    refused, end = read_bundle(BytesIO(data))
    assert isinstance(refused, Refused) and isinstance(end, BundleEnd)
    assert "the bundle has format 2, but this doi-proxy reads formats up to 1; use a newer doi-proxy" in refused.reason
    assert (end.lines, end.refused) == (1, 1)
