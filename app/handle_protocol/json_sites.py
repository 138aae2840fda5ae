"""Site values in the JSON of the handle API, as a bootstrap file and the cache have them.

A bootstrap file is the handle API's answer about 0.NA/0.NA, as `curl https://hdl.handle.net/api/handles/0.NA/0.NA` gets
it: the root's sites, from which every handle is found. It is the trusted start of all signatures.
"""

from __future__ import annotations

import struct
from base64 import b64decode, urlsafe_b64decode
from codecs import BOM_UTF8
from ipaddress import ip_address
from typing import Final, Literal

import msgspec

from handle_protocol.answer import read_answer
from handle_protocol.errors import HandleProtocolError, InvalidRecord, InvalidSite
from handle_protocol.record import Record, parse_record
from handle_protocol.referral import ROOT_HANDLE, HandleService
from handle_protocol.value import HandleValue
from handle_protocol.wire import site_value
from handle_protocol.wire.public_key import DSA, RSA, RSA_PADDING, KeyNumbers, encode_public_key
from handle_protocol.wire.value import TtlType, Value

#: Bytes of a bootstrap file. A root record of ten sites with RSA keys has about 20 kB.
MAX_BOOTSTRAP_BYTES: Final = 1024 * 1024
#: Values of one record. Root records in use have fewer than ten.
_MAX_SITES: Final = 100
#: Keys of the root with which a certificate is compared.
MAX_ROOT_KEYS: Final = 16
_SITES: Final = frozenset(("HS_SITE", "HS_SITE.6"))
_SERVICES: Final = frozenset(("HS_SERV",))


class _JsonInterface(msgspec.Struct):
    #: A name, or the number of a protocol that has none here.
    protocol: Literal["UDP", "TCP", "HTTP", "HTTPS"] | int
    port: int
    query: bool = False
    admin: bool = False


class _JsonKey(msgspec.Struct):
    format: str
    value: dict[str, str] | str


class _JsonServer(msgspec.Struct, rename="camel"):
    server_id: int
    address: str
    interfaces: list[_JsonInterface]
    public_key: _JsonKey | None = None


class _JsonAttribute(msgspec.Struct):
    name: str
    value: str


class _JsonSite(msgspec.Struct, rename="camel"):
    serial_number: int
    primary_site: bool
    servers: list[_JsonServer]
    version: int = 1
    protocol_version: str = "2.11"
    multi_primary: bool = False
    hash_option: int = site_value.HashOption.HANDLE
    hash_filter: str = ""
    attributes: list[_JsonAttribute] = []  # msgspec copies an empty list for each object


class _JsonSites(msgspec.Struct):
    values: msgspec.Raw


class _JsonData(msgspec.Struct):
    format: Literal["site"]
    value: _JsonSite


class _JsonValue(msgspec.Struct):
    data: _JsonData


_decoder: Final = msgspec.json.Decoder(_JsonValue)
_site: Final = msgspec.json.Decoder(_JsonSite)
_answer: Final = msgspec.json.Decoder(_JsonSites)


def read_sites(record: Record, types: tuple[str, ...]) -> tuple[site_value.ServiceSite, ...]:
    """The site values of these types, in the order of the types. Raises InvalidRecord if one cannot be read."""
    values = [value for name in types for value in record.of_type(name)]
    return tuple(read_site(value.raw) for value in values[:_MAX_SITES])


def read_service_values(record: Record) -> tuple[Value, ...]:
    """The values of a record that name sites and service handles, as the wire has them. Others are left out."""
    named = [value for value in record.values if value.folded_type in _SITES | _SERVICES][:_MAX_SITES]
    return tuple(value for named_value in named if (value := _to_wire(named_value)) is not None)


def read_bootstrap(content: bytes) -> HandleService:
    """The root. It is verified if one of its servers has a public key. Raises InvalidSite."""
    return _read_root(content)[0]


def read_bootstrap_keys(content: bytes) -> tuple[bytes, ...]:
    """The data of the HS_PUBKEY values of the root, then the keys of its servers. Raises InvalidSite."""
    root, record = _read_root(content)
    own = [_read_public_key(value.data.value) for value in record.of_type("HS_PUBKEY")[:_MAX_SITES]]
    keys = (*own, *(server.public_key for site in root.sites for server in site.servers))
    return tuple(dict.fromkeys(key for key in keys if key))[:MAX_ROOT_KEYS]


def _read_public_key(data: object) -> bytes:
    try:
        return _to_key(msgspec.convert({"format": "key", "value": data}, _JsonKey))
    except ValueError:
        return b""


def _read_root(content: bytes) -> tuple[HandleService, Record]:
    if len(content) > MAX_BOOTSTRAP_BYTES:
        raise InvalidSite(f"the file has over {MAX_BOOTSTRAP_BYTES} bytes, which no root record has")
    try:
        record = parse_record(read_answer(content, ROOT_HANDLE.decode()).values)
        sites = read_sites(record, ("HS_SITE", "HS_SITE.6"))
    except HandleProtocolError as error:
        raise InvalidSite(
            f"the file is not the handle API's answer about {ROOT_HANDLE.decode()}: {error.detail or error.message}"
        ) from error
    if not any(site.servers for site in sites):
        raise InvalidSite("the file names no server of the root")
    is_verified = any(server.public_key for site in sites for server in site.servers)
    return HandleService(sites, is_verified=is_verified), record


