"""The keys of a Valkey server in memory, and our commands: each replies as a server does.

What a stream trims is exact only if its entries are short. A server trims by nodes of 100 entries or 4,096 bytes.
"""

from __future__ import annotations

import copy
import heapq
import re
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

#: What a command replies: None, a number, a text, an array, or a status.
Reply = Any
_LAST: Final = (2**64 - 1, 2**64 - 1)
#: Entries of one node of a stream.
_NODE: Final = 100
_WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"
_FULL: Final = "OOM command not allowed when used memory > 'maxmemory'."
_READ_ONLY: Final = "READONLY You can't write against a read only replica."
#: Commands that change something, and those of them that a full server refuses.
_WRITES: Final = frozenset(("DEL", "EXPIRE", "FLUSHDB", "INCR", "PERSIST", "PEXPIRE", "RPUSH", "SET", "XADD"))
_GROWS: Final = frozenset(("INCR", "RPUSH", "SET", "XADD"))

Value = TypeVar("Value")
StreamId = tuple[int, int]
#: The values of keys, and their ends.
Data = tuple[dict[bytes, Any], dict[bytes, int]]
EMPTY: Final[Data] = ({}, {})


class Failure(Exception):
    """An error reply."""


class Status(bytes):
    """A reply of one line."""


OK: Final = Status(b"OK")


