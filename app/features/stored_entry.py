"""The serialization of an entry in a store: a binary header and the values."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from app.cache.entry import FOREVER, Entry
from app.errors import DamagedEntry
from app.features.proven_answer import ProvenAnswer
from app.features.store_compression import compress, decompress
from app.features.stored_redirect import PLACE, RedirectAnswer, holds_target, pack_place
from app.handle.answer import Answer, ResponseCode

#: The newest layout of an entry in a store. Every layout that was released is read for ever, so processes of two
#: releases can share a store. An entry of a later layout is a miss. A change of a layout needs a new number here, a
#: reader of the layout before, and a new STORE_FORMAT (docs/releases.md).
FORMAT_VERSION: Final = 3
#: FORMAT_VERSION with the place of a plain redirect's target (stored_redirect.py). SQLite files alone have it, because
#: release 0.2.0 can share a server, and takes an unknown layout for a miss (docs/decisions/0021).
WITH_TARGET: Final = 4
_PLAIN: Final = 2
#: Release 0.1.0 wrote this layout. It is _PLAIN, with a checksum that omits the key.
_WITHOUT_KEY: Final = 1
#: Is added to the version of an entry whose answer was verified. An earlier release takes that for a miss, because it
#: would lose the proof.
VERIFIED: Final = 0x80
#: Is added to the version of a verified entry that ends with its proof, and the length of the proof.
PROVEN: Final = 0x40

#: CRC-32 of the key and of what follows: version, response code, fetched, then the two expiries and the values.
_CHECK: Final = Struct("<I")
#: The offset of the version in an entry, in every layout.
VERSION_OFFSET: Final = _CHECK.size
#: Version 2: the expiries are seconds since the epoch, and the values are JSON.
_HEAD: Final = Struct("<IBBddd")
_BODY: Final = Struct("<BBddd")
#: Version 3: the expiries are whole seconds after `fetched`, rounded down, and the values are compressed.
_SHORT_HEAD: Final = Struct("<IBBdII")
_SHORT_BODY: Final = Struct("<BBdII")
#: In version 3: a hard expiry that never comes.
_NEVER: Final = 0xFFFF_FFFF
_PROOF_LENGTH: Final = Struct("<I")
_CODES: Final = {int(code): code for code in ResponseCode}


def pack(entry: Entry, *, with_target: bool = False) -> bytes:
    """Serialize an entry, without its key, for a store; `with_target` if it leads every client to one target."""
    body = _pack_short(entry, with_target=with_target)
    if body is None:
        times = entry.fetched_at, entry.fresh_until, entry.stale_until
        body = _BODY.pack(_version(_PLAIN, entry), entry.answer.code, *times) + entry.answer.values
    if isinstance(entry.answer, ProvenAnswer):
        body += entry.answer.proof + _PROOF_LENGTH.pack(len(entry.answer.proof))
    return _CHECK.pack(_checksum(entry.key, body)) + body


def _pack_short(entry: Entry, *, with_target: bool) -> bytes | None:
    """The body in version 3; None if it does not hold these times, or if there is nothing to compress.

    It is never shorter than the head of version 2, because an earlier release takes a shorter entry for a damaged one.
    """
    fresh, stale = entry.fresh_until - entry.fetched_at, entry.stale_until - entry.fetched_at
    is_endless = entry.stale_until == FOREVER
    # A comparison with NaN is false.
    if not (0.0 <= fresh < _NEVER and (is_endless or 0.0 <= stale < _NEVER)):
        return None
    if entry.answer.code is not ResponseCode.SUCCESS:
        return None
    ends = _NEVER if is_endless else int(stale)
    place = pack_place(entry.answer) if with_target else None
    layout = FORMAT_VERSION if place is None else WITH_TARGET
    head = _SHORT_BODY.pack(_version(layout, entry), entry.answer.code, entry.fetched_at, int(fresh), ends)
    body = head + (place or b"") + compress(entry.answer.values)
    return body if len(body) >= _BODY.size else None


def _version(layout: int, entry: Entry) -> int:
    proven = PROVEN if isinstance(entry.answer, ProvenAnswer) else 0
    return layout | proven | VERIFIED if entry.answer.is_verified else layout | proven


def unpack(key: str, data: object) -> Entry | None:
    """Read the entry that this release or an earlier one wrote for this key. Returns None for a later layout.

    Raises DamagedEntry if the data is not bytes, the checksum is wrong, or a time is not in 0 to FOREVER.
    """
    # A damaged SQLite row can have any type.
    if not isinstance(data, bytes) or len(data) < _HEAD.size:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: it is too short, or not bytes.")
    (check,), version, body = _CHECK.unpack_from(data), data[VERSION_OFFSET], data[_CHECK.size :]
    # The version decides which checksum is right, so an entry of one layout is never read as one of another.
    if (crc32(body) if version == _WITHOUT_KEY else _checksum(key, body)) != check:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged, or belongs to another name: wrong checksum.")
    is_verified, layout = bool(version & VERIFIED), version & ~VERIFIED
    if layout & PROVEN:
        return _unpack_proven(key, data, layout & ~PROVEN)
    if layout in (FORMAT_VERSION, WITH_TARGET):
        return _unpack_short(key, data, is_verified=is_verified, has_place=layout == WITH_TARGET)
    return _unpack_plain(key, data, is_verified=is_verified) if layout == _PLAIN or version == _WITHOUT_KEY else None


def _unpack_proven(key: str, data: bytes, layout: int) -> Entry | None:
    length = _PROOF_LENGTH.unpack_from(data, len(data) - _PROOF_LENGTH.size)[0]
    end = len(data) - _PROOF_LENGTH.size
    if layout not in (FORMAT_VERSION, _PLAIN):
        return None
    if end - length < _HEAD.size:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: its proof is longer than it.")
    read = _unpack_short if layout == FORMAT_VERSION else _unpack_plain
    entry = read(key, data[: end - length], is_verified=True)
    answer = ProvenAnswer(entry.answer.code, entry.answer.values, is_verified=True, proof=data[end - length : end])
    return replace(entry, answer=answer)


def has_old_layout(data: object) -> bool:
    """Whether stored bytes have a layout that this release reads and no longer writes."""
    return isinstance(data, bytes) and data[VERSION_OFFSET : VERSION_OFFSET + 1] == bytes((_WITHOUT_KEY,))


def _unpack_short(key: str, data: bytes, *, is_verified: bool, has_place: bool = False) -> Entry:
    _, _, code, fetched_at, fresh, stale = _SHORT_HEAD.unpack_from(data)
    ends = FOREVER if stale == _NEVER else fetched_at + stale
    begins = _SHORT_HEAD.size + (PLACE.size if has_place else 0)
    try:
        values = decompress(data[begins:])
    except ValueError as error:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: {error}.") from error
    place = PLACE.unpack_from(data, _SHORT_HEAD.size) if has_place and code == ResponseCode.SUCCESS else None
    return _build(key, code, values, (fetched_at, fetched_at + fresh, ends), is_verified, place)


def _unpack_plain(key: str, data: bytes, *, is_verified: bool) -> Entry:
    _, _, code, *times = _HEAD.unpack_from(data)
    return _build(key, code, data[_HEAD.size :], times, is_verified)


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