def _to_wire(value: HandleValue) -> Value | None:
    try:
        data = (
            site_value.encode_site(read_site(value.raw)) if value.folded_type in _SITES else (value.text or "").encode()
        )
    except (InvalidRecord, struct.error):
        return None
    kind = TtlType.ABSOLUTE if value.ttl.absolute else TtlType.RELATIVE
    return Value(value.index, value.folded_type.encode(), data, ttl=int(value.ttl.seconds), ttl_type=kind)


def read_site_file(content: bytes) -> HandleService:
    """The sites in a file: siteinfo.json, siteinfo.bin, or the handle API's answer about a prefix.

    The operator vouches for their keys. Raises InvalidSite.
    """
    text = content.removeprefix(BOM_UTF8).lstrip()
    try:
        if text[:1] != b"{":
            sites: tuple[site_value.ServiceSite, ...] = (site_value.decode_site(content),)
        elif b'"values"' in text:
            sites = read_sites(parse_record(bytes(_answer.decode(text).values)), ("HS_SITE", "HS_SITE.6"))
        else:
            sites = (_to_site(_site.decode(text)),)
    except (HandleProtocolError, msgspec.DecodeError, ValueError, RecursionError) as error:
        detail = error.detail if isinstance(error, HandleProtocolError) else error
        raise InvalidSite(f"the file has no site that can be read: {str(detail)[:200]}") from error
    if not any(site.servers for site in sites):
        raise InvalidSite("the file names no server")
    return HandleService(sites, is_verified=True)


def read_site(raw: bytes) -> site_value.ServiceSite:
    """The site of a value, given the JSON of the value. Raises InvalidRecord."""
    try:
        return _to_site(_decoder.decode(raw).data.value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRecord("The record has a site value that cannot be read.", detail=str(error)[:200]) from error


def _to_site(site: _JsonSite) -> site_value.ServiceSite:
    major, _, minor = site.protocol_version.partition(".")
    return site_value.ServiceSite(
        serial=_to_unsigned(site.serial_number, 16),
        servers=tuple(map(_to_server, site.servers)),
        kind=site_value.SiteKind.PRIMARY * site.primary_site
        | site_value.SiteKind.SEVERAL_PRIMARIES * site.multi_primary,
        hash_option=_to_unsigned(site.hash_option, 8),
        attributes=tuple((item.name.encode(), item.value.encode()) for item in site.attributes),
        hash_filter=site.hash_filter.encode(),
        format_version=_to_unsigned(site.version, 16),
        major=_to_unsigned(int(major), 8),
        minor=_to_unsigned(int(minor), 8),
    )


def _to_server(server: _JsonServer) -> site_value.Server:
    interfaces = tuple(
        site_value.Interface(
            site_value.Purpose.QUERY * interface.query | site_value.Purpose.ADMIN * interface.admin,
            site_value.TransportProtocol[interface.protocol]
            if isinstance(interface.protocol, str)
            else _to_unsigned(interface.protocol, 8),
            _to_unsigned(interface.port, 32),
        )
        for interface in server.interfaces
    )
    number, address = _to_unsigned(server.server_id, 32), site_value.pack_address(ip_address(server.address))
    return site_value.Server(number, address, _to_key(server.public_key), interfaces)


def _to_unsigned(number: int, bits: int) -> int:
    """A number of the wire. The JSON of reference servers has it with a sign. Raises ValueError."""
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise ValueError(f"{number} has over {bits} bits")
    return number % (1 << bits)


def _to_key(key: _JsonKey | None) -> bytes:
    if key is None:
        return b""
    if isinstance(key.value, str):
        return b64decode(key.value, validate=True)
    try:
        return read_key(key.value)
    except KeyError:
        return b""  # the server does not sign with a key that this program knows


def read_key(members: dict[str, str]) -> bytes:
    """The data of an HS_PUBKEY value, given the members of a JSON Web Key. Raises KeyError for another type of key."""
    key_type, names = {"RSA": (RSA, ("e", "n")), "DSA": (DSA, ("q", "p", "g", "y"))}[members["kty"]]
    rest = RSA_PADDING if key_type == RSA else b""
    return encode_public_key(KeyNumbers(key_type, _read_numbers(members, *names), rest=rest))


def _read_numbers(members: dict[str, str], *names: str) -> tuple[bytes, ...]:
    return tuple(_read_number(members.get(name, "")) for name in names)


def _read_number(text: str) -> bytes:
    # RFC 7518, section 2: base64url without padding. The wire has two's complement, so a high bit needs a zero byte.
    number = int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
    return number.to_bytes(number.bit_length() // 8 + 1, "big")
