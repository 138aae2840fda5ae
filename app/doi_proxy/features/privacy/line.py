"""The lines of the access log, with as much about the client as the privacy level allows.

| level | client's address       | name               | query |
| ----- | ---------------------- | ------------------ | ----- |
| 0     | whole                  | yes                | yes   |
| 1     | its network (/24, /48) | yes                | no    |
| 2     | none                   | yes                | no    |
| 3     | none                   | no                 | no    |
"""

from __future__ import annotations

import re
import time
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from doi_proxy.web.client_network import UNKNOWN_CLIENT, client_of, read_address

#: The longest part of an address that is logged, in characters. A whole line stays below 4096 bytes (POSIX, PIPE_BUF):
#: such lines of several processes do not mix in a pipe.
MAX_PATH: Final = 2_000
MAX_WORD: Final = 64
#: The first level that logs no part of a client's address, and the first that logs no path.
NO_CLIENTS: Final = 2
_NO_PATHS: Final = 3
#: The part of an IPv6 address that is logged at level 1, in bits. That of an IPv4 address is a client.
_IPV6_PREFIX: Final = 48
#: Bytes that are written as they are. Without quotation marks and backslashes, neither format needs escapes.
_PLAIN: Final = re.compile(rb"[!#-\[\]-~]*")
_TEXTS: Final = tuple(chr(byte) if _PLAIN.fullmatch(bytes((byte,))) else f"%{byte:02X}" for byte in range(256))
#: Bytes that a line takes in memory in addition to its texts.
_OVERHEAD: Final = 500
#: Methods that are written as they are.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
#: Networks of clients that are remembered.
_MAX_NETWORKS: Final = 4_096
_encoder: Final = msgspec.json.Encoder()


class LogLine(msgspec.Struct, gc=False):
    """The facts of a line. `moment` is in seconds since the epoch; path and query are raw and at most MAX_PATH long."""

    moment: float
    request_id: str
    client: str
    method: str
    path: bytes
    query: bytes
    route: str
    status: int = 0
    bytes: int = 0
    seconds: float = 0.0
    cache: str | None = None

    @property
    def size(self) -> int:
        """Its size in memory, in bytes."""
        return len(self.path) + len(self.query) + _OVERHEAD


class _Members(msgspec.Struct, gc=False):
    """What a line shows, in this order. A member that the level hides is UNSET."""

    time: str
    request_id: str
    client: str | UnsetType
    method: str
    path: str | UnsetType
    route: str
    status: int
    bytes: int
    ms: float
    cache: str | None


class LineFormat:
    """Formats lines as JSON or text, at a privacy level."""

    def __init__(self, form: Literal["json", "text"], level: int) -> None:
        self._encode = _json if form == "json" else _text
        self._level = level
        self._millisecond, self._second, self._date, self._moment = -1, -1, "", ""
        #: By the hash of an address, which Python salts in each process, until a line of another second.
        self._networks: dict[int, str | UnsetType] = {}

    def __call__(self, line: LogLine) -> bytes:
        """The line as it is written."""
        shown = _Members(
            self._time(line.moment),
            line.request_id,
            UNSET if self._level >= NO_CLIENTS else self._client(line.client),
            line.method if line.method in _METHODS else escape(line.method.encode("latin-1", "replace"))[:MAX_WORD],
            format_path(line.path, line.query, self._level),
            line.route,
            line.status,
            line.bytes,
            # To the microsecond. `round` takes three times as long.
            int(line.seconds * 1e6 + 0.5) / 1000,
            line.cache,
        )
        return self._encode(shown)

    def _time(self, moment: float) -> str:
        """The time in UTC, to the millisecond. Lines of one millisecond share the text."""
        millisecond = int(moment * 1000)
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            second, rest = divmod(millisecond, 1000)
            if second != self._second:
                self._second, self._date = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
                self._networks.clear()
            self._moment = f"{self._date}.{rest:03d}Z"
        return self._moment

    def _client(self, address: str) -> str | UnsetType:
        if self._level != 1:
            return mask_address(address, self._level)
        key = hash(address)
        network = self._networks.get(key)
        if network is None:
            if len(self._networks) >= _MAX_NETWORKS:
                self._networks.clear()
            network = self._networks[key] = mask_address(address, self._level)
        return network


def mask_address(address: str, level: int) -> str | UnsetType:
    """The client's address that a privacy level lets the log have, UNSET if it lets none."""
    if level >= NO_CLIENTS:
        return UNSET
    if level:
        network = client_of(address, _IPV6_PREFIX)
        return UNSET if network == UNKNOWN_CLIENT else network.partition("/")[0]
    parsed = read_address(address)
    return UNSET if parsed is None else str(parsed)


def format_path(path: bytes, query: bytes, level: int) -> str | UnsetType:
    """The raw path, and the query, that a privacy level lets the log have. Bytes that are not graphic become `%XX`."""
    if level >= _NO_PATHS:
        return UNSET
    whole = path + b"?" + query if level == 0 and query else path
    text = escape(whole[: MAX_PATH + 1])
    return text if len(text) <= MAX_PATH else text[:MAX_PATH] + "..."


def escape(raw: bytes) -> str:
    """Graphic ASCII without quotation marks and backslashes; other bytes as `%XX` (RFC 3986, section 2.1)."""
    return raw.decode("ascii") if _PLAIN.fullmatch(raw) else "".join([_TEXTS[byte] for byte in raw])


def _json(shown: _Members) -> bytes:
    return _encoder.encode(shown) + b"\n"


def _text(shown: _Members) -> bytes:
    values = ((name, getattr(shown, name)) for name in _Members.__struct_fields__)
    words = [f"{name}={_word(value)}" for name, value in values if value is not None and value is not UNSET]
    return " ".join(words).encode("ascii", "replace") + b"\n"


def _word(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text else text
