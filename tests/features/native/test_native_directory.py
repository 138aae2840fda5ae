"""The way from the root to the servers of a handle: its steps, its bounds and its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from handle_protocol.errors import QueryNotAdmitted, ServerTimeout, ServiceNotFound, SignatureInvalid
from handle_protocol.referral import read_lead
from handle_protocol.wire.message import ResponseStatus
from handle_protocol.wire.site_value import Permission, Server, ServiceSite, TtlType, Value, encode_site
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
from tests.table import table

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
