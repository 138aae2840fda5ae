"""The server of a site for a handle, and the order in which its interfaces are tried."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.networks import AllowedAddresses
from handle_protocol.errors import InvalidSite, UnusableAnswer
from handle_protocol.json_sites import (
    MAX_BOOTSTRAP_BYTES,
    read_bootstrap,
    read_site_file,
    read_sites,
    write_json_values,
)
from handle_protocol.site import Candidate, HealthLimits, ServerHealth, rank_candidates, select_server
from handle_protocol.value import read_values
from handle_protocol.wire.site_value import (
    HashOption,
    Interface,
    Server,
    ServiceSite,
    SiteKind,
    TransportProtocol,
    Value,
    decode_site,
    encode_site,
)
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key
from tests.handle_protocol.recorded import Row, needs_recordings, rows
from tests.table import table

_LIMITS: Final = HealthLimits(first_pause=1.0, longest_pause=60.0, entries=3)
_ALL: Final = (Interface(3, 1, 2641), Interface(2, 0, 2641), Interface(3, 2, 8000))


def _server(number: int, interfaces: tuple[Interface, ...] = _ALL, address: str = "93.184.216.0") -> Server:
    packed = (ip_address(address) + number).packed
    return Server(number, packed.rjust(16, b"\0"), b"key", interfaces)


def _site(count: int, option: int = HashOption.HANDLE, **more: Any) -> ServiceSite:
    return ServiceSite(1, tuple(_server(number) for number in range(count)), hash_option=option, **more)


@needs_recordings
@table("item", [item for item in rows() if item["what"] == "server selection"])
def test_the_server_is_the_one_that_the_reference_software_selects(item: Row) -> None:
    handle = item["decoded"]["handle"].encode()
    options = {"by_all": HashOption.HANDLE, "by_prefix": HashOption.PREFIX, "by_suffix": HashOption.SUFFIX}
    for name, option in options.items():
        for count, position in item["decoded"][name].items():
            server = select_server(_site(int(count), option), handle)
            assert server is not None
            assert server.id == position, (name, count)


@pytest.mark.parametrize(
    ("option", "same", "other"),
    [
        (HashOption.HANDLE, [b"10.5072/abc", b"10.5072/ABC"], b"10.5072/abd"),
        (HashOption.PREFIX, [b"10.5072/abc", b"10.5072/xyz"], b"10.5073/abc"),
        (HashOption.SUFFIX, [b"10.5072/abc", b"10.5073/abc"], b"10.5072/abd"),
        (HashOption.PREFIX, [b"10.5072", b"0.NA/10.5073"], b"10.5072/abc"),
        (HashOption.SUFFIX, [b"10.5072"], b"10.5072/abc"),
    ],
)
def test_the_hash_option_says_which_part_selects_the_server(option: int, same: list[bytes], other: bytes) -> None:
    site = _site(97, option)
    assert len({select_server(site, handle) for handle in same}) == 1
    assert select_server(site, other) != select_server(site, same[0])


def test_letters_that_are_not_ascii_keep_their_case() -> None:
    assert select_server(_site(97), "10.5072/ä".encode()) != select_server(_site(97), "10.5072/Ä".encode())


def test_a_site_without_servers_has_no_server() -> None:
    assert select_server(_site(0), b"10.5072/1") is None


def _candidates(
    *sites: ServiceSite,
    health: ServerHealth | None = None,
    now: float = 0.0,
    authoritative: bool = False,
    private: bool = False,
) -> list[Candidate]:
    return rank_candidates(
        sites,
        b"10.5072/1",
        authoritative=authoritative,
        allow=AllowedAddresses(private).find,
        health=health or ServerHealth(_LIMITS),
        now=now,
    )


def _protocols(candidates: list[Candidate]) -> list[str]:
    return [candidate.endpoint.protocol.name for candidate in candidates]


def test_a_query_goes_by_udp_first_and_to_a_slow_server_last() -> None:
    health = ServerHealth(_LIMITS)
    assert _protocols(_candidates(_site(1), health=health)) == ["UDP", "TCP", "HTTP"]
    health.record_answer("server", ip_address("93.184.216.0"), 0.6)
    assert _protocols(_candidates(_site(1), health=health)) == ["TCP", "HTTP", "UDP"]


def test_an_interface_that_failed_comes_last_until_its_pause_is_over() -> None:
    health = ServerHealth(_LIMITS)
    udp = _candidates(_site(1))[0].endpoint
    health.record_failure(udp, now=0.0)
    assert _protocols(_candidates(_site(1), health=health, now=0.9)) == ["TCP", "HTTP", "UDP"]
    assert _protocols(_candidates(_site(1), health=health, now=1.0)) == ["UDP", "TCP", "HTTP"]


def test_the_pause_doubles_with_each_failure_and_ends_with_an_answer() -> None:
    health = ServerHealth(_LIMITS)
    for expected in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        health.record_failure("udp", now=100.0)
        assert health.rests("udp", 100.0 + expected - 0.1)
        assert not health.rests("udp", 100.0 + expected)
    health.record_answer("udp", "server", 0.1)
    assert not health.rests("udp", 100.0)
    for _ in range(2_000):
        health.record_failure("udp", now=100.0)
    assert not health.rests("udp", 160.0)


def test_the_faster_server_comes_first() -> None:
    near, far = _site(1), ServiceSite(1, (_server(9),))
    health = ServerHealth(_LIMITS)
    health.record_answer("near", ip_address("93.184.216.0"), 0.01)
    health.record_answer("far", ip_address("93.184.216.9"), 0.3)
    assert _candidates(far, near, health=health)[0].endpoint.address == ip_address("93.184.216.0")
    for _ in range(20):
        health.record_answer("near", ip_address("93.184.216.0"), 1.0)
    assert _candidates(far, near, health=health)[0].endpoint.address == ip_address("93.184.216.9")


def test_each_attempt_is_at_another_server_by_another_transport() -> None:
    sites = [ServiceSite(1, (_server(number),)) for number in range(3)]
    found = [(one.endpoint.address.packed[-1], one.endpoint.protocol.name) for one in _candidates(*sites)]
    assert found[:3] == [(0, "UDP"), (1, "TCP"), (2, "HTTP")]
    assert found[3:6] == [(0, "TCP"), (1, "HTTP"), (2, "UDP")]
    assert len(set(found)) == 9


def test_a_server_whose_interfaces_all_failed_comes_after_the_others() -> None:
    health = ServerHealth(HealthLimits(first_pause=1.0, longest_pause=60.0, entries=10))
    down, up = _site(1), ServiceSite(1, (_server(9),))
    for candidate in _candidates(down):
        health.record_failure(candidate.endpoint, now=0.0)
    found = [one.endpoint.address.packed[-1] for one in _candidates(down, up, health=health, now=0.5)]
    assert found == [9, 9, 9, 0, 0, 0]


def test_health_remembers_a_bounded_number_of_servers_and_interfaces() -> None:
    health = ServerHealth(_LIMITS)
    for number in range(5):
        health.record_answer(number, number, 1.0)
        health.record_failure(number, now=0.0)
    assert [health.round_trip(number) for number in range(5)] == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert [health.rests(number, 0.5) for number in range(5)] == [False, False, True, True, True]


def test_an_authoritative_query_goes_to_primary_sites_alone() -> None:
    copy = ServiceSite(1, (_server(9),), kind=SiteKind.SEVERAL_PRIMARIES)
    assert _candidates(copy, authoritative=True) == []
    assert len(_candidates(copy, _site(1), authoritative=True)) == 3
    assert len(_candidates(copy, _site(1))) == 6


def test_interfaces_without_queries_and_impossible_ports_are_left_out() -> None:
    interfaces = (
        Interface(1, 1, 2641),
        Interface(0, 1, 2642),
        Interface(2, 1, 0),
        Interface(2, 1, 65_536),
        Interface(2, 9, 2643),
        Interface(2, 3, 8_443),
        Interface(2, 1, 65_535),
    )
    found = _candidates(ServiceSite(7, (_server(1, interfaces),), attributes=((b"domain", b"handles.example.org"),)))
    assert [(one.endpoint.protocol, one.endpoint.port) for one in found] == [
        (TransportProtocol.TCP, 65_535),
        (TransportProtocol.HTTPS, 8_443),
    ]
    assert (found[0].host, found[0].site_serial, found[0].public_key) == (b"handles.example.org", 7, b"key")


def test_an_interface_in_two_site_values_is_one_candidate() -> None:
    assert len(_candidates(_site(1), _site(1))) == 3


# --- Site values in JSON, and the bootstrap file that has those of the root ------------------------------------------


_ALL_HANDLE_BOOTSTRAP: Final = (
    Interface(3, 1, 2641),
    Interface(2, 0, 2641),
    Interface(3, 2, 8000),
    Interface(0, 3, 8443),
)
_SITE: Final = ServiceSite(
    serial=7,
    servers=(
        Server(1, bytes(12) + bytes((93, 184, 216, 34)), public_bytes(rsa_key()), _ALL_HANDLE_BOOTSTRAP),
        Server(2, bytes.fromhex("20010db8000000000000000000000010"), public_bytes(dsa_key()), ()),
        Server(3, bytes(15) + b"\1", b"", _ALL_HANDLE_BOOTSTRAP[:1]),
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
