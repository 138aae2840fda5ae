"""Handle values of the native protocol in the JSON of the handle API, as the reference server writes them.

Records from handle servers and from an HTTP API are then the same bytes, in the cache and for clients. The reference
server is a Java program, so numbers of 8, 16 and 32 bits are signed in its JSON, although RFC 3651 has some unsigned.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Any, Final

import msgspec

from handle_protocol.errors import MalformedMessage
from handle_protocol.value import escape_separators
from handle_protocol.wire import site_value
from handle_protocol.wire.fields import I32, FieldReader
from handle_protocol.wire.public_key import DSA, RSA, decode_public_key
from handle_protocol.wire.value import Permission, TtlType, Value, decode_references

#: The flags as numbers: `in` and `&` of a flag take a microsecond each.
_PUBLIC_READ: Final = Permission.PUBLIC_READ.value
_USUAL: Final = (Permission.ADMIN_READ | Permission.ADMIN_WRITE | Permission.PUBLIC_READ).value
_QUERY: Final = site_value.Purpose.QUERY.value
_ADMIN: Final = site_value.Purpose.ADMIN.value
_PROTOCOLS: Final = {protocol.value: protocol.name for protocol in site_value.TransportProtocol}
#: Data of one record that is explained; more is text or base64. Sites and lists become JSON of eight times their size,
#: and 1 MiB of them would take a second. A site value of three servers has 2 kB.
_MAX_EXPLAINED_BYTES: Final = 64 * 1024
_ADMIN_PERMISSIONS: Final = Struct(">H")
#: Old servers wrote two bytes too many after an administrator. Many records still have them.
LEGACY_ADMIN_BYTES: Final = 2
#: The permissions of an administrator that have a name. The JSON has a digit for each.
_ADMIN_MASK: Final = 0xFFF
#: Data with one of these bytes is base64 (Util.looksLikeBinary of the reference server). Line ends and tabs are text.
_BINARY: Final = bytes((*range(0x09), *range(0x14, 0x20), 0x7F))
#: The members of a JSON Web Key in the order of the key's numbers (RFC 7518, section 6.3.1; DSA has no RFC).
_KEY_MEMBERS: Final = {RSA: ("e", "n"), DSA: ("q", "p", "g", "y")}
_KEY_ORDER: Final = ("n", "e", "y", "p", "q", "g")


def write_json_values(values: Iterable[Value]) -> bytes:
    """The JSON array of the values that the public may read, in the server's order."""
    room, objects = _MAX_EXPLAINED_BYTES, []
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
    digits = f"{permissions & _ADMIN_MASK:012b}"
    members = {"handle": handle.decode("utf-8", "replace"), "index": index, "permissions": digits}
    if is_legacy:
        members["legacyByteLength"] = True
    return {"format": "admin", "value": members}


def _to_list(data: bytes) -> dict[str, Any]:
    return {"format": "vlist", "value": _to_references(decode_references(data))}


def _to_key(data: bytes) -> dict[str, Any]:
    key = decode_public_key(data)
    members = dict(zip(_KEY_MEMBERS[key.type], key.numbers, strict=True))
    numbers = {name: _to_base64url(members[name]) for name in _KEY_ORDER if name in members}
    return {"format": "key", "value": {"kty": key.type.partition(b"_")[0].decode(), **numbers}}


def _to_base64url(number: bytes) -> str:
    # RFC 7518, section 2: without leading zero bytes, and without padding.
    return urlsafe_b64encode(number.lstrip(b"\0") or b"\0").decode().rstrip("=")


def _to_site(data: bytes) -> dict[str, Any]:
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
    members["servers"] = [_to_server(server) for server in site.servers]
    return {"format": "site", "value": members}


def _to_server(server: site_value.Server) -> dict[str, Any]:
    try:
        key = _to_key(server.public_key)
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
    number, address = _to_signed(server.id), _to_address(server.address)
    return {"serverId": number, "address": address, "publicKey": key, "interfaces": interfaces}


def _to_address(address: bytes) -> str:
    # The reference server writes ::1 as 0.0.0.1, because the bytes are the same.
    return str(IPv4Address(address[12:]) if address.startswith(bytes(12)) else IPv6Address(address))


#: How the data of a type, and of its subtypes, is explained.
_EXPLANATIONS: Final[dict[bytes, Callable[[bytes], dict[str, Any]]]] = {
    b"HS_ADMIN": _to_admin,
    b"HS_VLIST": _to_list,
    b"HS_PUBKEY": _to_key,
    b"HS_SITE": _to_site,
    b"HS_NA_DELEGATE": _to_site,
}