class Stream:
    """Entries with rising ids."""

    def __init__(self) -> None:
        self.entries: dict[StreamId, list[bytes]] = {}
        self.last: StreamId = (0, 0)

    def add(self, wanted: bytes, now: int, fields: list[bytes]) -> bytes:
        """Add an entry, and return its id. `now` is in milliseconds."""
        if self.last == _LAST:
            raise Failure("ERR The stream has exhausted the last possible ID, unable to add more items")
        if wanted == b"*":
            new = (now, 0) if now > self.last[0] else (self.last[0], self.last[1] + 1)
        else:
            new = _read_id(wanted, 0)
        if new <= self.last:
            raise Failure("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        self.last = new
        self.entries[new] = fields
        return _write_id(new)

    def trim(self, most: int) -> None:
        """Drop whole nodes of the oldest entries while at least `most` are left."""
        while len(self.entries) - _NODE >= most:
            for old in list(self.entries)[:_NODE]:
                del self.entries[old]

    def read(self, first: bytes, last: bytes) -> list[list[Any]]:
        """The entries of a range, with their ids."""
        above, lowest = first.startswith(b"("), _read_id(first.removeprefix(b"("), 0)
        highest = _read_id(last, _LAST[1])
        return [
            [_write_id(at), fields]
            for at, fields in self.entries.items()
            if lowest <= at <= highest and not (above and at == lowest)
        ]


class Keys:
    """The database of one server. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: dict[bytes, Any] = {}
        #: Milliseconds since the epoch at which a key ends.
        self._ends: dict[bytes, int] = {}
        #: When a key may end, earliest first.
        self._ending: list[tuple[int, bytes]] = []
        self.is_full = self.is_replica = False

    def call(self, *words: bytes | str | float) -> Reply:
        """Do a command. Raises Failure."""
        name, *arguments = (_encode(word) for word in words)
        verb = name.decode().upper()
        command = _COMMANDS.get(verb)
        if command is None:
            raise Failure(f"ERR unknown command '{name.decode()}'")
        if verb in _WRITES and self.is_replica:
            raise Failure(_READ_ONLY)
        if verb in _GROWS and self.is_full:
            raise Failure(_FULL)
        self._expire()
        return command(self, *arguments)

    def save(self) -> Data:
        """A copy of the data."""
        return copy.deepcopy((self._values, self._ends))

    def load(self, data: Data) -> None:
        """Replace the data by what `save` returned."""
        self._values, self._ends = copy.deepcopy(data)
        self._ending = sorted((ends, key) for key, ends in self._ends.items())

    @property
    def values(self) -> Collection[Any]:
        """The values of all keys."""
        return self._values.values()

    @property
    def microseconds(self) -> int:
        """The time of the server."""
        return round(self._clock() * 1e6)

    @property
    def milliseconds(self) -> int:
        """The time of the server."""
        return self.microseconds // 1000

    @property
    def memory(self) -> int:
        """About the bytes of all keys and values."""
        return sum(len(key) + len(repr(value)) for key, value in self._values.items())

    def _expire(self) -> None:
        now = self.milliseconds
        while self._ending and self._ending[0][0] <= now:
            ends, key = heapq.heappop(self._ending)
            # Meanwhile the key may have got another end.
            if self._ends.get(key) == ends:
                self._drop(key)

    def _drop(self, key: bytes) -> bool:
        self._ends.pop(key, None)
        return self._values.pop(key, None) is not None

    def _end(self, key: bytes, milliseconds: int) -> None:
        self._ends[key] = ends = self.milliseconds + milliseconds
        heapq.heappush(self._ending, (ends, key))

    def _find(self, key: bytes, kind: type[Value]) -> Value | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise Failure(_WRONG_TYPE)
        return value

    def _open(self, key: bytes, kind: type[Value]) -> Value:
        found = self._find(key, kind)
        return self._values.setdefault(key, kind()) if found is None else found

    # Keys

    def _del(self, *keys: bytes) -> Reply:
        return sum(self._drop(key) for key in keys)

    def _type(self, key: bytes) -> Reply:
        kinds = {bytes: b"string", list: b"list", Stream: b"stream", type(None): b"none"}
        return Status(kinds[type(self._values.get(key))])

    def _pttl(self, key: bytes) -> Reply:
        if key not in self._values:
            return -2
        return self._ends[key] - self.milliseconds if key in self._ends else -1

    def _pexpire(self, key: bytes, milliseconds: bytes) -> Reply:
        if key not in self._values:
            return 0
        self._end(key, int(milliseconds))
        self._expire()
        return 1

    def _expire_seconds(self, key: bytes, seconds: bytes) -> Reply:
        return self._pexpire(key, b"%d000" % int(seconds))

    def _persist(self, key: bytes) -> Reply:
        return int(self._ends.pop(key, None) is not None)

    def _scan(self, _: bytes, *options: bytes) -> Reply:
        """All keys at once."""
        pattern = dict(zip(options[::2], options[1::2], strict=True)).get(b"MATCH", b"*")
        return [b"0", [key for key in self._values if _matches(pattern, key)]]

    # Texts

    def _get(self, key: bytes) -> Reply:
        return self._find(key, bytes)

    def _incr(self, key: bytes) -> Reply:
        found = self._find(key, bytes)
        text = b"0" if found is None else found
        if not re.fullmatch(rb"-?[0-9]{1,18}", text):
            raise Failure("ERR value is not an integer or out of range")
        self._values[key] = b"%d" % (int(text) + 1)
        return int(text) + 1

    def _set(self, key: bytes, value: bytes, *options: bytes) -> Reply:
        if (b"NX" in options and key in self._values) or (b"XX" in options and key not in self._values):
            return None
        self._drop(key)
        self._values[key] = value
        if b"PX" in options:
            self._end(key, int(options[options.index(b"PX") + 1]))
        return OK

    # A list, and streams

    def _rpush(self, key: bytes, *words: bytes) -> Reply:
        values = self._open(key, list)
        values.extend(words)
        return len(values)

    def _xadd(self, key: bytes, *words: bytes) -> Reply:
        most = None
        if words[0] == b"MAXLEN":
            most, words = int(words[2]), words[3:]
        self._find(key, Stream)
        stream = self._open(key, Stream)
        added = stream.add(words[0], self.milliseconds, list(words[1:]))
        if most is not None:
            stream.trim(most)
        return added

    def _xrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> Reply:
        return self._read(key, first, last, options)

    def _xrevrange(self, key: bytes, last: bytes, first: bytes, *options: bytes) -> Reply:
        return self._read(key, first, last, options, step=-1)

    def _read(self, key: bytes, first: bytes, last: bytes, options: tuple[bytes, ...], step: int = 1) -> Reply:
        stream = self._find(key, Stream)
        found = [] if stream is None else stream.read(first, last)
        return found[::step][: int(options[1]) if options else None]

    # The server

    def _info(self, _: bytes) -> Reply:
        return f"# Memory\r\nused_memory:{self.memory}\r\n".encode()

    def _dbsize(self) -> Reply:
        return len(self._values)

    def _flushdb(self) -> Reply:
        self.load(EMPTY)
        return OK


_COMMANDS: Final[dict[str, Callable[..., Reply]]] = {
    "DBSIZE": Keys._dbsize,
    "DEL": Keys._del,
    "EXPIRE": Keys._expire_seconds,
    "FLUSHDB": Keys._flushdb,
    "GET": Keys._get,
    "INCR": Keys._incr,
    "INFO": Keys._info,
    "PERSIST": Keys._persist,
    "PEXPIRE": Keys._pexpire,
    "PTTL": Keys._pttl,
    "RPUSH": Keys._rpush,
    "SCAN": Keys._scan,
    "SET": Keys._set,
    "TYPE": Keys._type,
    "XADD": Keys._xadd,
    "XRANGE": Keys._xrange,
    "XREVRANGE": Keys._xrevrange,
}


def _encode(word: bytes | str | float) -> bytes:
    if isinstance(word, bytes):
        return word
    return (word if isinstance(word, str) else repr(word)).encode()


def _read_id(text: bytes, lowest: int) -> StreamId:
    if text in (b"-", b"+"):
        return (0, 0) if text == b"-" else _LAST
    milliseconds, _, number = text.partition(b"-")
    return int(milliseconds), int(number) if number else lowest


def _write_id(stream_id: StreamId) -> bytes:
    return b"%d-%d" % stream_id


def _matches(pattern: bytes, key: bytes) -> bool:
    """Whether a key has a glob-style pattern of `*`, `?` and escaped bytes."""
    words = re.findall(rb"\\?.", pattern, re.DOTALL)
    parts = [{b"*": b".*", b"?": b"."}.get(word, re.escape(word[-1:])) for word in words]
    return re.fullmatch(b"".join(parts), key, re.DOTALL) is not None
