"""Records from handle servers are the JSON that the reference server's HTTP API writes, byte for byte.

The expected data is what the reference server 9.3.1 wrote for the same bytes.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from handle_protocol.json_sites import read_service_values, write_json_values
from handle_protocol.value import read_values
from handle_protocol.wire.site_value import (
    RSA,
    RSA_PADDING,
    Interface,
    KeyNumbers,
    Permission,
    Server,
    ServiceSite,
    TtlType,
    Value,
    ValueReference,
    encode_public_key,
    encode_site,
)
from tests.handle_protocol.server import TRANSPORTS, HandleServer, write_bootstrap
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

_ADMIN: Final = bytes.fromhex("0ff2 0000000c") + b"0.NA/10.5555" + bytes.fromhex("000000c8")
_LARGE_ADMIN: Final = bytes.fromhex("ffff 00000001") + b"a" + bytes.fromhex("80000000")
#: Old servers wrote two bytes too many. Many records in use still have them.
_LEGACY_ADMIN: Final = bytes.fromhex("0470 0000000a") + b"0.NA/11858" + bytes.fromhex("000000c8 0000")
_LIST: Final = bytes.fromhex("00000001 00000001") + b"a" + bytes.fromhex("ffffffff")
_KEY: Final = encode_public_key(KeyNumbers(RSA, (b"\1\0\1", b"\0\xff"), rest=RSA_PADDING))
_SITE: Final = ServiceSite(1, (Server(1, bytes(12) + bytes((192, 0, 2, 1)), _KEY, (Interface(3, 1, 2641),)),))
_ODD_SITE: Final = replace(
    _SITE,
    servers=(Server(1, bytes(12) + bytes((192, 0, 2, 1)), _KEY, (Interface(2, 9, 1), Interface(0, 255, 2))),),
    hash_option=200,
    major=200,
    minor=255,
)
_LARGE_SITE: Final = ServiceSite(0xFFFF, (Server(2**32 - 1, bytes(16), b"", (Interface(2, 0, 2**31),)),))


def _text(value: str) -> dict[str, Any]:
    return {"format": "string", "value": value}


def _base64(value: str) -> dict[str, Any]:
    return {"format": "base64", "value": value}


def _admin(handle: str, index: int, permissions: str) -> dict[str, Any]:
    return {"format": "admin", "value": {"handle": handle, "index": index, "permissions": permissions}}


_JSON_KEY: Final = {"format": "key", "value": {"kty": "RSA", "n": "_w", "e": "AQAB"}}


def _site(serial: int, server: dict[str, Any], version: str = "2.11", **more: Any) -> dict[str, Any]:
    head = {"version": 1, "protocolVersion": version, "serialNumber": serial, "primarySite": True}
    return {"format": "site", "value": head | {"multiPrimary": False, **more, "attributes": [], "servers": [server]}}


_JSON_SITE: Final = _site(
    1,
    {
        "serverId": 1,
        "address": "192.0.2.1",
        "publicKey": _JSON_KEY,
        "interfaces": [{"query": True, "admin": True, "protocol": "TCP", "port": 2641}],
    },
)
_ODD_JSON_SITE: Final = _site(
    1,
    {
        "serverId": 1,
        "address": "192.0.2.1",
        "publicKey": _JSON_KEY,
        "interfaces": [
            {"query": True, "admin": False, "protocol": 9, "port": 1},
            {"query": False, "admin": False, "protocol": -1, "port": 2},
        ],
    },
    "-56.-1",
    hashOption=-56,
)
_LARGE_JSON_SITE: Final = _site(
    -1,
    {
        "serverId": -1,
        "address": "0.0.0.0",
        "publicKey": _base64(""),
        "interfaces": [{"query": True, "admin": False, "protocol": "UDP", "port": -(2**31)}],
    },
)

#: A type, the data of a value, and its JSON.
_DATA: Final[list[tuple[str, bytes, dict[str, Any]]]] = [
    ("URL", b"https://example.org/?a=1&b=<\xc3\xa4>'", _text("https://example.org/?a=1&b=<ä>'")),
    ("URL", b"https://x.example/\1a", _base64("aHR0cHM6Ly94LmV4YW1wbGUvAWE=")),
    ("DESC", b"", _text("")),
    ("DESC", b'a\tb\nc\x0b\x0c\r\x0e\x13"\\/', _text('a\tb\nc\x0b\x0c\r\x0e\x13"\\/')),
    *(("DESC", bytes((byte,)), _text(chr(byte))) for byte in range(0x09, 0x14)),
    ("DESC", b"\0", _base64("AA==")),
    ("DESC", b"\x08", _base64("CA==")),
    ("DESC", b"\x14", _base64("FA==")),
    ("DESC", b"\x1f", _base64("Hw==")),
    ("DESC", b"\x7f", _base64("fw==")),
    ("DESC", b"\xc2\x80", _text("\x80")),
    ("DESC", b"\xff", _base64("/w==")),
    ("HS_PRIMARY", bytes(4), _base64("AAAAAA==")),
    ("HS_ADMIN", _ADMIN, _admin("0.NA/10.5555", 200, "111111110010")),
    ("hs_admin", _ADMIN, _admin("0.NA/10.5555", 200, "111111110010")),
    ("HS_ADMIN.sub", _ADMIN, _admin("0.NA/10.5555", 200, "111111110010")),
    ("HS_ADMINISTRATOR", _ADMIN, _base64("D/IAAAAMMC5OQS8xMC41NTU1AAAAyA==")),
    (
        "HS_ADMIN",
        _LEGACY_ADMIN,
        {
            "format": "admin",
            "value": {"handle": "0.NA/11858", "index": 200, "permissions": "010001110000", "legacyByteLength": True},
        },
    ),
    ("HS_ADMIN", _LEGACY_ADMIN + b"\0", _base64("BHAAAAAKMC5OQS8xMTg1OAAAAMgAAAA=")),
    ("HS_ADMIN", _ADMIN[:-1], _base64("D/IAAAAMMC5OQS8xMC41NTU1AAAA")),
    ("HS_ADMIN", b"not an administrator", _text("not an administrator")),
    ("HS_ADMIN", _LARGE_ADMIN, _admin("a", -(2**31), "111111111111")),
    ("HS_VLIST", _LIST, {"format": "vlist", "value": [{"handle": "a", "index": -1}]}),
    ("HS_VLIST", _LIST[:-1], _base64("AAAAAQAAAAFh////")),
    ("HS_PUBKEY", _KEY, _JSON_KEY),
    ("HS_PUBKEY.x", _KEY, _JSON_KEY),
    ("HS_PUBKEY", _KEY + b"what follows a key is ignored", _JSON_KEY),
    ("HS_PUBKEY", b"\0\0\0\3XYZ\0\0", _base64("AAAAA1hZWgAA")),
    ("HS_SITE", encode_site(_SITE), _JSON_SITE),
    ("HS_SITE.6", encode_site(_SITE), _JSON_SITE),
    ("HS_SITE.PREFIX", encode_site(_SITE), _JSON_SITE),
    ("HS_SITE.X", encode_site(_SITE), _JSON_SITE),
    ("HS_NA_DELEGATE", encode_site(_SITE), _JSON_SITE),
    ("HS_SITE", encode_site(_LARGE_SITE), _LARGE_JSON_SITE),
    ("HS_SITE", encode_site(_ODD_SITE), _ODD_JSON_SITE),
    ("HS_SITE", b"\0\1\2", _base64("AAEC")),
]
_USUAL: Final = Value(1, b"URL", b"https://example.org/")
_JSON: Final = {"index": 1, "type": "URL", "data": _text("https://example.org/"), "ttl": 86_400}
#: The other members of a value, and their JSON.
_MEMBERS: Final[list[tuple[Value, dict[str, Any]]]] = [
    (_USUAL, _JSON),
    (replace(_USUAL, index=-1), _JSON | {"index": -1}),
    (replace(_USUAL, timestamp=1_000_000_000), _JSON | {"timestamp": "2001-09-09T01:46:40Z"}),
    (replace(_USUAL, timestamp=2**32 - 1), _JSON | {"timestamp": "1969-12-31T23:59:59Z"}),
    (replace(_USUAL, ttl=60), _JSON | {"ttl": 60}),
    (replace(_USUAL, ttl=1_000_000_000, ttl_type=TtlType.ABSOLUTE), _JSON | {"ttl": "2001-09-09T01:46:40Z"}),
    (
        replace(_USUAL, references=(ValueReference(b"10.1000/1", 2),)),
        _JSON | {"references": [{"handle": "10.1000/1", "index": 2}]},
    ),
]


def _record(value_type: str, data: bytes, expected: dict[str, Any]) -> tuple[Value, dict[str, Any]]:
    return replace(_USUAL, type=value_type.encode(), data=data), _JSON | {"type": value_type, "data": expected}


_VALUES: Final = [*(_record(*row) for row in _DATA), *_MEMBERS]


@table(("value", "expected"), _VALUES)
def test_a_value_is_written_as_the_reference_server_writes_it(value: Value, expected: dict[str, Any]) -> None:
    assert write_json_values([value]) == msgspec.json.encode([expected])


def test_permissions_are_four_digits_unless_they_are_usual() -> None:
    value = replace(_USUAL, permissions=Permission.PUBLIC_READ | 0xF0)
    assert b'"},"permissions":"0010","ttl":86400}]' in write_json_values([value])


def test_line_separators_are_escaped_as_by_the_json_writer_of_the_reference_server() -> None:
    written = write_json_values([replace(_USUAL, data="a\u2028b\u2029".encode())])
    assert b'"a\\u2028b\\u2029"' in written
    assert read_values(written).values[0].text == "a\u2028b\u2029"


@table("data", [b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"])
def test_bytes_that_are_not_utf_8_are_base64_although_the_reference_server_writes_some_as_text(data: bytes) -> None:
    assert b'"format":"base64"' in write_json_values([replace(_USUAL, data=data)])


@table("site", [_SITE, _LARGE_SITE, _ODD_SITE])
def test_the_numbers_of_a_site_are_read_back(site: ServiceSite) -> None:
    written = write_json_values([Value(1, b"HS_SITE", encode_site(site))])
    assert [value.data for value in read_service_values(read_values(written))] == [encode_site(site)]


async def test_rest_answers_are_the_same_by_http_udp_tcp_tunnel_and_from_the_root(tmp_path: Path) -> None:
    records = {f"10.1000/{number}": [pair] for number, pair in enumerate(_VALUES)} | {"10.1000/all": _VALUES}
    async with AsyncExitStack() as stack:
        by_http, servers = await stack.enter_async_context(Proxy()), []
        for name, pairs in records.items():
            by_http.upstream.put(name, [expected for _, expected in pairs])
        for transport in sorted(TRANSPORTS):
            server = await stack.enter_async_context(HandleServer(transports=frozenset({transport})))
            servers.append((server, await stack.enter_async_context(Proxy(upstream_url=server.url))))
            for name, pairs in records.items():
                server.put_values(name, *(value for value, _ in pairs))
        root, home = [await stack.enter_async_context(HandleServer(serial=number)) for number in (1, 2)]
        root.put_values("0.NA/10.1000", home.site_value())
        for name, pairs in records.items():
            home.put_values(name, *(value for value, _ in pairs))
        (tmp_path / "root.json").write_bytes(write_bootstrap(root))
        settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json"}
        from_root = await stack.enter_async_context(Proxy(**settings, upstream_private_servers=True))
        for name in (*records, "10.1000/none"):
            wanted = await by_http.get(f"/api/handles/{name}")
            redirect = await by_http.get(f"/{name}")
            for by_native in (*(proxy for _, proxy in servers), from_root):
                got = await by_native.get(f"/api/handles/{name}")
                assert (got.status, got.body, got["etag"]) == (wanted.status, wanted.body, wanted["etag"])
                assert (await by_native.get(f"/{name}"))["location"] == redirect["location"]
        assert [list(server.by_transport) for server, _ in servers] == [[name] for name in sorted(TRANSPORTS)]


async def test_a_url_with_a_control_character_does_not_redirect() -> None:
    async with HandleServer() as server, Proxy(upstream_url=server.url) as proxy:
        server.put_values("10.1000/182", replace(_USUAL, data=b"https://x.example/\1a"))
        got = await proxy.get("/10.1000/182")
        assert (got.status, got["location"]) == (200, None)
