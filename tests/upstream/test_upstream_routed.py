"""Several upstreams, and none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.core import name_service
from doi_proxy.assembly.features import installed
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import (
    BreakerOpen,
    CouldNotVerify,
    InvalidAnswer,
    NotInBundle,
    UpstreamRefused,
    UpstreamUnreachable,
)
from doi_proxy.upstream.client import HandleClient, translate_error
from doi_proxy.upstream.guard import RoutedSource, list_outcomes
from doi_proxy.upstream.source import (
    CONTROL_NAME,
    SealedSource,
    Source,
    UpstreamQuery,
)
from handle_protocol.referral import Answer, ResponseCode
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.parts import usual_api
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


class Refusing:
    """A source that was not asked, because its breaker is open."""

    async def fetch(self, query: UpstreamQuery) -> Answer:
        raise BreakerOpen

    async def aclose(self) -> None:
        pass


class Three:
    def __init__(self, fakes: list[FakeUpstream], sources: list[HandleClient]) -> None:
        self.one, self.two, self.three = fakes
        self.sources: list[Source] = [*sources]

    def counts(self) -> tuple[int, int, int]:
        return self.one.queries(), self.two.queries(), self.three.queries()


@pytest.fixture
async def three() -> AsyncIterator[Three]:
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeUpstream()) for _ in range(3)]
        sources = [usual_api(fake.url) for fake in fakes]
        for source in sources:
            stack.push_async_callback(source.aclose)
        yield Three(fakes, sources)


async def ask(source: Source, name: str) -> ResponseCode:
    return (await source.fetch(UpstreamQuery(HandleName(name)))).code


async def test_the_first_upstream_that_answers_is_the_last_that_is_asked(three: Three) -> None:
    three.one.fault(EVERY_NAME, "garbage")
    three.two.put("10.1234/x", url="https://target.example/")
    answer = await RoutedSource({}, three.sources).fetch(UpstreamQuery(HandleName("10.1234/x")))
    assert (answer.code, answer.detail, three.counts()) == (ResponseCode.SUCCESS, "upstream-2", (1, 1, 0))


async def test_an_answer_of_the_first_upstream_names_none(three: Three) -> None:
    answer = await RoutedSource({}, three.sources).fetch(UpstreamQuery(HandleName("10.1234/x")))
    assert (answer.code, answer.detail) == (ResponseCode.HANDLE_NOT_FOUND, None)


async def test_not_found_is_an_answer(three: Three) -> None:
    three.two.put("10.1234/x", url="https://target.example/")
    assert await ask(RoutedSource({}, three.sources), "10.1234/x") is ResponseCode.HANDLE_NOT_FOUND
    assert three.counts() == (1, 0, 0)


async def test_when_all_fail_the_first_failure_is_told(three: Three) -> None:
    three.one.fault(EVERY_NAME, "garbage")
    three.two.fault(EVERY_NAME, "reset")
    three.three.fault(EVERY_NAME, "code_2")
    with pytest.raises(CouldNotVerify) as failure:
        await ask(RoutedSource({}, three.sources), "10.1234/x")
    assert type(failure.value) is InvalidAnswer


async def test_the_failure_of_an_upstream_that_was_asked_says_more_than_that_of_one_that_was_not(three: Three) -> None:
    three.one.fault(EVERY_NAME, "reset")
    with pytest.raises(UpstreamUnreachable):
        await ask(RoutedSource({}, [Refusing(), three.sources[0]]), "10.1234/x")
    with pytest.raises(BreakerOpen):
        await ask(RoutedSource({}, [Refusing(), SealedSource()]), "10.1234/x")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("10.5072/x", (1, 0, 0)),
        ("10.5072", (1, 0, 0)),
        ("10.5072.9/x", (1, 0, 0)),
        ("10.5072.1/x", (0, 1, 0)),
        ("10.5072.1.7/x", (0, 1, 0)),
        ("0.NA/10.5072", (1, 0, 0)),
        ("0.na/10.5072.1", (0, 1, 0)),
        ("10.50720/x", (0, 0, 1)),
        ("10.1000/10.5072", (0, 0, 1)),
        ("10/abcde", (0, 0, 1)),
        ("/10.5072/x", (0, 0, 1)),
        ("ABC.def/x", (1, 0, 0)),
    ],
)
async def test_the_longest_prefix_decides(three: Three, name: str, asked: tuple[int, int, int]) -> None:
    routes = {"10.5072": three.sources[0], "10.5072.1/": three.sources[1], "abc": three.sources[0]}
    await ask(RoutedSource(routes, [three.sources[2]]), name)
    assert three.counts() == asked


async def test_a_routed_prefix_is_asked_nowhere_else(three: Three) -> None:
    three.one.fault(EVERY_NAME, "code_2")
    source = RoutedSource({"10.5072": three.sources[0]}, [three.sources[1]])
    with pytest.raises(UpstreamRefused):
        await ask(source, "10.5072/x")
    assert three.counts() == (1, 0, 0)


async def test_each_source_is_closed_once(three: Three) -> None:
    class Closing(Refusing):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    source = Closing()
    await RoutedSource({"10.1": source, "10.2": source}, [source]).aclose()
    assert source.closed == 1


# --- The bounds of what is asked of an upstream and read of it, as numbers: a changed bound is a changed promise -----


def test_an_error_of_a_library_is_repeated_up_to_200_characters() -> None:
    failure = translate_error(OSError("x" * 300))
    assert isinstance(failure, UpstreamUnreachable)
    assert failure.detail == "OSError: " + "x" * (200 - len("OSError: "))


async def test_the_control_question_is_about_the_prefix_of_all_dois() -> None:
    assert CONTROL_NAME.text == "0.NA/10"


async def test_the_words_of_outcomes_stay_the_same() -> None:
    """They are labels of metrics, which dashboards and alerts name."""
    assert installed()
    assert {
        "found", "not_found", "no_values", "agencies", "cancelled", "upstream-timeout", "upstream-unreachable",
        "upstream-refused", "upstream-bad-answer", "breaker-open", "upstream-paused", "upstream-loop", "budget-spent",
        "places-full", "upstream-slow", "resources-short", "share-spent", "sealed", "not-asked", "malformed-message",
        "answer-mismatch", "signature-invalid",
        "service-not-found", "handle-server-unreachable",
    } == list_outcomes()  # fmt: skip


# --- The source of a sealed resolver, which has no upstream ----------------------------------------------------------


NAME_UPSTREAM_LOCAL = HandleName("10.1000/182")


@pytest.mark.parametrize(
    ("query", "names_the_parameters"),
    [
        (UpstreamQuery(NAME_UPSTREAM_LOCAL), False),
        (UpstreamQuery(NAME_UPSTREAM_LOCAL, authoritative=True), True),
        (UpstreamQuery(NAME_UPSTREAM_LOCAL, certified=True), True),
    ],
)
async def test_a_query_is_refused_and_the_message_says_what_to_leave_out(
    query: UpstreamQuery, names_the_parameters: bool
) -> None:
    with pytest.raises(NotInBundle) as error:
        await SealedSource().fetch(query)
    assert ("without `auth` and `cert`" in error.value.message) is names_the_parameters


async def test_a_query_about_agencies_is_refused() -> None:
    with pytest.raises(NotInBundle):
        await SealedSource().registration_agencies(["10.1000"])


# --- A service whose upstream is the service itself reports the loop, and does not wait for its own answer -----------


NAME: Final = "10.5555/article"


async def test_status_508_of_the_upstream_is_a_loop() -> None:
    async with Proxy() as proxy:
        proxy.upstream.fault(NAME, "status", status=508)
        got = await proxy.get(f"/api/handles/{NAME}")
        assert (got.status, got.json["responseCode"]) == (502, 2)
        assert got["proxy-status"] == 'doi-proxy; error=proxy_loop_detected; details="upstream-loop"'


@pytest.mark.parametrize("target", [f"/api/handles/{NAME}", f"/{NAME}", "/ra/10.5555"])
async def test_a_request_with_the_own_identifier_causes_no_query(target: str) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="http://example.org/")
        got = await proxy.get(target, cdn_loop=f"cloudflare, {name_service(proxy.read_settings())}")
        assert (got.status, proxy.upstream.queries()) == (508, 0)
        assert "upstream.url" in got.text


async def test_the_identifier_of_another_service_is_no_loop() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="http://example.org/")
        got = await proxy.get(f"/api/handles/{NAME}", cdn_loop="doi-proxy-0000000000000000")
        assert (got.status, got.json["responseCode"]) == (200, 1)


async def test_a_cached_answer_needs_no_query_and_is_given() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="http://example.org/")
        await proxy.get(f"/api/handles/{NAME}")
        got = await proxy.get(f"/api/handles/{NAME}", cdn_loop=name_service(proxy.read_settings()))
        assert got.status == 200


def test_the_instances_of_a_service_have_one_identifier_and_a_service_with_another_upstream_another() -> None:
    one, two = (Settings(store_url="sqlite:///store.sqlite3", instance=name) for name in ("1", "2"))
    other = Settings(store_url="sqlite:///store.sqlite3", upstream_url="https://doi.example.org")
    assert name_service(one) == name_service(two) != name_service(other)
