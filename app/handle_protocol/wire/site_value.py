"""The data of HS_SITE and its relatives: the servers of a service (RFC 3651, section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final

from handle_protocol.wire import fields

Address = IPv4Address | IPv6Address
_HEAD: Final = Struct(">HBBHBB")
_INTERFACE: Final = Struct(">BBI")
_ADDRESS_BYTES: Final = 16
_SMALLEST_SERVER_BYTES: Final = fields.U32.size + _ADDRESS_BYTES + 2 * fields.COUNT_BYTES
_SMALLEST_ATTRIBUTE_BYTES: Final = 2 * fields.COUNT_BYTES
#: Of one site. Sites in use have a few of each.
_MAX_SERVERS: Final = 100
_MAX_ATTRIBUTES: Final = 100
#: Of one server.
_MAX_INTERFACES: Final = 8
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
    reader = fields.FieldReader(data, "site")
    format_version, major, minor, serial, kind, hash_option = reader.numbers(_HEAD)
    hash_filter = reader.string()
    count = reader.count(_SMALLEST_ATTRIBUTE_BYTES, _MAX_ATTRIBUTES)
    attributes = tuple((reader.string(), reader.string()) for _ in range(count))
    servers = tuple(_read_server(reader) for _ in range(reader.count(_SMALLEST_SERVER_BYTES, _MAX_SERVERS)))
    reader.finish()
    return ServiceSite(serial, servers, kind, hash_option, attributes, hash_filter, format_version, major, minor)


def _read_server(reader: fields.FieldReader) -> Server:
    number, address, public_key = reader.number(fields.U32), reader.take(_ADDRESS_BYTES), reader.string()
    count = reader.count(_INTERFACE.size, _MAX_INTERFACES)
    return Server(number, address, public_key, tuple(Interface(*reader.numbers(_INTERFACE)) for _ in range(count)))


def encode_site(site: ServiceSite) -> bytes:
    """The data of an HS_SITE value."""
    head = _HEAD.pack(site.format_version, site.major, site.minor, site.serial, site.kind, site.hash_option)
    attributes = b"".join(fields.encode_string(name) + fields.encode_string(value) for name, value in site.attributes)
    return b"".join(
        (
            head,
            fields.encode_string(site.hash_filter),
            fields.encode_count(site.attributes),
            attributes,
            fields.encode_count(site.servers),
            *map(_encode_server, site.servers),
        )
    )


def _encode_server(server: Server) -> bytes:
    interfaces = b"".join(
        _INTERFACE.pack(interface.purpose, interface.protocol, interface.port) for interface in server.interfaces
    )
    key = fields.encode_string(server.public_key)
    return fields.U32.pack(server.id) + server.address + key + fields.encode_count(server.interfaces) + interfaces
