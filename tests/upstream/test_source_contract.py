"""The contract of every source: an HTTP API, alone or behind other sources, and servers of the native protocol.

A fact takes a row, which opens a source and the server behind it, in virtual time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from doi_proxy.errors import CouldNotVerify, NotInBundle, OversizedAnswer, UpstreamUnreachable
from doi_proxy.features.explain.explainer import RehearsedSource
from doi_proxy.upstream.client import HandleClient
from doi_proxy.upstream.source import SealedSource, Source
from handle_protocol.referral import Answer, ResponseCode
from handle_protocol.value import MAX_VALUES
from tests.features.native.clients import query
from tests.handle_protocol.lies import LIES
from tests.upstream.faults import FAULTS
from tests.upstream.source_rows import MEANINGS, OF_HTTP, OF_NATIVE, PREFIX, ROWS, TOTAL_TIMEOUT, Failure, Row

pytestmark = pytest.mark.anyio

NAME: Final = f"{PREFIX}/Name"
TARGET: Final = "https://target.example/"
#: Seconds after which an upstream that refused with Retry-After may be queried again.
PAUSE: Final = 10.0

every_source = pytest.mark.parametrize("row", ROWS, indirect=True)


@pytest.fixture
async def row(request: pytest.FixtureRequest) -> AsyncIterator[Row]:
    """The source that the parameter names, over a server that has one record."""
    opened = ROWS[request.param](request.param)
    await opened.open()
    opened.server.put(NAME, url=TARGET)
    yield opened
    await opened.close()


def values_of(answer: Answer) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = json.loads(answer.values)
    return values


def value(index: int, text: str = TARGET) -> dict[str, Any]:
    return {"index": index, "type": "URL", "data": {"format": "string", "value": text}, "ttl": 86_400}


# --- Answers ---------------------------------------------------------------------------------------------------------


@every_source
async def test_a_record_a_missing_name_and_a_record_without_values_are_answers(row: Row) -> None:
    row.server.put(f"{PREFIX}/empty", values=[])
    found = await row.source.fetch(query(NAME))
    assert (found.code, values_of(found)[0]["data"]["value"]) == (ResponseCode.SUCCESS, TARGET)
    assert (await row.source.fetch(query(f"{PREFIX}/unknown"))).code is ResponseCode.HANDLE_NOT_FOUND
    assert (await row.source.fetch(query(f"{PREFIX}/empty"))).code is ResponseCode.VALUES_NOT_FOUND


@every_source
async def test_a_record_has_all_its_values_in_the_order_of_the_server(row: Row) -> None:
    row.server.put(NAME, values=[value(3), value(1), value(700, "ä" * 20_000)])
    values = values_of(await row.source.fetch(query(NAME)))
    assert [(each["index"], len(each["data"]["value"])) for each in values] == [(3, 23), (1, 23), (700, 20_000)]


@every_source
async def test_odd_names_arrive_unharmed(row: Row) -> None:
    for suffix in ("nAmE", "a/b?c#d%2F ä", ".", "..", "a" * 1_500):
        row.server.put(f"{PREFIX}/{suffix}", url=f"{TARGET}{len(suffix)}")
        answer = await row.source.fetch(query(f"{PREFIX}/{suffix}"))
        assert values_of(answer)[0]["data"]["value"] == f"{TARGET}{len(suffix)}"
        assert row.server.queries(f"{PREFIX}/{suffix}") == 1


@every_source
async def test_auth_and_cert_are_passed_on(row: Row) -> None:
    for flags in (set(), {"auth"}, {"cert"}, {"auth", "cert"}):
        await row.source.fetch(query(NAME, authoritative="auth" in flags, certified="cert" in flags))
        assert row.read_flags() == flags


@every_source
async def test_many_queries_at_once_get_their_own_answers(row: Row) -> None:
    names = [f"{PREFIX}/{number}" for number in range(50)]
    # An address that has not answered yet gets few packets.
    await row.source.fetch(query(NAME))
    for name in names:
        row.server.put(name, url=TARGET + name)
        row.server.hold(name)
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(row.source.fetch(query(name))) for name in names}
        for name in reversed(names):
            await row.server.arrived(name)
            row.server.release(name)
    for name, task in tasks.items():
        assert values_of(task.result())[0]["data"]["value"] == TARGET + name
        assert row.server.queries(name) == 1


@every_source
async def test_a_query_leaves_once_before_the_server_has_it(row: Row) -> None:
    left: list[int] = []
    await row.source.fetch(query(NAME, leaves=lambda: left.append(row.server.queries())))
    assert left == [0]


@every_source
async def test_no_name_is_logged(row: Row, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await row.source.fetch(query(NAME))
    assert PREFIX not in caplog.text


# --- Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failures", "kinds"), [(OF_HTTP, FAULTS), (OF_NATIVE, LIES)], ids=["http", "native"])
def test_each_protocol_has_every_kind_of_failure(failures: tuple[Failure, ...], kinds: dict[str, object]) -> None:
    assert {failure.means for failure in failures} - {""} == MEANINGS
    # An answer with a code of the handle API counts, whatever its HTTP status, and whether it is true or not.
    assert {failure.kind for failure in failures} == {*kinds} - {"denies", "unavailable_but_known"}


@every_source
async def test_each_failure_is_one_error_that_harms_no_other_query(row: Row) -> None:
    for failure in row.failures:
        name = f"{PREFIX}/{failure}"
        row.server.put(name, url=TARGET)
        row.fail(name, failure)
        with pytest.raises(CouldNotVerify) as caught:
            await row.source.fetch(query(name, certified=True))
        error, expected = caught.value, failure.errors.get(row.name, failure.error)
        assert type(error) is expected, failure
        # The words of libraries, servers and addresses are for the log.
        assert not any(word in error.message for word in ("aiohttp", "httpx", "Errno", "127.0.0.1", "secret", "<"))
        assert 1 <= row.server.queries(name) <= row.most_queries(failure), failure
        if "retry_after" in failure.options:
            assert (error.retry_after, type(error).__name__) == (failure.options["retry_after"], "UpstreamRefused")
            await asyncio.sleep(PAUSE)
        assert (await row.source.fetch(query(NAME, certified=True))).code is ResponseCode.SUCCESS, failure


@pytest.mark.parametrize("row", ["http"], indirect=True)
async def test_each_failure_is_the_same_error_of_a_query_about_agencies(row: Row) -> None:
    assert isinstance(row.source, HandleClient)
    for failure in row.failures:
        before = row.server.queries()
        row.fail(PREFIX, failure)
        with pytest.raises(CouldNotVerify) as caught:
            await row.source.registration_agencies([PREFIX])
        assert (type(caught.value), row.server.queries() - before) == (failure.error, failure.queries), failure


@every_source
async def test_a_server_that_answers_in_time_is_waited_for_and_a_silent_one_no_longer_than_that(row: Row) -> None:
    now = asyncio.get_running_loop().time
    row.server.hold(NAME)
    began, fetching = now(), asyncio.create_task(row.source.fetch(query(NAME)))
    await asyncio.sleep(3.0)
    row.server.release(NAME)
    assert (await fetching).code is ResponseCode.SUCCESS
    assert now() - began < 3.5
    began = now()
    row.server.hold(NAME)
    with pytest.raises(CouldNotVerify):
        await row.source.fetch(query(NAME))
    assert now() - began <= TOTAL_TIMEOUT
    row.server.release(NAME)


@every_source
async def test_a_record_over_a_limit_is_too_large(row: Row) -> None:
    for values in ([value(1)] * (MAX_VALUES + 1), [value(1, "x" * 1_100_000)], [value(1, "\x0b" * 200_000)]):
        row.server.put(NAME, values=values)
        with pytest.raises(OversizedAnswer, match=r"the limit is \d+|longer than 1048576 bytes"):
            await row.source.fetch(query(NAME))


@every_source
async def test_a_closed_port_is_unreachable(row: Row) -> None:
    await row.source.fetch(query(NAME))
    await row.server.__aexit__(None, None, None)
    with pytest.raises(UpstreamUnreachable):
        await row.source.fetch(query(NAME))
    await row.server.__aenter__()
    await asyncio.sleep(PAUSE)
    assert (await row.source.fetch(query(NAME))).code is ResponseCode.SUCCESS


# --- Ends ------------------------------------------------------------------------------------------------------------


@every_source
async def test_a_query_that_is_cancelled_closes_what_it_opened(row: Row) -> None:
    row.server.hold(NAME)
    fetching = asyncio.create_task(row.source.fetch(query(NAME)))
    await row.server.arrived(NAME)
    assert row.count_open() > 0
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await asyncio.sleep(0)
    assert row.count_open() == 0
    row.server.release(NAME)
    assert (await row.source.fetch(query(NAME))).code is ResponseCode.SUCCESS


@every_source
async def test_a_source_that_is_closed_twice_has_nothing_open_and_ends_what_is_under_way(row: Row) -> None:
    await row.source.fetch(query(NAME))
    row.server.hold(NAME)
    fetching = asyncio.create_task(row.source.fetch(query(NAME)))
    await row.server.arrived(NAME, 2)
    for _ in range(2):
        await row.source.aclose()
    with pytest.raises(CouldNotVerify):
        await fetching
    await asyncio.sleep(0)
    assert row.count_open() == 0


@pytest.mark.parametrize("source", [SealedSource(), RehearsedSource(SealedSource())], ids=["sealed", "rehearsed"])
async def test_a_source_without_a_server_answers_nothing(source: Source) -> None:
    for options in ({}, {"authoritative": True}, {"certified": True}):
        with pytest.raises(NotInBundle):
            await source.fetch(query(NAME, **options))
    for _ in range(2):
        await source.aclose()
