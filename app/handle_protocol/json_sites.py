"""Site values in the JSON of the handle API, as a bootstrap file and the cache have them.

A bootstrap file is the handle API's answer about 0.NA/0.NA, as `curl https://hdl.handle.net/api/handles/0.NA/0.NA` gets
it: the root's sites, from which every handle is found. It is the trusted start of all signatures.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Any, Final, Literal

import msgspec

from handle_protocol.errors import HandleProtocolError, InvalidRecord, InvalidSite, MalformedMessage
from handle_protocol.referral import ROOT_HANDLE, HandleService, read_answer
from handle_protocol.value import HandleValue, Record, escape_separators, parse_record
from handle_protocol.wire import site_value
from handle_protocol.wire.message import encode_references
from handle_protocol.wire.site_value import (
    DSA,
    I32,
    RSA,
    RSA_PADDING,
    U16,
    FieldReader,
    KeyNumbers,
    Permission,
    TtlType,
    Value,
    ValueReference,
    decode_public_key,
    decode_references,
    encode_public_key,
    encode_site,
    encode_string,
)

#: Bytes of a bootstrap file. A root record of ten sites with RSA keys has about 20 kB.
MAX_BOOTSTRAP_BYTES: Final = 1024 * 1024
#: Values of one record. Root records in use have fewer than ten.
_MAX_SITES: Final = 100
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
    # Keys of the root with which a certificate is compared.
    return tuple(dict.fromkeys(key for key in keys if key))[:16]


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
    numbers = tuple(_read_number(members.get(name, "")) for name in names)
    return encode_public_key(KeyNumbers(key_type, numbers, rest=rest))


def _read_number(text: str) -> bytes:
    # RFC 7518, section 2: base64url without padding. The wire has two's complement, so a high bit needs a zero byte.
    number = int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


#: The flags as numbers: `in` and `&` of a flag take a microsecond each.
_PUBLIC_READ: Final = Permission.PUBLIC_READ.value
_USUAL: Final = (Permission.ADMIN_READ | Permission.ADMIN_WRITE | Permission.PUBLIC_READ).value
_QUERY: Final = site_value.Purpose.QUERY.value
_ADMIN: Final = site_value.Purpose.ADMIN.value
_PROTOCOLS: Final = {protocol.value: protocol.name for protocol in site_value.TransportProtocol}
_ADMIN_PERMISSIONS: Final = Struct(">H")
#: Old servers wrote two bytes too many after an administrator. Many records still have them.
LEGACY_ADMIN_BYTES: Final = 2
#: Data with one of these bytes is base64 (Util.looksLikeBinary of the reference server). Line ends and tabs are text.
_BINARY: Final = bytes((*range(0x09), *range(0x14, 0x20), 0x7F))


def write_json_values(values: Iterable[Value]) -> bytes:
    """The JSON array of the values that the public may read, in the server's order."""
    # Data of one record that is explained; more is text or base64. Sites and lists become JSON of eight times their
    # size, and 1 MiB of them would take a second. A site value of three servers has 2 kB.
    room, objects = 64 * 1024, []
    for value in values:
        if value.permissions & _PUBLIC_READ:
            # A type is explained with its subtypes.
            explain = _EXPLANATIONS.get(value.type.upper().partition(b".")[0])
            if explain is not None:
                room -= len(value.data)
            objects.append(_to_object(value, explain if room >= 0 else None))
    return escape_separators(msgspec.json.encode(objects))


def _to_object(value: Value, explain: Callable[[bytes], dict[str, Any]] | None) -> dict[str, Any]:
    members: dict[str, Any] = {"index": value.index, "type": value.type.decode("utf-8", "replace")}
    members["data"] = _to_data(value.data, explain)
    if value.permissions != _USUAL:
        members["permissions"] = f"{value.permissions & 0b1111:04b}"
    members["ttl"] = value.ttl if value.ttl_type == TtlType.RELATIVE else _to_time(value.ttl)
    if value.timestamp:
        members["timestamp"] = _to_time(_to_signed(value.timestamp))
    if value.references:
        members["references"] = _to_references(value.references)
    return members


