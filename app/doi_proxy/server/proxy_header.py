"""The header of the PROXY protocol, version 1 and 2, with which a front proxy names the client of a connection.

Source: "The PROXY protocol, versions 1 & 2" (https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt).
"""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass
from typing import Final

#: The header of a connection that a program opens for itself, such as a health check (section 2.1).
OWN_CONNECTION: Final = b"PROXY UNKNOWN\r\n"
#: The longest header of version 1 (section 2.1).
_MAX_LINE_BYTES: Final = 107
_WORD: Final = b"PROXY "
_UNKNOWN: Final = b"UNKNOWN"
_PORT: Final = rb"(0|[1-9][0-9]{0,4})"
_LINE: Final = re.compile(rb"TCP([46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) " + _PORT + b" " + _PORT)
_LINE_FAMILIES: Final = {b"4": socket.AF_INET, b"6": socket.AF_INET6}
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
#: After the signature: the version and the command, the family and the transport, and the length of the rest.
_START: Final = struct.Struct(">BBH")
_START_BYTES: Final = len(_SIGNATURE) + _START.size
_LOCAL, _PROXY = 0x20, 0x21
_STREAM_OVER_IPV4, _STREAM_OVER_IPV6 = 0x11, 0x21
#: Both addresses and both ports, in network byte order.
_ADDRESSES: Final = {
    _STREAM_OVER_IPV4: (socket.AF_INET, struct.Struct(">4s4sHH")),
    _STREAM_OVER_IPV6: (socket.AF_INET6, struct.Struct(">16s16sHH")),
}


#: Unspecified, datagrams and Unix sockets. A receiver that does not use their addresses uses those of the connection.
_WITHOUT_ADDRESS: Final = frozenset({0x00, 0x12, 0x22, 0x31, 0x32})


class MalformedHeader(ValueError):
    """The bytes do not begin with a header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A header: its length in bytes, and the address and port of the client. Without one, the client is the peer."""

    length: int
    client: tuple[str, int] | None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of `data`, None if more bytes are needed. Raises MalformedHeader."""
    if data.startswith(_SIGNATURE[: len(data)]):
        return _read_binary(data)
    if data.startswith(_WORD[: len(data)]):
        return _read_line(data)
    raise MalformedHeader


def _read_line(data: bytes) -> ProxyHeader | None:
    """Version 1 (section 2.1)."""
    end = data.find(b"\r\n", 0, _MAX_LINE_BYTES)
    if end < 0:
        if len(data) >= _MAX_LINE_BYTES:
            raise MalformedHeader
        return None
    content, length = data[len(_WORD) : end], end + 2
    if content.partition(b" ")[0] == _UNKNOWN:  # whatever follows is to be ignored
        return ProxyHeader(length, None)
    fields = _LINE.fullmatch(content)
    if fields is None:
        raise MalformedHeader
    family, source, target, source_port, target_port = fields.groups()
    try:
        packed, _ = (socket.inet_pton(_LINE_FAMILIES[family], address.decode()) for address in (source, target))
    except OSError as error:
        raise MalformedHeader from error
    if max(int(source_port), int(target_port)) > 0xFFFF:
        raise MalformedHeader
    return ProxyHeader(length, (socket.inet_ntop(_LINE_FAMILIES[family], packed), int(source_port)))


def _read_binary(data: bytes) -> ProxyHeader | None:
    """Version 2 (section 2.2)."""
    if len(data) < _START_BYTES:
        return None
    command, family, rest = _START.unpack_from(data, len(_SIGNATURE))
    length = _START_BYTES + rest
    # The longest header of version 2, with its TLVs. The specification permits 64 KiB; the TLVs are not used here.
    if command not in (_LOCAL, _PROXY) or length > 4_096:
        raise MalformedHeader
    has_address = command == _PROXY and family in _ADDRESSES
    if command == _PROXY and not has_address and family not in _WITHOUT_ADDRESS:
        raise MalformedHeader
    if has_address and rest < _ADDRESSES[family][1].size:
        raise MalformedHeader
    if len(data) < length:
        return None
    if not has_address:
        return ProxyHeader(length, None)
    kind, layout = _ADDRESSES[family]
    source, _, port, _ = layout.unpack_from(data, _START_BYTES)
    return ProxyHeader(length, (socket.inet_ntop(kind, source), port))
