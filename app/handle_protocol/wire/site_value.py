"""The data of HS_SITE and its relatives: the servers of a service (RFC 3651, section 3.2.2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Any, Final

import msgspec

from handle_protocol.errors import AnswerTooLarge, MalformedMessage
from handle_protocol.value import MAX_VALUES

U8: Final = Struct(">B")
U16: Final = Struct(">H")
U32: Final = Struct(">I")
I32: Final = Struct(">i")
#: A string or a list begins with its length or its number of elements.
COUNT_BYTES: Final = U32.size


class FieldReader:
    """Reads the fields of `data` in order. `part` is the name of the data in messages.

    Every length is compared with the bytes that remain before anything is read or allocated. Raises MalformedMessage.
    """

    __slots__ = ("_data", "_offset", "_part")

    def __init__(self, data: bytes, part: str) -> None:
        self._data = data
        self._offset = 0
        self._part = part

    @property
    def remaining(self) -> int:
        """Bytes that are not read yet."""
        return len(self._data) - self._offset

    def numbers(self, layout: Struct) -> tuple[Any, ...]:
        """The numbers of a fixed layout."""
        start, end = self._offset, self._offset + layout.size
        if end > len(self._data):
            raise self._too_short(layout.size)
        self._offset = end
        return layout.unpack_from(self._data, start)

    def number(self, layout: Struct) -> int:
        """The only number of a layout."""
        value: int = self.numbers(layout)[0]
        return value

    def take(self, length: int) -> bytes:
        """The next bytes."""
        start, end = self._offset, self._offset + length
        if end > len(self._data):
            raise self._too_short(length)
        self._offset = end
        return self._data[start:end]

    def string(self) -> bytes:
        """A string: its length in 4 bytes, then its bytes. They are not always UTF-8."""
        return self.take(self.numbers(U32)[0])

    def count(self, smallest: int, most: int | None = None) -> int:
        """The number of elements of a list. Each takes at least `smallest` bytes, and there are at most `most`."""
        count = self.number(U32)
        if count * smallest > self.remaining:
            raise self.malformed(f"{count} elements are announced and {self.remaining} bytes remain")
        if most is not None and count > most:
            raise self.malformed(f"there are {count} elements, and the limit is {most}")
        return count

    def skip(self, count: int, after: int) -> None:
        """Pass over `count` elements, each a string followed by `after` bytes. 120,000 take 17 ms."""
        data, offset, read = self._data, self._offset, U32.unpack_from
        try:
            for _ in range(count):
                offset += COUNT_BYTES + after + read(data, offset)[0]
        except struct.error:
            offset = len(data) + 1
        if offset > len(data):
            raise self.malformed(f"{count} elements are announced, and they do not end")
        self._offset = offset

    def rest(self) -> bytes:
        """All bytes that are not read yet."""
        return self.take(self.remaining)

    def finish(self) -> None:
        """Refuse bytes after the last field."""
        if self.remaining:
            raise self.malformed(f"{self.remaining} bytes follow the last field")

    def _too_short(self, length: int) -> MalformedMessage:
        return self.malformed(f"{length} bytes are announced and {self.remaining} remain")

    def malformed(self, reason: str) -> MalformedMessage:
        """The error for a field before the current offset."""
        return MalformedMessage(detail=f"{self._part}, offset {self._offset}: {reason}")


def encode_string(value: bytes) -> bytes:
    """A string with its length."""
    return U32.pack(len(value)) + value


def encode_count(items: tuple[object, ...]) -> bytes:
    """The number of elements of a list."""
    return U32.pack(len(items))


RSA: Final = b"RSA_PUB_KEY"
DSA: Final = b"DSA_PUB_KEY"
#: RSA: exponent and modulus. DSA: q, p, g and y.
_NUMBERS: Final = {RSA: 2, DSA: 4}
#: The reference software writes four zero bytes after an RSA key. It ignores what follows a key when it reads one.
RSA_PADDING: Final = bytes(4)


@dataclass(frozen=True, slots=True)
class KeyNumbers:
    """A public key. The numbers are two's complement, so most of them begin with a zero byte."""

    type: bytes
    numbers: tuple[bytes, ...]
    flags: int = 0
    #: What follows the numbers. It has no meaning.
    rest: bytes = b""