def _to_signed(number: int, bits: int = 32) -> int:
    return number - (number >> (bits - 1) << bits)


def _to_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _to_references(references: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"handle": item.handle.decode("utf-8", "replace"), "index": item.index} for item in references]


def _to_data(data: bytes, explain: Callable[[bytes], dict[str, Any]] | None) -> dict[str, Any]:
    """The data in the format of its type. Data that its type does not explain is base64 if it is binary, else text."""
    if explain is not None:
        try:
            return explain(data)
        except MalformedMessage:
            pass
    # A regular expression takes ten times as long.
    if len(data.translate(None, _BINARY)) == len(data):
        try:
            return {"format": "string", "value": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"format": "base64", "value": b64encode(data).decode()}


def _to_admin(data: bytes) -> dict[str, Any]:
    reader = FieldReader(data, "HS_ADMIN")
    permissions, handle, index = reader.number(_ADMIN_PERMISSIONS), reader.string(), reader.number(I32)
    is_legacy = reader.remaining == LEGACY_ADMIN_BYTES
    reader.take(LEGACY_ADMIN_BYTES * is_legacy)
    reader.finish()
    # The permissions of an administrator that have a name. The JSON has a digit for each.
    digits = f"{permissions & 0xFFF:012b}"
    members = {"handle": handle.decode("utf-8", "replace"), "index": index, "permissions": digits}
    if is_legacy:
        members["legacyByteLength"] = True
    return {"format": "admin", "value": members}


def _explain_key(data: bytes) -> dict[str, Any]:
    key = decode_public_key(data)
    # The members of a JSON Web Key in the order of the key's numbers (RFC 7518, section 6.3.1; DSA has no RFC).
    members = dict(zip({RSA: ("e", "n"), DSA: ("q", "p", "g", "y")}[key.type], key.numbers, strict=True))
    numbers = {name: _to_base64url(members[name]) for name in ("n", "e", "y", "p", "q", "g") if name in members}
    return {"format": "key", "value": {"kty": key.type.partition(b"_")[0].decode(), **numbers}}


def _to_base64url(number: bytes) -> str:
    # RFC 7518, section 2: without leading zero bytes, and without padding.
    return urlsafe_b64encode(number.lstrip(b"\0") or b"\0").decode().rstrip("=")


def _explain_site(data: bytes) -> dict[str, Any]:
    site = site_value.decode_site(data)
    members: dict[str, Any] = {
        "version": _to_signed(site.format_version, 16),
        "protocolVersion": f"{_to_signed(site.major, 8)}.{_to_signed(site.minor, 8)}",
        "serialNumber": _to_signed(site.serial, 16),
        "primarySite": site.is_primary,
        "multiPrimary": bool(site.kind & site_value.SiteKind.SEVERAL_PRIMARIES),
    }
    if site.hash_option != site_value.HashOption.HANDLE:
        members["hashOption"] = _to_signed(site.hash_option, 8)
    if site.hash_filter:
        members["hashFilter"] = site.hash_filter.decode("utf-8", "replace")
    members["attributes"] = [
        {"name": name.decode("utf-8", "replace"), "value": value.decode("utf-8", "replace")}
        for name, value in site.attributes
    ]
    members["servers"] = [_explain_server(server) for server in site.servers]
    return {"format": "site", "value": members}


def _explain_server(server: site_value.Server) -> dict[str, Any]:
    try:
        key = _explain_key(server.public_key)
    except MalformedMessage:
        key = {"format": "base64", "value": b64encode(server.public_key).decode()}
    interfaces = [
        {
            "query": bool(interface.purpose & _QUERY),
            "admin": bool(interface.purpose & _ADMIN),
            "protocol": _PROTOCOLS.get(interface.protocol, _to_signed(interface.protocol, 8)),
            "port": _to_signed(interface.port),
        }
        for interface in server.interfaces
    ]
    # The reference server writes ::1 as 0.0.0.1, because the bytes are the same.
    number, packed = _to_signed(server.id), server.address
    address = str(IPv4Address(packed[12:]) if packed.startswith(bytes(12)) else IPv6Address(packed))
    return {"serverId": number, "address": address, "publicKey": key, "interfaces": interfaces}


