"""The way from the root to the servers of a handle: its steps, its bounds and its memory; and the JSON of records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from handle_protocol.errors import QueryNotAdmitted, ServerTimeout, ServiceNotFound, SignatureInvalid
from handle_protocol.json_sites import read_service_values, write_json_values
from handle_protocol.referral import read_lead
from handle_protocol.value import read_values
from handle_protocol.wire.message import ResponseStatus
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
from tests.features.native.world import (
    LIMITS,
    ROOT,
    ROOT_RECORD,
    Bench,
    Content,
    Referral,
    serv_value,
    site,
    site_value,
)
from tests.handle_protocol.server import TRANSPORTS, HandleServer, write_bootstrap
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


_URL: Final = [Value(1, b"URL", b"https://example.org/")]


def _direct() -> dict[int, dict[bytes, Content]]:
    return {ROOT: {b"0.NA/10.5072": [site_value(2)]}, 2: {b"10.5072/1": _URL}}


async def test_the_record_of_the_prefix_names_the_sites() -> None:
    bench = Bench(_direct())
    assert await bench.codes(b"10.5072/1", b"10.5072/2") == [1, 100]
    assert bench.asked == [(ROOT, b"0.NA/10.5072"), (2, b"10.5072/1"), (2, b"10.5072/2")]


async def test_each_query_but_the_first_takes_a_token_of_the_budget() -> None:
    bench = Bench(_direct())
    bench.tokens.left = 2  # the prefix record, and the refresh of the root
    assert await bench.codes(b"10.5072/1", b"10.5072/2") == [1, 100]
    assert bench.tokens.left == 0
    bench = Bench(_direct())
    bench.tokens.left = 0
    with pytest.raises(QueryNotAdmitted):
        await bench.codes(b"10.5072/1")
    assert bench.world.asked == []


async def test_the_record_of_the_prefix_names_a_service_handle() -> None:
    bench = Bench(
        {
            ROOT: {b"0.NA/10.5072": [serv_value(b"10.SERV/A")], b"0.NA/10.SERV": [site_value(2)]},
            2: {b"10.SERV/A": [site_value(3)]},
            3: {b"10.5072/1": _URL},
        }
    )
    assert await bench.codes(b"10.5072/1", b"10.5072/2") == [1, 100]
    steps = [(ROOT, b"0.NA/10.5072"), (ROOT, b"0.NA/10.SERV"), (2, b"10.SERV/A"), (3, b"10.5072/1"), (3, b"10.5072/2")]
    assert bench.asked == steps


@pytest.mark.parametrize("kind", [b"HS_SITE.PREFIX", b"HS_NA_DELEGATE"])
async def test_a_referral_of_the_root_is_followed(kind: bytes) -> None:
    referral = Referral([site_value(2, kind)])
    bench = Bench({ROOT: {b"0.NA/10.5072": referral}, 2: {b"0.NA/10.5072": [site_value(3)]}, 3: {b"10.5072/1": _URL}})
    assert await bench.codes(b"10.5072/1") == [1]
    assert bench.asked == [(ROOT, b"0.NA/10.5072"), (2, b"0.NA/10.5072"), (3, b"10.5072/1")]


async def test_a_referral_can_name_a_service_handle() -> None:
    referral = Referral([serv_value(b"10.SERV/A", b"HS_SERV.PREFIX")])
    services: dict[int, dict[bytes, Content]] = {
        ROOT: {b"0.NA/10.5072.1": referral, b"0.NA/10.SERV": [site_value(2)]},
        2: {b"10.SERV/A": [site_value(3)]},
        3: {b"0.NA/10.5072.1": [site_value(4)]},
        4: {b"10.5072.1/1": _URL},
    }
    assert await Bench(services).codes(b"10.5072.1/1") == [1]


@pytest.mark.parametrize("handle", [b"0.NA/10.5072", b"0.na/10.5072", b"10.5072"])
async def test_the_service_of_a_prefix_record_is_found_from_the_root(handle: bytes) -> None:
    bench = Bench({ROOT: {handle: [site_value(2)]}})
    assert await bench.codes(handle) == [1]
    assert bench.asked == [(ROOT, handle)]


async def test_a_prefix_that_does_not_exist_is_remembered_for_a_while() -> None:
    bench = Bench({ROOT: {}})
    assert await bench.codes(b"10.5072/1", b"10.5072/2") == [None, None]
    assert len(bench.asked) == 1
    bench.clock.advance(60.0)
    assert await bench.codes(b"10.5072/1") == [None]
    assert len(bench.asked) == 2


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [
        ({"ttl": 600}, 600.0),
        ({"ttl": 0}, 60.0),
        ({"ttl": -1}, 60.0),
        ({"ttl": 2**31 - 1}, 3_600.0),
        ({"ttl": 1_000_900, "ttl_type": TtlType.ABSOLUTE}, 900.0),
        ({"ttl": 5, "ttl_type": TtlType.ABSOLUTE}, 60.0),
        ({"ttl": 900, "ttl_type": 2}, 60.0),
    ],
)
async def test_a_service_is_remembered_for_the_ttl_of_its_value_within_bounds(
    ttl: dict[str, Any], seconds: float
) -> None:
    bench = Bench({ROOT: {b"0.NA/10.5072": [replace(site_value(2), **ttl)]}, 2: {}})
    await bench.codes(b"10.5072/1")
    bench.clock.advance(seconds - 1)
    await bench.codes(b"10.5072/1")
    assert bench.asked.count((ROOT, b"0.NA/10.5072")) == 1
    bench.clock.advance(1)
    await bench.codes(b"10.5072/1")
    assert bench.asked.count((ROOT, b"0.NA/10.5072")) == 2


async def test_the_service_that_was_used_least_recently_is_forgotten() -> None:
    prefixes = [b"0.NA/10.%d" % number for number in range(1, 5)]
    bench = Bench({ROOT: {prefix: [site_value(2)] for prefix in prefixes}, 2: {}})
    await bench.codes(b"10.1/1", b"10.2/1", b"10.3/1", b"10.1/1", b"10.4/1", b"10.1/1", b"10.2/1")
    counts = [bench.asked.count((ROOT, prefix)) for prefix in prefixes]
    assert counts == [1, 2, 1, 1]


async def test_a_large_service_counts_as_several() -> None:
    large = replace(site(2), servers=site(2).servers * 17)
    record = [Value(1, b"HS_SITE", encode_site(large))]
    bench = Bench({ROOT: {b"0.NA/10.1": record, b"0.NA/10.2": [site_value(2)], b"0.NA/10.3": [site_value(2)]}, 2: {}})
    await bench.codes(b"10.2/1", b"10.1/1", b"10.3/1", b"10.1/1", b"10.2/1")
    assert [bench.asked.count((ROOT, b"0.NA/10.%d" % number)) for number in (1, 2, 3)] == [1, 2, 1]


async def test_a_service_has_a_bounded_number_and_size_of_sites() -> None:
    many = [site_value(number) for number in range(1, 30)]
    lead = read_lead(many, now=0.0)
    assert lead is not None
    assert [one.serial for one in lead.sites] == list(range(1, 17))
    key = Value(1, b"HS_SITE", encode_site(ServiceSite(9, (Server(1, bytes(16), bytes(40_000), ()),))))
    lead = read_lead([key, key, site_value(3)], now=0.0)
    assert lead is not None
    assert (len(lead.sites), lead.weight) == (1, 10)


async def test_a_server_that_is_not_responsible_makes_the_prefix_looked_up_once_more() -> None:
    bench = Bench(_direct())
    await bench.codes(b"10.5072/1")
    bench.world.services[2][b"10.5072/1"] = ResponseStatus.NOT_RESPONSIBLE
    bench.world.services[ROOT][b"0.NA/10.5072"] = [site_value(3)]
    bench.world.services[3] = {b"10.5072/1": _URL}
    bench.clock.advance(60.0)
    assert await bench.codes(b"10.5072/1") == [1]
    assert bench.asked[2:] == [(2, b"10.5072/1"), (ROOT, b"0.NA/10.5072"), (3, b"10.5072/1")]


async def test_a_server_that_is_never_responsible_costs_a_lookup_a_minute() -> None:
    bench = Bench({ROOT: {b"0.NA/10.5072": [site_value(2)]}, 2: {b"10.5072/1": ResponseStatus.NOT_RESPONSIBLE}})
    for lookups in (1, 2, 3):
        assert await bench.codes(*[b"10.5072/1"] * 9) == [301] * 9
        assert bench.asked.count((ROOT, b"0.NA/10.5072")) == lookups
        bench.clock.advance(60.0)


async def test_another_serial_number_makes_the_prefix_looked_up_again_after_a_pause() -> None:
    bench = Bench({ROOT: {b"0.NA/10.5072": [site_value(2)]}, 2: {}})
    bench.world.announced = {2: 9}
    await bench.codes(b"10.5072/1", b"10.5072/1")
    assert bench.asked.count((ROOT, b"0.NA/10.5072")) == 1
    bench.clock.advance(60.0)
    await bench.codes(b"10.5072/1", b"10.5072/1")
    assert bench.asked.count((ROOT, b"0.NA/10.5072")) == 2


# --- bounds and lies ---------------------------------------------------------------------------------------------


@table(
    ("root", "reason"),
    [
        (
            {b"0.NA/10.5072": [serv_value(b"10.5072/s")]},
            "the records of the services form a loop at b'0.NA/10.5072'",
        ),
        (
            {b"0.NA/10.5072": [serv_value(b"10.A/s")], b"0.NA/10.A": [serv_value(b"10.5072/s")]},
            "the records of the services form a loop at b'0.NA/10.5072'",
        ),
        (
            {b"0.NA/10.5072": [serv_value(b"0.NA/s")], b"0.NA/s": [serv_value(b"0.na/S")]},
            "the records of the services form a loop at b'0.na/S'",
        ),
        (
            {b"0.NA/10.5072": Referral([site_value(ROOT, b"HS_NA_DELEGATE")])},
            "the way has too many queries, service handles and referrals",
        ),
        (
            {b"0.NA/10.5072": [serv_value(b"0.NA/s0")]}
            | {b"0.NA/s%d" % number: [serv_value(b"0.NA/s%d" % (number + 1))] for number in range(30)},
            "the way has too many service handles",
        ),
        ({b"0.NA/10.5072": Referral([])}, "a referral names no service"),
        ({b"0.NA/10.5072": Referral([site_value(2)])}, "a referral names no service"),
        ({b"0.NA/10.5072": _URL}, "b'0.NA/10.5072' names no service, response code 1"),
        ({b"0.NA/10.5072": []}, "b'0.NA/10.5072' names no service, response code 1"),
        ({b"0.NA/10.5072": 200}, "b'0.NA/10.5072' names no service, response code 200"),
        ({b"0.NA/10.5072": 301}, "b'0.NA/10.5072' names no service, response code 301"),
        ({b"0.NA/10.5072": [Value(1, b"HS_SITE", b"malformed")]}, "b'0.NA/10.5072' names no service, response code 1"),
        (
            {b"0.NA/10.5072": [replace(site_value(2), permissions=Permission.ADMIN_READ)]},
            "b'0.NA/10.5072' names no service, response code 1",
        ),
        ({b"0.NA/10.5072": [serv_value(b" ")]}, "b'0.NA/10.5072' names no service, response code 1"),
        ({b"0.NA/10.5072": [serv_value(b"x" * 8_193)]}, "b'0.NA/10.5072' names no service, response code 1"),
        ({b"0.NA/10.5072": [serv_value(b"0.NA/s")]}, "the service handle b'0.NA/s' does not exist"),
    ],
)
async def test_a_way_that_does_not_end_at_a_server_is_an_error(root: dict[bytes, Content], reason: str) -> None:
    bench = Bench({ROOT: root})
    with pytest.raises(ServiceNotFound) as caught:
        await bench.codes(b"10.5072/1")
    assert caught.value.detail == reason
    assert len(bench.asked) <= LIMITS.queries


async def test_one_malformed_site_does_not_hide_the_others() -> None:
    record = [Value(1, b"HS_SITE", b"malformed"), site_value(2)]
    assert await Bench({ROOT: {b"0.NA/10.5072": record}, 2: {}}).codes(b"10.5072/1") == [100]


async def test_a_failed_lookup_is_not_remembered() -> None:
    bench = Bench(_direct())
    bench.world.failure = ServerTimeout()
    with pytest.raises(ServerTimeout):
        await bench.codes(b"10.5072/1")
    bench.world.failure = None
    assert await bench.codes(b"10.5072/1") == [1]


# --- many callers ------------------------------------------------------------------------------------------------


async def test_many_names_of_one_prefix_share_its_lookup() -> None:
    bench = Bench(_direct())
    bench.world.gate = asyncio.Event()
    tasks = [asyncio.create_task(bench.codes(b"10.5072/%d" % number)) for number in range(50)]
    await _until(lambda: len(bench.asked) == 1)
    bench.world.gate.set()
    await asyncio.gather(*tasks)
    assert bench.asked.count((ROOT, b"0.NA/10.5072")) == 1
    assert len(bench.asked) == 51


async def test_a_caller_that_goes_away_does_not_end_the_lookup_of_others() -> None:
    bench = Bench(_direct())
    bench.world.gate = asyncio.Event()
    first, second = (asyncio.create_task(bench.codes(b"10.5072/1")) for _ in range(2))
    await _until(lambda: len(bench.asked) == 1)
    first.cancel()
    bench.world.gate.set()
    assert await second == [1]
    assert bench.asked.count((ROOT, b"0.NA/10.5072")) == 1


async def test_two_services_that_need_each_other_are_an_error_also_at_the_same_time() -> None:
    bench = Bench({ROOT: {b"0.NA/10.A": [serv_value(b"10.B/s")], b"0.NA/10.B": [serv_value(b"10.A/s")]}})
    tasks = [asyncio.create_task(bench.codes(handle)) for handle in (b"10.A/1", b"10.B/1")]
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [ServiceNotFound, ServiceNotFound]


async def test_a_lookup_under_way_ends_with_the_directory() -> None:
    bench = Bench(_direct())
    bench.world.gate = asyncio.Event()
    task = asyncio.create_task(bench.codes(b"10.5072/1"))
    await _until(lambda: len(bench.asked) == 1)
    await bench.directory.aclose()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_lookup_that_is_never_answered_does_not_block_its_prefix_for_ever() -> None:
    bench = Bench(_direct())
    bench.world.silent = {ROOT}
    with pytest.raises(ServerTimeout):
        await bench.codes(b"10.5072/1")
    bench.world.silent.clear()
    assert await bench.codes(b"10.5072/1") == [1]


async def test_a_refresh_of_the_root_that_is_never_answered_ends() -> None:
    bench = Bench(_direct())
    bench.world.unanswered = {ROOT_RECORD}
    assert await bench.codes(b"10.5072/1") == [1]
    await _until(lambda: bool(bench.reports.refreshes))
    assert isinstance(bench.reports.refreshes[0], ServerTimeout)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(2 * LIMITS.timeout):
        while not condition():  # noqa: ASYNC110 - the tasks of a directory have no event
            await asyncio.sleep(0.1)


# --- signatures --------------------------------------------------------------------------------------------------


async def test_a_certified_question_certifies_every_step() -> None:
    bench = Bench(_direct())
    await bench.codes(b"10.5072/1")
    assert await bench.codes(b"10.5072/1", certified=True) == [1]
    certified = [
        (service.sites[0].serial, service.is_verified) for service, one in bench.world.questions[1:] if one.certified
    ]
    assert certified == [(ROOT, True), (ROOT, True), (2, True)]
    # What a signed record says counts for other questions too.
    before = len(bench.asked)
    await bench.codes(b"10.5072/1")
    assert len(bench.asked) == before + 1


async def test_without_a_verified_root_nothing_can_be_certified() -> None:
    bench = Bench(_direct(), is_verified=False)
    with pytest.raises(SignatureInvalid, match="No chain of signatures"):
        await bench.codes(b"10.5072/1", certified=True)
    assert await bench.codes(b"10.5072/1") == [1]


# --- the root ----------------------------------------------------------------------------------------------------


async def test_the_root_is_refreshed_by_a_signed_answer_of_the_root() -> None:
    bench = Bench(
        {ROOT: {b"0.NA/0.NA": [replace(site_value(5), ttl=600)], b"0.NA/10.5072": [site_value(2)]}, 2: {}, 5: {}}
    )
    await bench.codes(b"10.5072/1")
    await _until(lambda: bench.reports.refreshes == [None])
    service, question = next(one for one in bench.world.questions if one[1].handle == b"0.NA/0.NA")
    assert (service.sites[0].serial, question.certified) == (ROOT, True)
    assert await bench.codes(b"10.6/1") == [None]
    assert bench.asked[-1] == (5, b"0.NA/10.6")
    bench.clock.advance(600.0)
    await bench.codes(b"10.7/1")
    await _until(lambda: len(bench.reports.refreshes) == 2)


@pytest.mark.parametrize("record", [100, 301, [], _URL, [serv_value(b"10.A/1")]])
async def test_a_root_that_cannot_be_refreshed_stays_as_it_is(record: Content) -> None:
    bench = Bench({ROOT: {b"0.NA/0.NA": record, b"0.NA/10.5072": [site_value(2)]}, 2: {}})
    assert await bench.codes(b"10.5072/1") == [100]
    await _until(lambda: len(bench.reports.refreshes) == 1)
    assert isinstance(bench.reports.refreshes[0], ServiceNotFound)
    await bench.codes(b"10.6/1")
    assert bench.asked[-1] == (ROOT, b"0.NA/10.6")
    assert bench.world.asked.count(ROOT_RECORD) == 1
    bench.clock.advance(60.0)
    await bench.codes(b"10.7/1")
    await _until(lambda: bench.world.asked.count(ROOT_RECORD) == 2)


async def test_a_root_without_a_trusted_key_is_not_refreshed() -> None:
    bench = Bench({ROOT: {b"0.NA/0.NA": [site_value(5)]}}, is_verified=False)
    await bench.codes(b"10.5072/1")
    await _until(lambda: len(bench.reports.refreshes) == 1)
    assert isinstance(bench.reports.refreshes[0], SignatureInvalid)


# --- signed lookups ----------------------------------------------------------------------------------------------


async def test_with_signed_lookups_each_record_on_the_way_is_certified_and_the_name_is_not() -> None:
    bench = Bench(
        {
            ROOT: {b"0.NA/10.5072": [serv_value(b"10.SERV/A")], b"0.NA/10.SERV": [site_value(2)]},
            2: {b"10.SERV/A": [site_value(3)]},
            3: {b"10.5072/1": _URL},
        },
        are_signed=True,
    )
    assert await bench.codes(b"10.5072/1", b"10.5072/2") == [1, 100]
    asked = {question.handle: question.certified for _, question in bench.world.questions}
    assert {handle for handle, certified in asked.items() if not certified} == {b"10.5072/1", b"10.5072/2"}
    # The way is proven already, so `cert` needs no further lookup.
    lookups = len(bench.asked)
    assert await bench.codes(b"10.5072/1", certified=True) == [1]
    assert len(bench.asked) == lookups + 1


async def test_an_unsigned_referral_of_a_name_proves_nothing() -> None:
    services: dict[int, dict[bytes, Content]] = {
        ROOT: {b"0.NA/10.5072": [site_value(2)]},
        2: {b"10.5072/1": Referral([site_value(3, b"HS_SITE.PREFIX")])},
        3: {b"10.5072/1": _URL},
    }
    bench = Bench(services, are_signed=True)
    assert await bench.codes(b"10.5072/1") == [1]
    services_of_name = [service for service, question in bench.world.questions if not question.is_lookup]
    assert [service.is_verified for service in services_of_name] == [True, False]


async def test_a_root_without_a_key_is_looked_up_without_signatures() -> None:
    bench = Bench(_direct(), is_verified=False, are_signed=True)
    assert await bench.codes(b"10.5072/1") == [1]
    # The refresh of the root needs a signature, as ever.
    certified = {question.handle for _, question in bench.world.questions if question.certified}
    assert certified <= {b"0.NA/0.NA"}


# --- Records from handle servers are the JSON that the reference server's HTTP API writes, byte for byte -------------


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