def decode_public_key(data: bytes) -> KeyNumbers:
    """A public key of a known type. Raises MalformedMessage."""
    reader = FieldReader(data, "public key")
    key_type, flags = reader.string(), reader.number(U16)
    if key_type not in _NUMBERS:
        raise reader.malformed(f"the type {key_type[:40]!r} is not known")
    numbers = tuple(reader.string() for _ in range(_NUMBERS[key_type]))
    return KeyNumbers(key_type, numbers, flags, reader.rest())


def encode_public_key(key: KeyNumbers) -> bytes:
    """The data of an HS_PUBKEY value."""
    numbers = b"".join(map(encode_string, key.numbers))
    return encode_string(key.type) + U16.pack(key.flags) + numbers + key.rest


Address = IPv4Address | IPv6Address
_HEAD: Final = Struct(">HBBHBB")
_INTERFACE: Final = Struct(">BBI")
_ADDRESS_BYTES: Final = 16
# RFC 3651 has ::ffff:a.b.c.d. Its erratum and the servers have ::a.b.c.d.
_IPV4_START: Final = bytes(12)
_LOOPBACK: Final = IPv6Address("::1")


class TransportProtocol(IntEnum):
    """The transport protocol of an interface."""

    UDP = 0
    TCP = 1
    HTTP = 2
    HTTPS = 3


class Purpose(IntFlag):
    """What an interface is for. 0 is an interface out of service."""

    ADMIN = 1
    QUERY = 2


class SiteKind(IntFlag):
    """The role of a site in its service."""

    PRIMARY = 0x80
    SEVERAL_PRIMARIES = 0x40


class HashOption(IntEnum):
    """The part of a handle that selects the server."""

    PREFIX = 0
    SUFFIX = 1
    HANDLE = 2


@dataclass(frozen=True, slots=True)
class Interface:
    """A port of a server."""

    purpose: int
    protocol: int
    port: int


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a site."""

    id: int
    #: 16 bytes; an IPv4 address is the last four.
    address: bytes
    #: The data of an HS_PUBKEY value; empty if the server does not sign.
    public_key: bytes
    interfaces: tuple[Interface, ...]

    @property
    def ip(self) -> IPv4Address | IPv6Address:
        """The address. ::1 and 0.0.0.1 are the same bytes; they are read as ::1."""
        address = IPv6Address(self.address)
        if self.address.startswith(_IPV4_START) and address != _LOOPBACK:
            return IPv4Address(self.address[len(_IPV4_START) :])
        return address.ipv4_mapped or address


@dataclass(frozen=True, slots=True)
class ServiceSite:
    """The servers that share the names of a service. A name's hash selects the server by its position."""

    serial: int
    servers: tuple[Server, ...]
    kind: int = SiteKind.PRIMARY
    hash_option: int = HashOption.HANDLE
    attributes: tuple[tuple[bytes, bytes], ...] = ()
    hash_filter: bytes = b""
    format_version: int = 1
    major: int = 2
    minor: int = 11

    @property
    def is_primary(self) -> bool:
        """Whether records are changed at this site. All other sites copy it."""
        return bool(self.kind & SiteKind.PRIMARY)

    def attribute(self, name: bytes) -> bytes | None:
        """The first attribute of this name."""
        return next((value for key, value in self.attributes if key == name), None)


def pack_address(address: IPv4Address | IPv6Address) -> bytes:
    """The 16 bytes of the address of a server."""
    return address.packed.rjust(_ADDRESS_BYTES, b"\0")


def decode_site(data: bytes) -> ServiceSite:
    """The data of an HS_SITE value. Raises MalformedMessage."""
    reader = FieldReader(data, "site")
    format_version, major, minor, serial, kind, hash_option = reader.numbers(_HEAD)
    hash_filter = reader.string()
    # The smallest attribute and server, and at most 100 of each in one site. Sites in use have a few.
    count = reader.count(2 * COUNT_BYTES, 100)
    attributes = tuple((reader.string(), reader.string()) for _ in range(count))
    servers = tuple(_read_server(reader) for _ in range(reader.count(U32.size + _ADDRESS_BYTES + 2 * COUNT_BYTES, 100)))
    reader.finish()
    return ServiceSite(serial, servers, kind, hash_option, attributes, hash_filter, format_version, major, minor)


