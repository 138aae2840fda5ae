"""Site values in JSON, and the bootstrap file that has those of the root."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handle_protocol.dump import InvalidSite, UnusableAnswer
from handle_protocol.json_sites import (
    MAX_BOOTSTRAP_BYTES,
    read_bootstrap,
    read_site_file,
    read_sites,
    write_json_values,
)
from handle_protocol.value import read_values
from handle_protocol.wire.site_value import (
    HashOption,
    Interface,
    Server,
    ServiceSite,
    SiteKind,
    Value,
    decode_site,
    encode_site,
)
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key
from tests.handle_protocol.recorded import Row, needs_recordings, rows
from tests.table import table

_ALL: Final = (Interface(3, 1, 2641), Interface(2, 0, 2641), Interface(3, 2, 8000), Interface(0, 3, 8443))
_SITE: Final = ServiceSite(
    serial=7,
    servers=(
        Server(1, bytes(12) + bytes((93, 184, 216, 34)), public_bytes(rsa_key()), _ALL),
        Server(2, bytes.fromhex("20010db8000000000000000000000010"), public_bytes(dsa_key()), ()),
        Server(3, bytes(15) + b"\1", b"", _ALL[:1]),
        Server(4, bytes(16), b"\0\0\0\3key", ()),
    ),
    attributes=((b"desc", "Größe".encode()), (b"domain", b"handles.example.org")),
)


def _body(*values: Value) -> bytes:
    return b'{"responseCode":1,"handle":"0.NA/0.NA","values":' + write_json_values(values) + b"}"


@pytest.mark.parametrize(
    "site",
    [
        _SITE,
        replace(_SITE, serial=0xFFFF, kind=SiteKind.SEVERAL_PRIMARIES, hash_option=HashOption.SUFFIX),
        replace(_SITE, kind=0, hash_option=HashOption.PREFIX, hash_filter=b"x/y", major=2, minor=10),
        ServiceSite(0, ()),
    ],
)
def test_a_site_survives_its_json(site: ServiceSite) -> None:
    record = read_values(write_json_values([Value(1, b"HS_SITE", encode_site(site))]))
    assert read_sites(record, ("HS_SITE",)) == (site,)


@needs_recordings
@pytest.mark.parametrize("item", [item for item in rows() if item["what"].startswith("site value decoded")])
def test_a_recorded_site_survives_its_json(item: Row) -> None:
    data = bytes.fromhex(item["response_hex"])
    record = read_values(write_json_values([Value(1, b"HS_SITE", data)]))
    assert read_sites(record, ("HS_SITE",)) == (decode_site(data),)


@table(
    ("member", "longest", "too_long"),
    [
        ("serialNumber", 0xFFFF, 0x1_0000),
        ("version", 0xFFFF, 0x1_0000),
        ("hashOption", 0xFF, 0x100),
        ("protocolVersion", "255.255", "256.0"),
        ("protocolVersion", "255.255", "2.256"),
    ],
)
def test_a_number_for_which_a_site_value_has_no_room_is_refused(
    member: str, longest: int | str, too_long: int | str
) -> None:
    server = {"serverId": 1, "address": "192.0.2.10", "interfaces": []}
    site = {"serialNumber": 1, "primarySite": True, "servers": [server]}
    (read,) = read_site_file(json.dumps({**site, member: longest}).encode()).sites
    assert decode_site(encode_site(read)) == read
    with pytest.raises(InvalidSite, match=r"has over (8|16) bits"):
        read_site_file(json.dumps({**site, member: too_long}).encode())


def test_sites_are_read_in_the_order_of_their_types() -> None:
    ipv6, ipv4 = replace(_SITE, serial=6), replace(_SITE, serial=4)
    values = [Value(1, b"HS_SITE.6", encode_site(ipv6)), Value(2, b"HS_SITE", encode_site(ipv4))]
    record = read_values(write_json_values(values))
    assert read_sites(record, ("HS_SITE", "HS_SITE.6")) == (ipv4, ipv6)


_SERVER: Final[dict[str, Any]] = {"serverId": 1, "address": "1.2.3.4", "interfaces": []}


def _site_json(**changes: Any) -> bytes:
    site = json.loads(_body(Value(1, b"HS_SITE", encode_site(_SITE))))
    site["values"][0]["data"]["value"] |= changes
    return json.dumps(site).encode()


@table(
    "changes",
    [
        {"servers": None},
        {"servers": [{}]},
        {"servers": [{"serverId": 1, "address": "localhost", "interfaces": []}]},
        {"servers": [{"serverId": 1, "address": "1.2.3.4", "interfaces": [{"port": 1}]}]},
        {"servers": [_SERVER | {"publicKey": "x"}]},
        {"servers": [_SERVER | {"publicKey": {"format": "base64", "value": "?"}}]},
        {"servers": [_SERVER | {"publicKey": {"format": "key", "value": {"kty": "RSA", "n": "\ud800"}}}]},
        {"serialNumber": "7"},
        {"protocolVersion": "new"},
        {"protocolVersion": "2." + "1" * 5_000},
        {"primarySite": 1},
    ],
)
def test_a_site_that_cannot_be_read_is_an_error_of_the_file(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSite, match="the file is not the handle API's answer"):
        read_bootstrap(_site_json(**changes))


def test_the_bootstrap_file_has_the_sites_of_the_root() -> None:
    root = read_bootstrap(_body(Value(1, b"HS_SITE", encode_site(_SITE)), Value(100, b"HS_ADMIN", b"")))
    assert root.sites == (_SITE,)
    assert root.is_verified


def test_a_root_without_keys_is_not_verified() -> None:
    site = replace(_SITE, servers=_SITE.servers[2:3])
    assert not read_bootstrap(_body(Value(1, b"HS_SITE", encode_site(site)))).is_verified


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not the handle API's answer"),
        (b"<html>", "not the handle API's answer"),
        (b'{"responseCode":100,"handle":"0.NA/0.NA"}', "names no server"),
        (b'{"responseCode":2,"handle":"0.NA/0.NA"}', "not the handle API's answer"),
        (b'{"responseCode":1,"handle":"0.NA/10","values":[]}', "not the handle API's answer"),
        (_body(Value(1, b"URL", b"https://example.org/")), "names no server"),
        (_body(Value(1, b"HS_SITE", encode_site(ServiceSite(1, ())))), "names no server"),
        (b" " * (MAX_BOOTSTRAP_BYTES + 1), "1048576 bytes"),
    ],
)
def test_another_file_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(InvalidSite, match=reason):
        read_bootstrap(content)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_any_json_in_a_site_is_read_or_refused(part: Any) -> None:
    for member in ("servers", "address", "attributes", "hashOption", "version"):
        try:
            read_bootstrap(_site_json(**{member: part}))
        except InvalidSite:
            continue


def test_a_record_with_a_site_that_cannot_be_read_is_an_invalid_answer() -> None:
    record = read_values(b'[{"index":1,"type":"HS_SITE","data":{"format":"string","value":"x"}}]')
    with pytest.raises(UnusableAnswer, match="a site value that cannot be read"):
        read_sites(record, ("HS_SITE",))
