"""Several upstreams, and none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import BreakerOpen, CouldNotVerify, InvalidAnswer, UpstreamRefused, UpstreamUnreachable
from doi_proxy.upstream.client import HandleClient
from doi_proxy.upstream.guard import RoutedSource
from doi_proxy.upstream.source import SealedSource, Source, UpstreamQuery
from handle_protocol.referral import Answer, ResponseCode
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.parts import usual_api

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
