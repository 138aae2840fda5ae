"""The serialization of an entry in a store: a binary header and the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.errors import DamagedEntry
from doi_proxy.store.compression import compress, decompress
from doi_proxy.store.stored_redirect import PLACE, RedirectAnswer, holds_target, pack_place
from handle_protocol.answer import Answer, ProvenAnswer, ResponseCode

#: The format of a store, and of each entry in it. SQLite has it as user_version, Valkey in the prefix of its keys.
#: A change of what a store holds needs a new number and a reader in READERS (docs/releases.md).
STORE_FORMAT: Final = 1
#: The byte of an entry with its format and its flags.
MARK_OFFSET: Final = 4
FORMAT_BITS: Final = 0x0F
#: The expiries are seconds since the epoch and the values are JSON. Otherwise the expiries are whole seconds after
#: `fetched`, rounded down, and the values are compressed.
PLAIN: Final = 0x10
#: The place of a plain redirect's target precedes the values (stored_redirect.py).
WITH_TARGET: Final = 0x20
#: The entry ends with its proof, and the length of the proof.
_PROVEN: Final = 0x40
#: The answer was verified.
VERIFIED: Final = 0x80

#: CRC-32 of the key and of what follows: mark, response code, fetched, then the two expiries and the values.
_CHECK: Final = Struct("<I")
_PLAIN_HEAD: Final = Struct("<IBBddd")
_PLAIN_BODY: Final = Struct("<BBddd")
_HEAD: Final = Struct("<IBBdII")
_BODY: Final = Struct("<BBdII")
#: Bytes of the shortest entry.
MIN_BYTES: Final = _HEAD.size
#: A hard expiry that never comes, unless the entry is plain.
_NEVER: Final = 0xFFFF_FFFF
_PROOF_LENGTH: Final = Struct("<I")
_CODES: Final = {int(code): code for code in ResponseCode}


def pack(entry: Entry) -> bytes:
    """Serialize an entry, without its key, for a store."""
    body = _pack_short(entry)
    if body is None:
        times = entry.fetched_at, entry.fresh_until, entry.stale_until
        body = _PLAIN_BODY.pack(_mark(entry) | PLAIN, entry.answer.code, *times) + entry.answer.values
    if isinstance(entry.answer, ProvenAnswer):
        body += entry.answer.proof + _PROOF_LENGTH.pack(len(entry.answer.proof))
    return _CHECK.pack(_checksum(entry.key, body)) + body


def _pack_short(entry: Entry) -> bytes | None:
    """The body with short times and compressed values. None if the times do not fit, or there are no values."""
    fresh, stale = entry.fresh_until - entry.fetched_at, entry.stale_until - entry.fetched_at
    is_endless = entry.stale_until == FOREVER
    # A comparison with NaN is false.
    if not (0.0 <= fresh < _NEVER and (is_endless or 0.0 <= stale < _NEVER)):
        return None
    if entry.answer.code is not ResponseCode.SUCCESS:
        return None
    place = pack_place(entry.answer)
    mark = _mark(entry) if place is None else _mark(entry) | WITH_TARGET
    ends = _NEVER if is_endless else int(stale)
    head = _BODY.pack(mark, entry.answer.code, entry.fetched_at, int(fresh), ends)
    return head + (place or b"") + compress(entry.answer.values)


def _mark(entry: Entry) -> int:
    proven = _PROVEN if isinstance(entry.answer, ProvenAnswer) else 0
    return STORE_FORMAT | proven | VERIFIED if entry.answer.is_verified else STORE_FORMAT | proven


def unpack(key: str, data: object, readers: Mapping[int, Reader] | None = None) -> Entry | None:
    """Read an entry of this key by the reader of its format, of READERS. Returns None for a format without a reader.

    Raises DamagedEntry if the data is not bytes, the checksum is wrong, or a time is not in 0 to FOREVER.
    """
    # A damaged SQLite row can have any type.
    if not isinstance(data, bytes) or len(data) < MIN_BYTES:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: it is too short, or not bytes.")
    if _checksum(key, data[_CHECK.size :]) != _CHECK.unpack_from(data)[0]:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged, or belongs to another name: wrong checksum.")
    read = (READERS if readers is None else readers).get(data[MARK_OFFSET] & FORMAT_BITS)
    return None if read is None else read(key, data)


def _read_1(key: str, data: bytes) -> Entry:
    """Read an entry of format 1."""
    mark = data[MARK_OFFSET]
    if not mark & _PROVEN:
        return _read_body(key, data, mark)
    end = len(data) - _PROOF_LENGTH.size
    start = end - _PROOF_LENGTH.unpack_from(data, end)[0]
    if start < MIN_BYTES:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: its proof is longer than it.")
    entry = _read_body(key, data[:start], mark)
    answer = ProvenAnswer(entry.answer.code, entry.answer.values, is_verified=True, proof=data[start:end])
    return replace(entry, answer=answer)


def _read_body(key: str, data: bytes, mark: int) -> Entry:
    is_verified = bool(mark & VERIFIED)
    if mark & PLAIN:
        if len(data) < _PLAIN_HEAD.size:
            raise DamagedEntry(f"The store's entry for {key!r} is damaged: it is too short.")
        _, _, code, *times = _PLAIN_HEAD.unpack_from(data)
        return _build(key, code, data[_PLAIN_HEAD.size :], times, is_verified)
    _, _, code, fetched_at, fresh, stale = _HEAD.unpack_from(data)
    ends = FOREVER if stale == _NEVER else fetched_at + stale
    has_place = bool(mark & WITH_TARGET)
    begins = _HEAD.size + (PLACE.size if has_place else 0)
    try:
        values = decompress(data[begins:])
    except ValueError as error:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: {error}.") from error
    place = PLACE.unpack_from(data, _HEAD.size) if has_place and code == ResponseCode.SUCCESS else None
    return _build(key, code, values, (fetched_at, fetched_at + fresh, ends), is_verified, place)


def _build(
    key: str,
    code: int,
    values: bytes,
    times: Sequence[float],
    is_verified: bool,
    place: tuple[int, int, int] | None = None,
) -> Entry:
    first, fresh, stale = times
    # A comparison with NaN is false. `all` of a generator would take 1 us.
    is_in_range = 0.0 <= first <= FOREVER and 0.0 <= fresh <= FOREVER and 0.0 <= stale <= FOREVER
    if code not in _CODES or not is_in_range:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: its response code or its times are invalid.")
    if place is not None and holds_target(values, *place):
        _, start, end = place
        answer: Answer = RedirectAnswer(_CODES[code], values, is_verified=is_verified, start=start, end=end)
    else:
        answer = Answer(_CODES[code], values, is_verified=is_verified)
    return Entry(key, answer, first, fresh, stale)


def _checksum(key: str, body: bytes) -> int:
    return crc32(body, crc32(key.encode(errors="surrogatepass")))


#: Reads an entry of one format from its key and its bytes. Raises DamagedEntry.
Reader = Callable[[str, bytes], Entry]
#: The readers of all formats that this program reads, by their numbers.
READERS: Final[Mapping[int, Reader]] = {STORE_FORMAT: _read_1}