#: How the data of a type, and of its subtypes, is explained.
_EXPLANATIONS: Final[dict[bytes, Callable[[bytes], dict[str, Any]]]] = {
    b"HS_ADMIN": _to_admin,
    b"HS_VLIST": lambda data: {"format": "vlist", "value": _to_references(decode_references(data))},
    b"HS_PUBKEY": _explain_key,
    b"HS_SITE": _explain_site,
    b"HS_NA_DELEGATE": _explain_site,
}


class _Data(msgspec.Struct):
    format: str
    value: msgspec.Raw


class _Content(msgspec.Struct):
    data: _Data


class _Reference(msgspec.Struct):
    handle: str
    index: int


class _Admin(_Reference, rename="camel"):
    permissions: str
    legacy_byte_length: bool = False


_content: Final = msgspec.json.Decoder(_Content)
_text: Final = msgspec.json.Decoder(str)
_admin: Final = msgspec.json.Decoder(_Admin)
_list: Final = msgspec.json.Decoder(list[_Reference])
_key: Final = msgspec.json.Decoder(dict[str, str])


def to_wire(values: Iterable[HandleValue]) -> tuple[Value, ...]:
    """Those of the values that the public may read, in their order. Raises InvalidRecord.

    A value that the native protocol cannot carry fails them all: without it, the record would be another one.
    """
    return tuple(
        wire_value for wire_value in map(to_wire_value, values) if wire_value.permissions & Permission.PUBLIC_READ
    )


def to_wire_value(value: HandleValue) -> Value:
    """A value. Raises InvalidRecord."""
    try:
        return _to_value(value)
    except (msgspec.DecodeError, RecursionError, struct.error, ValueError, KeyError) as error:
        raise InvalidRecord(
            "The record has a value that the native protocol cannot carry.", detail=str(error)[:200]
        ) from error


def _to_value(value: HandleValue) -> Value:
    I32.pack(value.index)
    return Value(
        value.index,
        value.type.encode(),
        value.text.encode() if value.text is not None else _encode_data(value),
        ttl=min(int(value.ttl.seconds), (1 << 31) - 1),
        ttl_type=TtlType.ABSOLUTE if value.ttl.absolute else TtlType.RELATIVE,
        permissions=int(value.permissions, 2) & 0b1111,
        timestamp=_to_epoch(value.timestamp),
        references=tuple(ValueReference(handle.encode(), index) for handle, index in value.references),
    )


def _to_epoch(text: str | None) -> int:
    """The seconds of a timestamp, 0 without one that can be read."""
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return 0
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) % (1 << 32)


def _encode_data(value: HandleValue) -> bytes:
    # Of a format that is not known, nothing is parsed: 1 MiB of `[[],...]` takes 140 ms.
    data = _content.decode(value.raw).data
    return encode_site(read_site(value.raw)) if data.format == "site" else _WRITERS[data.format](bytes(data.value))


def _encode_admin(data: bytes) -> bytes:
    admin = _admin.decode(data)
    rest = bytes(LEGACY_ADMIN_BYTES * admin.legacy_byte_length)
    return U16.pack(int(admin.permissions, 2)) + encode_string(admin.handle.encode()) + I32.pack(admin.index) + rest


def _encode_list(data: bytes) -> bytes:
    return encode_references(
        tuple(ValueReference(reference.handle.encode(), reference.index) for reference in _list.decode(data))
    )


#: How the data of a format becomes bytes.
_WRITERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "base64": lambda data: b64decode(_text.decode(data), validate=True),
    "hex": lambda data: bytes.fromhex(_text.decode(data)),
    "admin": _encode_admin,
    "vlist": _encode_list,
    "key": lambda data: read_key(_key.decode(data)),
}
