"""The format of a store, byte for byte, and what a program does with a store of another format.

A change of these bytes needs a new number and a reader in READERS (docs/releases.md). The lines of a released format
stay.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest
from hypothesis import given

from doi_proxy.assembly.core import describe_left_file, open_cache
from doi_proxy.assembly.features import find_records
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.features.bundles.bundle import BUNDLE_FORMAT, BundleEnd, BundleWriter, Refused, read_bundle
from doi_proxy.features.registry.sqlite_blocks import pack_block, unpack_block, write_block_line
from doi_proxy.features.sqlite.file import prepare
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.features.valkey.store import KEY_PREFIX
from doi_proxy.store.file import choose_file, read_format
from doi_proxy.store.stored_entry import (
    MARK_OFFSET,
    READERS,
    STORE_FORMAT,
    Reader,
    decompress,
    pack,
    read_dictionary_1,
    unpack,
)
from tests.cache.entries import entry, missing, verified
from tests.cache.test_cache_wire import entries
from tests.clock import Clock

pytestmark = pytest.mark.anyio

_PLACE: Final = "013c005600"
_TIMES: Final = "0100000040fc54d9418051010080de2800"
_VALUES: Final = "a3740d2034b7810a33708d9e045ebd83b6d2331600"
#: Entries of format 1, without their checksums. The compressed bytes can differ from one build of zlib to another.
ROWS: Final = (
    ("record", entry(), f"21{_TIMES}{_PLACE}{_VALUES}"),
    ("verified", verified(entry()), f"a1{_TIMES}{_PLACE}{_VALUES}"),
    ("not found", missing(), "116400000040fc54d9410000004ffc54d9410000004ffc54d9415b5d"),
)
#: The columns of each table.
TABLES: Final = {
    "announcements": "number key",
    "entries": "key stale_until last_used data earlier payload room",
    "hand": "id key",
    "notes": "name data",
    "purges": "scope at",
    "registry_blocks": "first records data",
    "registry_total": "id records",
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


def seal(key: str, body: bytes) -> bytes:
    """The bytes of an entry with the checksum of a body."""
    return crc32(body, crc32(key.encode(errors="surrogatepass"))).to_bytes(4, "little") + body


@pytest.mark.parametrize(("one", "body"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_entries_of_format_1_are_read_and_written(one: Entry, body: str) -> None:
    known = seal(one.key, bytes.fromhex(body))
    assert unpack(one.key, known) == one
    written = pack(one)
    assert written[MARK_OFFSET:22] == known[MARK_OFFSET:22]
    assert unpack(one.key, written) == one


def test_an_entry_with_signed_messages_after_it_is_a_miss() -> None:
    # Versions before 1.0.0 wrote both, in each layout.
    messages = f"{b'a signed message'.hex()}10000000"
    for one, body in ((entry(), f"c1{_TIMES}{_VALUES}"), (missing(), f"d1{ROWS[-1][2][2:]}")):
        assert unpack(one.key, seal(one.key, bytes.fromhex(body + messages))) is None


def test_the_dictionary_of_format_1_does_not_change() -> None:
    digest = "6bfcf5c81c0e76463aa0cb2bfb7eb90493f7e512a13178b13bdb39631fa32dc1"
    assert sha256(read_dictionary_1()).hexdigest() == digest


def test_registry_records_of_format_1_are_read_and_written() -> None:
    first, data, rows = BLOCK
    assert unpack_block(first, bytes.fromhex(data)) == rows
    written = pack_block(first, list(map(write_block_line, rows)))
    assert written[4] == bytes.fromhex(data)[4]
    assert decompress(written[5:]) == decompress(bytes.fromhex(data)[5:])


async def test_a_file_has_the_number_and_the_tables_of_format_1(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    await SqliteStore(path, clock=Clock(), max_bytes=10**9, records=find_records()).close()
    with closing(sqlite3.connect(path)) as connection:
        assert (read_format(connection), STORE_FORMAT) == (1, 1)
        assert connection.execute("PRAGMA application_id").fetchone() == (int.from_bytes(b"DOIr", "big"),)
        query = "SELECT name FROM pragma_table_xinfo(?)"
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            name: " ".join(column for (column,) in connection.execute(query, (name,)))
            for name in names
            if not name.startswith("sqlite_")
        }
    assert columns == TABLES


def test_the_keys_on_a_server_begin_with_the_number() -> None:
    assert KEY_PREFIX == "doi-proxy:1:"


# --- The next number ------------------------------------------------------------------------------------------------


def read_2(key: str, data: bytes) -> Entry:
    """Reads an entry of format 2, which has two bytes more at its end."""
    one = unpack(key, seal(key, bytes((data[MARK_OFFSET] - 1,)) + data[5:-2]))
    assert one is not None
    return one


def pack_2(one: Entry) -> bytes:
    """Writes what read_2 reads."""
    data = pack(one)
    return seal(one.key, bytes((data[MARK_OFFSET] + 1,)) + data[5:] + b"22")


#: The readers of the program that has format 2.
NEXT: Final[Mapping[int, Reader]] = {**READERS, 2: read_2}


@given(entries)
def test_the_next_format_reads_an_entry_of_this_one_and_this_one_misses_an_entry_of_the_next(one: Entry) -> None:
    assert unpack(one.key, pack(one), NEXT) == unpack(one.key, pack(one))
    assert unpack(one.key, pack_2(one), NEXT) == unpack(one.key, pack(one))
    assert unpack(one.key, pack_2(one)) is None


def test_the_next_format_takes_over_a_file_and_this_one_then_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    prepare(path, 0.0)
    with closing(sqlite3.connect(path)) as connection, connection:
        insert = "INSERT INTO entries (key, stale_until, last_used, data) VALUES (?, 0, 0, ?)"
        connection.execute(insert, (entry().key, pack(entry())))
    assert choose_file(path) == choose_file(path, NEXT) == path
    prepare(path, 0.0, readers=NEXT)
    with closing(sqlite3.connect(path)) as connection:
        assert read_format(connection) == 2
        ((key, data),) = connection.execute("SELECT key, data FROM entries")
    assert unpack(key, data, NEXT) == entry()
    assert choose_file(path, NEXT) == path
    assert choose_file(path) == tmp_path / "store.sqlite3.1"


def make_other(path: Path, kind: str) -> None:
    """A file that is not a store of this format."""
    if kind != "database":
        prepare(path, 0.0)
    with closing(sqlite3.connect(path)) as connection:
        if kind == "database":
            connection.execute("CREATE TABLE loans (book TEXT)")
        else:
            connection.execute(f"PRAGMA {kind}")


OTHERS: Final = ("user_version = 99", "user_version = 0", "application_id = 0x444F4971", "database")


@pytest.mark.parametrize("kind", OTHERS)
async def test_a_file_of_another_format_is_not_changed_and_the_store_is_beside_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    make_other(path, kind)
    before = path.read_bytes()
    settings = Settings(store_url=f"sqlite:///{path}")
    for _ in range(2):
        cache = open_cache(settings, Clock())
        await cache.put(entry())
        await cache.flush()
        await cache.close()
    assert path.read_bytes() == before
    assert describe_left_file(settings) == (
        f"{path} is a store of another format than 1, or a database of another program; it is not changed, and the"
        f" store is {path}.1"
    )
    beside = open_cache(Settings(store_url=f"sqlite:///{path}.1"), Clock())
    assert await beside.get(entry().key, newest=True) == entry()
    await beside.close()


def test_a_store_of_this_format_a_new_file_and_an_empty_one_are_used(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    assert choose_file(path) == path
    path.touch()
    assert choose_file(path) == path
    prepare(path, 0.0)
    assert choose_file(path) == path
    assert describe_left_file(Settings(store_url=f"sqlite:///{path}")) is None


# --- Bundles --------------------------------------------------------------------------------------------------------


def test_the_first_line_of_a_bundle_has_its_format() -> None:
    file = BytesIO()
    writer = BundleWriter(file)
    writer.add(entry())
    writer.add(missing())
    lines = file.getvalue().splitlines(keepends=True)
    assert lines[0] == LINE
    assert lines[1].startswith(b'{"handle":')


@pytest.mark.parametrize("number", [0, BUNDLE_FORMAT + 1])
def test_a_bundle_of_another_format_is_refused_with_one_line(number: int) -> None:
    data = LINE.replace(b'"bundle":1', b'"bundle":%d' % number) + LINE
    refused, end = read_bundle(BytesIO(data))
    assert isinstance(refused, Refused) and isinstance(end, BundleEnd)
    assert refused.reason == f"the bundle has format {number}, and this doi-proxy reads format 1; use another doi-proxy"
    assert (end.lines, end.refused) == (1, 1)
