"""What the Lua scripts of features/valkey/scripts.py do, in Python. A test compares them with a real server."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf, isinf
from typing import Any, Final

from doi_proxy.cache.store import MAX_ANNOUNCEMENTS

MAX_IDLE = 86400
from doi_proxy.cache.purges import EVERYTHING, MAX_PURGES, NOT_FOUND, PURGE_MEMORY, UNKNOWN
from doi_proxy.features.valkey import scripts
from doi_proxy.features.valkey.scripts import ANNOUNCEMENT_PAGE, LONGEST_STREAM, SETTLING, SETTLING_REPLY
from doi_proxy.rationing.token_bucket import MAX_BACK_OFF, ROUNDING
from doi_proxy.store.stored_entry import FORMAT_BITS, MARK_OFFSET, MIN_BYTES, PLAIN, STORE_FORMAT, VERIFIED
from tests.world.valkey_data import Failure, Keys, Reply

#: A script: the keys of the server, and KEYS and ARGV.
Script = Callable[[Keys, Sequence[bytes], Sequence[bytes]], Reply]


def _read_number(text: bytes | None) -> float | None:
    """What `tonumber` makes of a text."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _heal(keys: Keys, command: str, key: bytes, *arguments: Any) -> Reply:
    try:
        return keys.call(command, key, *arguments)
    except Failure as failure:
        if "WRONGTYPE" in str(failure):
            keys.call("DEL", key)
        return keys.call(command, key, *arguments)


def _now(keys: Keys) -> float:
    seconds, rest = keys.call("TIME")
    return float(seconds) + float(rest) / 1e6


# Announcements


def _begin_anew(keys: Keys, stream: bytes, reason: str) -> list[bytes]:
    with suppress(Failure):
        keys.call("DEL", stream)
    seconds, rest = map(int, keys.call("TIME"))
    new = f"{seconds * 1000 + rest // 1000}-{rest % 1000 * 1_000_000}"
    try:
        return [keys.call("XADD", stream, new, "key", EVERYTHING), reason.encode(), b"0"]
    except Failure:
        return [b"0-0", reason.encode(), b"0"]


def _announce_key(keys: Keys, stream: bytes, key: bytes) -> None:
    try:
        keys.call("XADD", stream, "MAXLEN", "~", MAX_ANNOUNCEMENTS, "*", "key", key)
    except Failure as failure:
        if "WRONGTYPE" in str(failure) or "last possible ID" in str(failure):
            _begin_anew(keys, stream, f"takes no announcement: {failure}")
        keys.call("XADD", stream, "*", "key", key)


