"""The serialization of registry records: blocks of records with neighbouring keys, and a record as a cache entry.

Neighbouring names have much in common, and so do their URLs. Compressed together, a record takes a quarter of the room
that it takes alone (docs/decisions/0015-registry-records-in-blocks.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER, RegistryEntry
from doi_proxy.errors import DamagedEntry
from doi_proxy.features.registry.record import LAST_DATE, RegistryRecord
from doi_proxy.store.compression import compress, decompress
from handle_protocol.answer import Answer, ResponseCode

#: A record as a tuple: key, date, agency, URL. See RegistryRecord. An import has hundreds of millions of them.
RegistryRow = tuple[str, int, str, str]
#: Compresses the text of a block into what `doi_proxy.store.compression.decompress` reads.
Compress = Callable[[bytes], bytes]

#: Limits of a block. A look-up decompresses one block, in 15 µs. Blocks twice as long take 21 µs, and the file does not
#: become smaller.
MAX_ROWS: Final = 32
MAX_BYTES: Final = 16_384
#: The version of the format. Version 1 is compressed with dictionary 1.
FORMAT_VERSION: Final = 1
#: CRC-32 of the first key and of what follows: version, compressed text.
_HEAD: Final = Struct("<IB")
_CHECK_BYTES: Final = 4
_VERSION: Final = bytes([FORMAT_VERSION])
#: The TTL of a URL value, in seconds: the default of the handle system. The record is confirmed before it counts.
_TTL: Final = 86_400


def to_row(record: RegistryRecord) -> RegistryRow:
    """The record as a tuple."""
    return record.name.key, record.date, record.agency, record.url


def to_record(row: RegistryRow) -> RegistryRecord:
    """The record of a tuple."""
    key, date, agency, url = row
    return RegistryRecord(HandleName(key), url, agency, date)


def write_block_line(row: RegistryRow) -> bytes:
    """The line of a row in the text of a block: its fields with tabs between them. No field has a control character."""
    key, date, agency, url = row
    return f"{key}\t{date}\t{agency}\t{url}".encode()


def split_lines(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Lines in pieces of about the same number, each within the limits of a block. A long one is alone in its block."""
    pieces = -(-len(lines) // MAX_ROWS)
    for piece in range(pieces):
        block = lines[piece * len(lines) // pieces : (piece + 1) * len(lines) // pieces]
        # To join the lines takes half as long as to add their lengths.
        if len(block) > 1 and len(b"".join(block)) > MAX_BYTES:
            half = len(block) // 2
            yield from split_lines(block[:half])
            yield from split_lines(block[half:])
        else:
            yield block


def pack_block(first: str, lines: Sequence[bytes], compress: Compress = compress) -> bytes:
    """Serialize the lines of 1 to MAX_ROWS rows in the order of their keys, without `first`, the key of the block."""
    body = _VERSION + compress(b"\n" + b"\n".join(lines))
    return _checksum(first, body).to_bytes(_CHECK_BYTES, "little") + body


def unpack_lines(first: str, data: object) -> list[bytes]:
    """The lines that `pack_block` wrote for this first key. Raises DamagedEntry.

    Their fields are not read: a change of one record need not know the others.
    """
    return _read_text(first, data).split(b"\n")[1:]


def find_line(lines: Sequence[bytes], key: bytes, start: int = 0) -> tuple[int, bool]:
    """The place of a key among lines from `start` on, and whether its line is there.

    The lines have the order of their keys: the tab after a key is less than any byte of a key, and the bytes of UTF-8
    have the order of their code points.
    """
    head = key + b"\t"
    at = bisect_left(lines, head, lo=start)
    return at, at < len(lines) and lines[at].startswith(head)


def read_line(first: str, line: bytes) -> RegistryRow:
    """The row of a line in the block with this first key. Raises DamagedEntry."""
    try:
        key, date, agency, url = line.decode().split("\t")
        row = key, int(date), agency, url
    except ValueError as error:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: {error}.") from error
    # A later date would be an error when it is written as text.
    if not 0 <= row[1] <= LAST_DATE:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: the date {row[1]} is not possible.")
    return row


def unpack_block(first: str, data: object) -> list[RegistryRow]:
    """Read the rows that `pack_block` wrote for this first key. Raises DamagedEntry."""
    return [read_line(first, line) for line in unpack_lines(first, data)]


def find_row(key: str, first: str, data: object) -> RegistryRow | None:
    """The row of a key in a block. Raises DamagedEntry."""
    text = _read_text(first, data)
    # Only a key is between a line feed and a tab. Reading all 32 rows instead would take 42 µs.
    at = text.find(b"\n%b\t" % key.encode())
    if at < 0:
        return None
    end = text.find(b"\n", at + 1)
    return read_line(first, text[at + 1 : len(text) if end < 0 else end])


def find_keys(keys: Sequence[str], first: str, data: object) -> list[str]:
    """The keys that a block has. Raises DamagedEntry."""
    known = {line.partition(b"\t")[0] for line in _read_text(first, data).split(b"\n")}
    return [key for key in keys if key.encode() in known]


def _read_text(first: str, data: object) -> bytes:
    # A damaged SQLite row can have any type.
    if not isinstance(data, bytes) or len(data) < _HEAD.size:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: too short, or not bytes.")
    check, version = _HEAD.unpack_from(data)
    if _checksum(first, data[_CHECK_BYTES:]) != check:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: wrong checksum.")
    if version != FORMAT_VERSION:
        raise DamagedEntry(f"The registry records after {first!r} have an unknown format: {version}.")
    try:
        return decompress(data[_HEAD.size :])
    except ValueError as error:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: {error}.") from error


def to_entry(row: RegistryRow) -> RegistryEntry:
    """The record as an entry that is never fresh and always usable. It has the values that the file is known to give.

    The timestamp of the URL value is the date of the record. The HS_ADMIN value is not known, so it is left out.
    """
    key, date, agency, url = row
    value = {
        "index": 1,
        "type": "URL",
        "data": {"format": "string", "value": url},
        "ttl": _TTL,
        "timestamp": datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    answer = Answer(ResponseCode.SUCCESS, msgspec.json.encode([value]))
    return RegistryEntry(key, answer, float(date), 0.0, FOREVER, agency)


def _checksum(first: str, body: bytes) -> int:
    return crc32(body, crc32(first.encode(errors="surrogatepass")))
