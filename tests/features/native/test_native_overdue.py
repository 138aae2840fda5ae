"""Known services outlive the root and their parents; of several service handles, one is enough."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.features.native.errors import as_failure_of_server
from handle_protocol.errors import (
    HandleProtocolError,
    RootPaused,
    ServerRefused,
    ServerTimeout,
    ServerUnreachable,
    ServiceNotFound,
    ServiceUnreachable,
    SignatureInvalid,
)
from handle_protocol.referral import Question
from handle_protocol.wire.site_value import Value
from tests.features.native.world import ROOT, Bench, Content, Referral, serv_value, site_value
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

_URL: Final = [Value(1, b"URL", b"https://example.org/")]
_PREFIX: Final = b"0.NA/10.5072"
_NAME: Final = b"10.5072/1"
#: After this, a service is due; the limits of Bench have a grace of a day.
_DUE: Final = 3_600.0
_GRACE: Final = 86_400.0


def _direct() -> dict[int, dict[bytes, Content]]:
    return {ROOT: {_PREFIX: [site_value(2)]}, 2: {_NAME: _URL}}


async def _overdue(services: dict[int, dict[bytes, Content]] | None = None, *, certified: bool = False) -> Bench:
    """A directory that knows the service of 10.5072, whose lifetime is over."""
    bench = Bench(services or _direct())
    assert await bench.codes(_NAME, certified=certified) == [1]
    bench.clock.advance(_DUE)
    return bench


_FAILURES: Final = [
    ServerUnreachable(),
    ServerTimeout(),
    ServerRefused("The handle server reported a failure, response code 2.", response_code=2),
    SignatureInvalid(),
]


@pytest.mark.parametrize("failure", _FAILURES, ids=lambda failure: type(failure).__name__)
async def test_names_of_a_known_prefix_resolve_without_the_root(failure: HandleProtocolError) -> None:
    bench = await _overdue()
    bench.world.failures[ROOT] = failure
    assert await bench.codes(_NAME, b"10.5072/2", _NAME) == [1, 100, 1]
    assert bench.asked.count((ROOT, _PREFIX)) == 2
    assert len(bench.reports.overdue) == 1


@pytest.mark.parametrize(
    "content",
    [100, 200, 301, [], _URL, [Value(1, b"HS_SITE", b"malformed")], Referral([]), [serv_value(b"0.NA/none")]],
)
async def test_names_of_a_known_prefix_resolve_if_the_root_forgets_it(content: Content) -> None:
    bench = await _overdue()
    bench.world.services[ROOT][_PREFIX] = content
    if content == [serv_value(b"0.NA/none")]:
        # The record was found. It leads nowhere, which is an error and not "not found".
        with pytest.raises(ServiceNotFound):
            await bench.codes(_NAME)
        return
    assert await bench.codes(_NAME, _NAME) == [1, 1]
    assert bench.asked.count((ROOT, _PREFIX)) == 2


async def test_a_service_that_could_not_be_looked_up_is_due_again_after_a_pause() -> None:
    bench = await _overdue()
    bench.world.services[ROOT][_PREFIX] = 200
    for _ in range(3):
        await bench.codes(_NAME, _NAME)
        bench.clock.advance(60.0)
    assert bench.asked.count((ROOT, _PREFIX)) == 4
    bench.world.services[ROOT][_PREFIX] = [site_value(3)]
    bench.world.services[3] = {_NAME: 100}
    assert await bench.codes(_NAME, _NAME) == [100, 100]
    assert bench.asked.count((ROOT, _PREFIX)) == 5


async def test_a_root_that_failed_is_not_queried_for_each_known_prefix() -> None:
    bench = Bench({ROOT: {b"0.NA/10.%d" % number: [site_value(2)] for number in range(1, 4)}, 2: {}})
    names = [b"10.1/1", b"10.2/1", b"10.3/1"]
    await bench.codes(*names)
    bench.clock.advance(_DUE)
    bench.world.failures[ROOT] = ServerUnreachable()
    before = len(bench.asked)
    assert await bench.codes(*names) == [100, 100, 100]
    assert len(bench.asked) == before + 1 + len(names)


@pytest.mark.parametrize("grace", [_GRACE, 0.0])
async def test_a_service_is_not_used_after_its_grace(grace: float) -> None:
    bench = Bench(_direct(), grace=grace)
    assert await bench.codes(_NAME) == [1]
    bench.clock.advance(_DUE + grace - 1)
    bench.world.failures[ROOT] = ServerUnreachable()
    assert await bench.codes(_NAME) == [1]
    bench.clock.advance(1)
    with pytest.raises(ServerUnreachable):
        await bench.codes(_NAME)


async def test_a_silent_root_delays_a_known_prefix_once() -> None:
    bench = Bench(_direct(), lookup_timeout=4.0)
    await bench.codes(_NAME)
    bench.clock.advance(_DUE)
    bench.world.silent.add(ROOT)
    assert await bench.codes(_NAME, _NAME) == [1, 1]
    assert bench.asked.count((ROOT, _PREFIX)) == 2
    assert isinstance(bench.reports.overdue[0], ServerTimeout)


async def test_a_prefix_that_is_proven_not_to_exist_ends() -> None:
    bench = await _overdue(certified=True)
    del bench.world.services[ROOT][_PREFIX]
    assert await bench.codes(_NAME) == [1]
    assert await bench.codes(_NAME, certified=True) == [1]
    bench.clock.advance(60.0)
    assert await bench.codes(_NAME, certified=True) == [None]


async def test_a_server_that_is_no_longer_responsible_is_the_answer_without_the_root() -> None:
    bench = await _overdue()
    bench.world.failures[ROOT] = ServerUnreachable()
    bench.world.services[2][_NAME] = 301
    assert await bench.codes(_NAME) == [301]


# --- services of parents -----------------------------------------------------------------------------------------


async def test_a_known_service_handle_outlives_the_server_that_has_it() -> None:
    services: dict[int, dict[bytes, Content]] = {
        ROOT: {_PREFIX: [serv_value(b"10.SERV/A")], b"0.NA/10.SERV": [site_value(2)]},
        2: {b"10.SERV/A": [site_value(3)]},
        3: {_NAME: _URL},
    }
    bench = await _overdue(services)
    bench.world.failures[2] = ServerUnreachable()
    assert await bench.codes(_NAME, _NAME) == [1, 1]
    assert bench.asked.count((2, b"10.SERV/A")) == 2
    # The root answers, so other prefixes are not concerned.
    assert len(bench.reports.overdue) == 1


# --- unknown prefixes --------------------------------------------------------------------------------------------


async def test_the_failure_of_the_root_concerns_single_names_while_services_are_known() -> None:
    bench = await _overdue()
    bench.world.failures[ROOT] = ServerUnreachable()
    with pytest.raises(ServiceUnreachable) as caught:
        await bench.codes(b"10.1/1")
    assert as_failure_of_server(caught.value).concerns_name


async def test_a_root_that_failed_for_several_prefixes_is_left_alone() -> None:
    bench = await _overdue()
    bench.world.failures[ROOT] = ServerUnreachable()
    for number in range(3):
        with pytest.raises(ServiceUnreachable):
            await bench.codes(b"10.%d/1" % number)
    before = len(bench.asked)
    with pytest.raises(RootPaused):
        await bench.codes(b"10.9/1")
    assert await bench.codes(_NAME) == [1]
    assert len(bench.asked) == before + 1
    bench.clock.advance(60.0)
    bench.world.failures.clear()
    assert await bench.codes(b"10.9/1") == [None]


async def test_without_any_known_service_the_root_is_always_queried() -> None:
    bench = Bench(_direct(), services=2)
    # A prefix that does not exist is not a known service, and neither is one that was forgotten.
    assert await bench.codes(_NAME, b"10.101/1", b"10.102/1") == [1, None, None]
    before = len(bench.asked)
    bench.world.failures[ROOT] = ServerUnreachable()
    for number in range(10):
        with pytest.raises(ServerUnreachable):
            await bench.codes(b"10.%d/1" % number)
    assert len(bench.asked) == before + 10


async def test_a_known_service_shows_that_the_upstream_works_without_the_root() -> None:
    bench = Bench(_direct())
    bench.world.failures[ROOT] = ServerUnreachable()
    with pytest.raises(ServerUnreachable):
        await bench.directory.probe(Question(b"0.NA/10"))
    bench.world.failures.clear()
    await bench.codes(_NAME)
    bench.world.failures[ROOT] = ServerUnreachable()
    answer = await bench.directory.probe(Question(b"0.NA/10"))
    assert (answer.code if answer else None, bench.asked[-1]) == (100, (2, b"0.NA/10"))


async def test_names_of_unknown_prefixes_do_not_stop_those_of_known_ones(tmp_path: Path) -> None:
    async with HandleServer(serial=2) as home:
        home.put("10.1000/1", url="http://one.example/")
        home.put("10.1000/2", url="http://two.example/")
        async with HandleServer() as root:
            (tmp_path / "root.json").write_bytes(write_bootstrap(root))
            root.put_values("0.NA/10.1000", home.site_value())
            settings = {
                "upstream_url": "hdl:",
                "upstream_bootstrap": tmp_path / "root.json",
                "upstream_private_servers": True,
                "upstream_breaker_failures": 4,
            }
            async with Proxy(**settings) as proxy:
                assert (await proxy.ask("GET", "/10.1000/1")).status == 302
                await root.__aexit__(None, None, None)
                unknown = [proxy.ask("GET", f"/10.{number}/1") for number in range(2_000, 2_020)]
                assert {got.status for got in await asyncio.gather(*unknown)} <= {502, 503}
                assert (await proxy.ask("GET", "/10.1000/2"))["location"] == "http://two.example/"


# --- signatures --------------------------------------------------------------------------------------------------


async def test_an_unverified_service_is_never_used_for_certified_questions() -> None:
    bench = await _overdue()
    bench.world.failures[ROOT] = SignatureInvalid()
    with pytest.raises(SignatureInvalid):
        await bench.codes(_NAME, certified=True)


async def test_an_unsigned_lookup_does_not_replace_a_verified_one() -> None:
    bench = await _overdue(certified=True)
    await bench.codes(_NAME)
    bench.world.failures[ROOT] = SignatureInvalid()
    assert await bench.codes(_NAME, certified=True) == [1]
    assert bench.world.questions[-1][0].is_verified


# --- several service handles -------------------------------------------------------------------------------------


def _several(*handles: bytes) -> dict[int, dict[bytes, Content]]:
    return {ROOT: {_PREFIX: [serv_value(handle) for handle in handles]}, 2: {_NAME: _URL}}


@pytest.mark.parametrize("first", [100, 200, 301, [], [serv_value(_PREFIX)], Referral([])])
async def test_the_first_service_handle_that_leads_to_sites_counts(first: Content) -> None:
    bench = Bench(_several(b"0.NA/a", b"0.NA/b", b"0.NA/c"))
    bench.world.services[ROOT] |= {b"0.NA/a": first, b"0.NA/b": [site_value(2)], b"0.NA/c": [site_value(9)]}
    assert await bench.codes(_NAME) == [1]
    assert (ROOT, b"0.NA/c") not in bench.asked


async def test_a_service_handle_without_a_signature_does_not_hide_the_next() -> None:
    bench = Bench(_several(b"10.SERV/a", b"0.NA/b"))
    bench.world.services[ROOT] |= {b"0.NA/10.SERV": [site_value(3)], b"0.NA/b": [site_value(2)]}
    bench.world.services[3] = {}
    bench.world.failures[3] = SignatureInvalid()
    assert await bench.codes(_NAME, certified=True) == [1]


async def test_a_referral_can_name_several_service_handles() -> None:
    referral = Referral([serv_value(b"0.NA/none", b"HS_SERV.PREFIX"), serv_value(b"0.NA/b", b"HS_SERV.PREFIX")])
    bench = Bench({ROOT: {_PREFIX: referral, b"0.NA/b": [site_value(3)]}, 3: {_PREFIX: [site_value(2)]}, 2: {}})
    assert await bench.codes(_NAME) == [100]


async def test_the_failure_of_the_first_service_handle_is_the_error() -> None:
    with pytest.raises(ServiceNotFound) as caught:
        await Bench(_several(b"0.NA/a", b"0.NA/b")).codes(_NAME)
    assert caught.value.detail == "the service handle b'0.NA/a' does not exist"


async def test_service_handles_that_name_each_other_do_not_multiply_the_work() -> None:
    names = [b"0.NA/s%d" % number for number in range(8)]
    services = _several(*names)
    services[ROOT] |= {name: [serv_value(other) for other in names] for name in names}
    bench = Bench(services, services=100)
    for _ in range(3):
        with pytest.raises(ServiceNotFound):
            await bench.codes(_NAME)
    assert len(bench.asked) <= 10 * 3


async def test_a_record_names_a_bounded_number_of_service_handles() -> None:
    handles = [b"0.NA/s%d" % number for number in range(9)]
    bench = Bench(_several(*handles), queries=20)
    bench.world.services[ROOT][handles[8]] = [site_value(2)]
    with pytest.raises(ServiceNotFound):
        await bench.codes(_NAME)
    bench.world.services[ROOT][handles[7]] = [site_value(2)]
    bench.clock.advance(60.0)
    assert await bench.codes(_NAME) == [1]


# --- with servers ------------------------------------------------------------------------------------------------


async def test_concurrent_names_of_an_overdue_prefix_share_one_lookup() -> None:
    bench = await _overdue()
    bench.world.failures[ROOT] = ServerUnreachable()
    codes = await asyncio.gather(*(bench.codes(b"10.5072/%d" % number) for number in range(1, 21)))
    assert codes == [[1], *[[100]] * 19]
    assert bench.asked.count((ROOT, _PREFIX)) == 2