def _read_server(reader: FieldReader) -> Server:
    number, address, public_key = reader.number(U32), reader.take(_ADDRESS_BYTES), reader.string()
    # Of one server.
    count = reader.count(_INTERFACE.size, 8)
    return Server(number, address, public_key, tuple(Interface(*reader.numbers(_INTERFACE)) for _ in range(count)))


def encode_site(site: ServiceSite) -> bytes:
    """The data of an HS_SITE value."""
    head = _HEAD.pack(site.format_version, site.major, site.minor, site.serial, site.kind, site.hash_option)
    attributes = b"".join(encode_string(name) + encode_string(value) for name, value in site.attributes)
    return b"".join(
        (
            head,
            encode_string(site.hash_filter),
            encode_count(site.attributes),
            attributes,
            encode_count(site.servers),
            *map(_encode_server, site.servers),
        )
    )


def _encode_server(server: Server) -> bytes:
    interfaces = b"".join(
        _INTERFACE.pack(interface.purpose, interface.protocol, interface.port) for interface in server.interfaces
    )
    key = encode_string(server.public_key)
    return U32.pack(server.id) + server.address + key + encode_count(server.interfaces) + interfaces


# RFC 3651 has a timestamp of 8 bytes in milliseconds. Its erratum and the servers have seconds in 4 bytes.
_FIXED: Final = Struct(">iIBiB")
_SMALLEST_REFERENCE_BYTES: Final = COUNT_BYTES + I32.size
#: References of one message that are read. Records in use have a few. 120,000 in 1 MiB would take 0.4 s.
_MAX_REFERENCES: Final = 1_000


class Permission(IntFlag):
    """The permissions of a value (RFC 3651, section 3.1), in the order of the REST API's four digits."""

    ADMIN_READ = 8
    ADMIN_WRITE = 4
    PUBLIC_READ = 2
    PUBLIC_WRITE = 1


class TtlType(IntEnum):
    """What the TTL of a value counts (RFC 3651, section 3.1)."""

    RELATIVE = 0
    ABSOLUTE = 1


class ValueReference(msgspec.Struct, frozen=True, gc=False):
    """A handle, and the index of one of its values. A record can have thousands."""

    handle: bytes
    index: int


@dataclass(frozen=True, slots=True)
class Value:
    """One handle value. Type and data are bytes, because they are not always UTF-8."""

    index: int
    type: bytes
    data: bytes
    ttl: int = 86_400
    ttl_type: int = TtlType.RELATIVE
    permissions: int = Permission.ADMIN_READ | Permission.ADMIN_WRITE | Permission.PUBLIC_READ
    #: Seconds since the epoch.
    timestamp: int = 0
    references: tuple[ValueReference, ...] = ()


def read_value_list(reader: FieldReader) -> tuple[Value, ...]:
    """A list of values in the server's order. References beyond the first thousand are ignored.

    Raises AnswerTooLarge, and MalformedMessage.
    """
    values: list[Value] = []
    # A value with an empty type, empty data and no references.
    room, count = _MAX_REFERENCES, reader.count(_FIXED.size + 3 * COUNT_BYTES)
    if count > MAX_VALUES:
        raise AnswerTooLarge(f"The record has {count} values; the limit is {MAX_VALUES}.")
    for _ in range(count):
        index, timestamp, ttl_type, ttl, permissions = reader.numbers(_FIXED)
        value_type, data, announced = reader.string(), reader.string(), reader.count(_SMALLEST_REFERENCE_BYTES)
        references = _read_references(reader, min(announced, room))
        reader.skip(announced - len(references), I32.size)
        room -= len(references)
        values.append(Value(index, value_type, data, ttl, ttl_type, permissions, timestamp, references))
    return tuple(values)


def decode_references(data: bytes) -> tuple[ValueReference, ...]:
    """The data of an HS_VLIST value: a list of references (RFC 3651, section 3.2.7). Raises MalformedMessage."""
    reader = FieldReader(data, "HS_VLIST")
    references = _read_references(reader, reader.count(_SMALLEST_REFERENCE_BYTES, _MAX_REFERENCES))
    reader.finish()
    return references


def _read_references(reader: FieldReader, count: int) -> tuple[ValueReference, ...]:
    return tuple(ValueReference(reader.string(), reader.number(I32)) for _ in range(count))
