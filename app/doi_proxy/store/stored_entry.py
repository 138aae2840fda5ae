"""The serialization of an entry in a store: a binary header and the values."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any, Final
from zlib import crc32

from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.errors import DamagedEntry
from doi_proxy.resolver.resolver import MAX_BYTES_NOW
from doi_proxy.resolver.target import TARGET_RULES, read_unconditional_target, web_target
from doi_proxy.system.files import read_package_file
from handle_protocol.errors import UnusableAnswer
from handle_protocol.referral import SUCCESS, Answer, ResponseCode


@cache
def read_dictionary_1() -> bytes:
    """The first dictionary: values of handle records, then beginnings and middle parts of URLs."""
    return read_package_file("doi_proxy.store", "dictionary_1.txt")


#: The version of the rules that found the target; its first byte in the JSON of the values, and the one after its last.
PLACE: Final = Struct("<BHH")


class RedirectAnswer(Answer, frozen=True, gc=False):
    """A plain redirect whose URL is safe in a header and in `values` as it is.

    Its place adds nothing to the values, so the answer is equal to one without it.
    """

    #: The first byte of the target in `values`, and the byte after its last.
    start: int = 0
    end: int = 0

    @property
    def target(self) -> str:  # type: ignore[override]
        """The URL."""
        return self.values[self.start : self.end].decode("ascii")

    def __eq__(self, other: object) -> bool:
        if type(other) is not Answer and type(other) is not RedirectAnswer:
            return NotImplemented
        return self.agrees_with(other) and (self.detail, self.is_verified) == (other.detail, other.is_verified)

    __hash__ = Answer.__hash__


def pack_place(answer: Answer) -> bytes | None:
    """The place of the target to which a record leads every client. None if the values do not contain it as it is."""
    if isinstance(answer, RedirectAnswer):
        return PLACE.pack(TARGET_RULES, answer.start, answer.end)
    if len(answer.values) > MAX_BYTES_NOW:
        return None
    try:
        found = read_unconditional_target(answer.values)
    except UnusableAnswer:
        return None
    if found is None or found.location != found.display:
        return None
    start = answer.values.find(b'"%b"' % found.location.encode()) + 1
    return PLACE.pack(TARGET_RULES, start, start + len(found.location)) if start > 0 else None


def holds_target(values: bytes, rules: int, start: int, end: int) -> bool:
    """Whether these rules found the target at a place in the values, and it is safe.

    A program that can write to the store can write any place, and any bytes there.
    """
    text = values[start:end].decode("latin-1")
    return rules == TARGET_RULES and len(values) <= MAX_BYTES_NOW and web_target(text) == text


#: The window has room for the dictionary (11 kB). Negative: without the header and the checksum of RFC 1950.
WINDOW_BITS: Final = -14
_LEVEL: Final = 6
#: Limit of the decompressed size, in bytes. It is larger than any answer that is accepted from an upstream.
MAX_BYTES: Final = 16 * 1024 * 1024


def compress(data: bytes) -> bytes:
    """Compress one record."""
    work = _prepared().copy()
    return bytes(work.compress(data) + work.flush())


def decompress(data: bytes) -> bytes:
    """Reverse `compress`. Raises ValueError for other data, and for more than MAX_BYTES."""
    work = zlib.decompressobj(WINDOW_BITS, read_dictionary_1())
    try:
        found = work.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not work.eof or work.unused_data:
        raise ValueError("the compressed data has no end, or something follows it")
    return found


@cache
def _prepared() -> Any:
    """The state after the dictionary has been read. Reading it takes ten times as long as copying the state."""
    # Copying the prepared state takes most of the time. A larger state does not make short texts smaller.
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, WINDOW_BITS, 4, zlib.Z_DEFAULT_STRATEGY, read_dictionary_1())


#: The format of a store, and of each entry in it. SQLite has it as user_version, Valkey in the prefix of its keys.
#: A change of what a store holds needs a new number and a reader in READERS (docs/releases.md).
STORE_FORMAT: Final = 1
#: The byte of an entry with its format and its flags.
MARK_OFFSET: Final = 4
#: The bits of the format, with one that no entry has: the signed messages followed it before 1.0.0. So it is a miss.
FORMAT_BITS: Final = 0x4F
#: The expiries are seconds since the epoch and the values are JSON. Otherwise the expiries are whole seconds after
#: `fetched`, rounded down, and the values are compressed.
PLAIN: Final = 0x10
#: The place of a plain redirect's target precedes the values (see RedirectAnswer).
WITH_TARGET: Final = 0x20
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
_CODES: Final = {int(code): code for code in ResponseCode}


def pack(entry: Entry) -> bytes:
    """Serialize an entry, without its key, for a store."""
    body = _pack_short(entry)
    if body is None:
        times = entry.fetched_at, entry.fresh_until, entry.stale_until
        body = _PLAIN_BODY.pack(_mark(entry) | PLAIN, entry.answer.code, *times) + entry.answer.values
    return _CHECK.pack(_checksum(entry.key, body)) + body


def _pack_short(entry: Entry) -> bytes | None:
    """The body with short times and compressed values. None if the times do not fit, or there are no values."""
    fresh, stale = entry.fresh_until - entry.fetched_at, entry.stale_until - entry.fetched_at
    is_endless = entry.stale_until == FOREVER
    # A comparison with NaN is false.
    if not (0.0 <= fresh < _NEVER and (is_endless or 0.0 <= stale < _NEVER)):
        return None
    if entry.answer.code is not SUCCESS:
        return None
    place = pack_place(entry.answer)
    mark = _mark(entry) if place is None else _mark(entry) | WITH_TARGET
    ends = _NEVER if is_endless else int(stale)
    head = _BODY.pack(mark, entry.answer.code, entry.fetched_at, int(fresh), ends)
    return head + (place or b"") + compress(entry.answer.values)


def _mark(entry: Entry) -> int:
    return STORE_FORMAT | VERIFIED if entry.answer.is_verified else STORE_FORMAT


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
    place = PLACE.unpack_from(data, _HEAD.size) if has_place and code == SUCCESS else None
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
