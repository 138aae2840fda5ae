"""Headers of the PROXY protocol, version 1 and 2."""

from __future__ import annotations

import socket
import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.server.proxy_header import MalformedHeader, read_proxy_header
from tests.table import table

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
IPV4: Final = socket.inet_aton("198.51.100.7") + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 56_324, 443)
IPV6: Final = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 56_324, 443)
)
#: A TLV of the type PP2_TYPE_NOOP.
TLV: Final = b"\x04\x00\x03abc"


def binary(command: int, family: int, rest: bytes = b"", length: int | None = None) -> bytes:
    """A header of version 2."""
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest) if length is None else length) + rest


#: Headers, and the clients that they name.
HEADERS: Final[list[tuple[bytes, tuple[str, int] | None]]] = [
    (b"PROXY TCP4 198.51.100.7 192.0.2.1 56324 443\r\n", ("198.51.100.7", 56_324)),
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65_535)),
    (b"PROXY TCP6 2001:DB8:0::7 2001:db8::1 0 443\r\n", ("2001:db8::7", 0)),
    (b"PROXY TCP6 ::ffff:198.51.100.7 ::1 1 2\r\n", ("::ffff:198.51.100.7", 1)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:ffff::ffff anything 65535 65535\r\n", None),
    (binary(0x21, 0x11, IPV4), ("198.51.100.7", 56_324)),
    (binary(0x21, 0x11, IPV4 + TLV), ("198.51.100.7", 56_324)),
    (binary(0x21, 0x21, IPV6), ("2001:db8::7", 56_324)),
    (binary(0x21, 0x11, IPV4 + bytes(4_068)), ("198.51.100.7", 56_324)),
    # A health check of the front proxy. The family of LOCAL is to be ignored.
    (binary(0x20, 0x00), None),
    (binary(0x20, 0x11, IPV4), None),
    (binary(0x20, 0xFF, TLV), None),
    # Unspecified, UDP and Unix sockets.
    (binary(0x21, 0x00, TLV), None),
    (binary(0x21, 0x12, IPV4), None),
    (binary(0x21, 0x31, bytes(216)), None),
]
MALFORMED: Final = [
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00",
    b"proxy TCP4 198.51.100.7 192.0.2.1 56324 443\r\n",
    b"PROXY\tTCP4 198.51.100.7 192.0.2.1 56324 443\r\n",
    b"PROXY \r\n",
    b"PROXY UNKNOWNS\r\n",
    b"PROXY UDP4 198.51.100.7 192.0.2.1 56324 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 56324\r\n",
    b"PROXY TCP4  198.51.100.7 192.0.2.1 56324 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 56324 443 \r\n",
    b"PROXY TCP4 198.51.100.007 192.0.2.1 56324 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.256 56324 443\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 56324 443\r\n",
    b"PROXY TCP6 198.51.100.7 192.0.2.1 56324 443\r\n",
    b"PROXY TCP6 fe80::1%eth0 2001:db8::1 56324 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 65536 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 056 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 +56 443\r\n",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 56324 443\n" + b" " * 80,
    b"PROXY UNKNOWN " + b"a" * 93,
    SIGNATURE[:-1] + b"\r",
    binary(0x11, 0x11, IPV4),
    binary(0x22, 0x11, IPV4),
    binary(0x21, 0x13, IPV4),
    binary(0x21, 0x41, IPV4),
    binary(0x21, 0x11, IPV4[:-1]),
    binary(0x21, 0x21, IPV4),
    binary(0x21, 0x11, length=4_081),
    binary(0x20, 0x00, length=0xFFFF),
]


@table(("header", "client"), HEADERS)
def test_a_header_names_the_client_and_ends_where_the_next_protocol_begins(
    header: bytes, client: tuple[str, int] | None
) -> None:
    for rest in (b"", b"GET / HTTP/1.1\r\n", header):
        found = read_proxy_header(header + rest)
        assert found is not None
        assert (found.length, found.client) == (len(header), client)


@table(("header", "client"), HEADERS)
def test_every_beginning_of_a_header_waits_for_the_rest(header: bytes, client: tuple[str, int] | None) -> None:
    assert [read_proxy_header(header[:length]) for length in range(len(header))] == [None] * len(header)


@table("data", MALFORMED)
def test_anything_else_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedHeader):
        read_proxy_header(data)


@given(st.binary(max_size=60), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_whatever_arrives_is_a_header_or_malformed_or_not_complete_within_4_kib(data: bytes, start: bytes) -> None:
    try:
        found = read_proxy_header(start + data)
        if found is None:
            found = read_proxy_header(start + data + bytes(4_096))
            assert found is not None
    except MalformedHeader:
        return
    assert found.length <= 4_096
    if found.client is not None:
        assert 0 <= found.client[1] <= 0xFFFF
