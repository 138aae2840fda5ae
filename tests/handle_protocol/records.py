"""Values in the JSON of the handle API as values of the native protocol: what a handle server would hold."""

from __future__ import annotations

import struct
from base64 import b64decode
from datetime import datetime
from typing import Any

import msgspec

from handle_protocol.json_sites import read_sites
from handle_protocol.value import read_values
from handle_protocol.wire.message import encode_references
from handle_protocol.wire.site_value import TtlType, Value, ValueReference, encode_site, encode_string


def to_values(objects: list[dict[str, Any]]) -> tuple[Value, ...]:
    """The values of a record."""
    return tuple(map(_to_value, objects))


def _to_value(members: dict[str, Any]) -> Value:
    ttl = members.get("ttl", 86_400)
    return Value(
        members["index"],
        members["type"].encode(),
        _to_data(members),
        ttl=_to_epoch(ttl) if isinstance(ttl, str) else ttl,
        ttl_type=TtlType.ABSOLUTE if isinstance(ttl, str) else TtlType.RELATIVE,
        permissions=int(members.get("permissions", "1110"), 2),
        timestamp=_to_epoch(members["timestamp"]) if "timestamp" in members else 0,
        references=_to_references(members.get("references", [])),
    )


def _to_data(members: dict[str, Any]) -> bytes:
    data = members["data"]
    if isinstance(data, str):
        return data.encode()
    content = data["value"]
    match data["format"]:
        case "string":
            return str(content).encode()
        case "base64":
            return b64decode(content)
        case "admin":
            permissions = int(content["permissions"], 2)
            handle = encode_string(content["handle"].encode())
            return struct.pack(">H", permissions) + handle + struct.pack(">I", content["index"])
        case "vlist":
            return encode_references(_to_references(content))
        case "site":
            record = read_values(msgspec.json.encode([{**members, "type": "HS_SITE"}]))
            return encode_site(read_sites(record, ("HS_SITE",))[0])
    raise ValueError(f"no such format: {data['format']}")


def _to_references(items: list[dict[str, Any]]) -> tuple[ValueReference, ...]:
    return tuple(ValueReference(item["handle"].encode(), item["index"]) for item in items)


def _to_epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