def announce(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Announce a scope."""
    _announce_key(keys, names[0], arguments[0])
    return 1


def _milliseconds_of(stream_id: bytes) -> int:
    return int(stream_id.partition(b"-")[0])


def read_announcements(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Read a page of announcements after a cursor."""
    stream, cursor = names[0], arguments[0]
    try:
        newest_entries = keys.call("XREVRANGE", stream, "+", "-", "COUNT", 1)
    except Failure:
        return _begin_anew(keys, stream, "had data of another program")
    newest = newest_entries[0][0] if newest_entries else b"0-0"
    if _milliseconds_of(newest) > int(keys.call("TIME")[0]) * 1000 + scripts._REWIND:
        return _begin_anew(keys, stream, "had an announcement from the future")
    if not cursor:
        return [newest, b"", b"0"]
    length = keys.call("XLEN", stream)
    if length > LONGEST_STREAM:
        return _begin_anew(keys, stream, "was too long")
    start = b"(" + cursor
    found = keys.call("XRANGE", stream, cursor, "+", "COUNT", 1)
    if not found or found[0][0] != cursor:
        since = max(0, _milliseconds_of(cursor) - scripts._REWIND)
        if length >= MAX_ANNOUNCEMENTS or (length > 0 and _milliseconds_of(newest) < since):
            return [newest, b"does not go back to the last read", b"0"]
        start = b"%d" % since
    return _read_page(keys, stream, cursor, start)


def _read_page(keys: Keys, stream: bytes, cursor: bytes, start: bytes) -> Reply:
    reply = [cursor, b"", b"0"]
    while True:
        entries = keys.call("XRANGE", stream, start, "+", "COUNT", scripts._STEP)
        for at, words in entries:
            size = sum(map(len, words[: scripts._MOST_WORDS]))
            if len(words) > scripts._MOST_WORDS or size > scripts._LONGEST_ANNOUNCEMENT:
                return _begin_anew(keys, stream, "had announcements of another program")
            if words[0] == b"key":
                reply.append(words[1])
            reply[0] = at
        start = b"(" + reply[0]
        if len(entries) < scripts._STEP or len(reply) > ANNOUNCEMENT_PAGE:
            reply[2] = b"1" if len(entries) == scripts._STEP else b"0"
            return reply


# Leases


def lease(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Take a lease, also from another program."""
    owner, milliseconds = arguments
    if keys.call("SET", names[0], owner, "NX", "PX", milliseconds):
        return 1
    left = keys.call("PTTL", names[0])
    if left < 0 or left > 2 * int(milliseconds):
        keys.call("SET", names[0], owner, "PX", milliseconds)
        return 1
    return 0


def release(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Release a lease of this owner."""
    return keys.call("DEL", names[0]) if keys.call("GET", names[0]) == arguments[0] else 0


def renew(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Renew a lease of this owner."""
    owner, milliseconds = arguments
    return keys.call("PEXPIRE", names[0], milliseconds) if keys.call("GET", names[0]) == owner else 0


# Entries


def _proves(data: bytes, fetched_at: float, at: float) -> bool:
    mark = data[MARK_OFFSET]
    if mark & (VERIFIED | FORMAT_BITS) != VERIFIED | STORE_FORMAT:
        return False
    if mark & PLAIN:
        return bool(at < struct.unpack_from("<d", data, 14)[0])
    return bool(at < fetched_at + struct.unpack_from("<I", data, 14)[0])


def put(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Put an entry, unless a purge or another entry forbids it."""
    entry, purges, announcements = names
    data, lifetime, announced, since_sent, unless_newer_than, latest, *scopes, unverified_at = arguments
    now = _now(keys)
    if since_sent:
        sent_at = now - float(since_sent)
        for at in _heal(keys, "HMGET", purges, *scopes, UNKNOWN, NOT_FOUND):
            purged_at = _read_number(at)
            if purged_at is not None and sent_at < purged_at <= now:
                return 0
    if unless_newer_than or unverified_at:
        stored = _heal(keys, "GET", entry)
        fetched_at = struct.unpack_from("<d", stored, 6)[0] if stored and len(stored) >= MIN_BYTES else inf
        if fetched_at <= float(latest):
            if unless_newer_than and fetched_at > float(unless_newer_than):
                return 0
            if unverified_at and _proves(stored, fetched_at, float(unverified_at)):
                _announce_key(keys, announcements, scopes[0])
                return 0
    keys.call("SET", entry, data, "PX", lifetime)
    if announced:
        _announce_key(keys, announcements, announced)
    return 1


def purge(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Delete an entry, and remember that."""
    entry, purges, announcements = names
    now, scope = _now(keys), arguments[0]
    existed = keys.call("DEL", entry)
    if _heal(keys, "HLEN", purges) >= MAX_PURGES:
        keys.call("DEL", purges)
        scope = UNKNOWN.encode()
    keys.call("HSET", purges, scope, f"{now:.17g}")
    keys.call("EXPIRE", purges, f"{PURGE_MEMORY:.0f}")
    _announce_key(keys, announcements, arguments[0])
    return existed


# Token buckets


class _Bucket:
    """What both scripts of buckets begin with."""

    def __init__(self, keys: Keys, name: bytes) -> None:
        self._keys, self._name = keys, name
        self.now = _now(keys)
        tokens, at, blocked_until = map(_read_number, _heal(keys, "HMGET", name, "tokens", "at", "blocked_until"))
        self.tokens = tokens
        self.at = self.now if at is None else at
        self.blocked_until = blocked_until or 0.0
        self.blocked_for = min(max(0.0, self.blocked_until - max(self.now, self.at)), MAX_BACK_OFF)

    def write(self, tokens: float, blocked_for: float) -> None:
        times = "at", f"{self.now:.17g}", "blocked_until", f"{self.now + blocked_for:.17g}"
        self._keys.call("HSET", self._name, "tokens", f"{tokens:.17g}", *times)
        self._keys.call("EXPIRE", self._name, MAX_IDLE)


def take(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Take tokens."""
    bucket = _Bucket(keys, names[0])
    rate, burst, leaving, count = map(float, arguments[:4])
    settles_until = _settle(keys, names[0], bucket.now, is_back=arguments[4] == b"1")
    tokens, filled_until = burst if bucket.tokens is None else bucket.tokens, bucket.at
    if not tokens >= 0:
        tokens = 0.0
    if bucket.blocked_until > bucket.at or settles_until > bucket.at:
        tokens, filled_until = 0.0, max(bucket.blocked_until, settles_until)
    if arguments[5] == b"1":
        filled_until = max(filled_until, bucket.now)
    tokens = min(burst, tokens + max(0.0, bucket.now - filled_until) * rate)
    missing, wait, blocked_for = count + max(0.0, min(leaving, burst - count)) - tokens, 0.0, bucket.blocked_for
    if missing <= ROUNDING:
        tokens, blocked_for = tokens - count, 0.0
    else:
        wait = blocked_for + missing / rate if rate > 0 else inf
    bucket.write(tokens, blocked_for)
    if settles_until > bucket.now and blocked_for == 0:
        return SETTLING_REPLY
    return b"inf" if isinf(wait) else f"{wait:.17g}".encode()


def _settle(keys: Keys, name: bytes, now: float, *, is_back: bool) -> float:
    """Until when the bucket gives no token."""
    known, known_until = keys.call("HMGET", name, "server", "settles_until")
    server, settles_until = keys.run_id.encode(), _read_number(known_until) or 0.0
    if settles_until > now + SETTLING:
        settles_until = 0.0
    if known != server or (is_back and settles_until <= now):
        settles_until = now + SETTLING
    keys.call("HSET", name, "server", server, "settles_until", f"{settles_until:.17g}")
    return settles_until


def back_off(keys: Keys, names: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    """Empty a bucket for some seconds."""
    bucket = _Bucket(keys, names[0])
    bucket.write(0.0, max(bucket.blocked_for, min(float(arguments[0]), MAX_BACK_OFF)))
    return 1


#: The scripts by their text.
SCRIPTS: Final[dict[bytes, Script]] = {
    text.encode(): script
    for text, script in (
        (scripts.ANNOUNCE, announce),
        (scripts.BACK_OFF, back_off),
        (scripts.LEASE, lease),
        (scripts.PURGE, purge),
        (scripts.PUT, put),
        (scripts.READ_ANNOUNCEMENTS, read_announcements),
        (scripts.RELEASE, release),
        (scripts.RENEW, renew),
        (scripts.TAKE, take),
    )
}
