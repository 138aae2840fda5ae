"""A visit of a list: the outcome of each name, the limits, and why a visit stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, CouldNotVerify
from doi_proxy.features.bundles.visit import (
    MAX_FAILURES,
    MAX_NAMED,
    NameItem,
    RefusedItem,
    Tally,
    Visit,
    VisitBounds,
    VisitOutcome,
    resolve_dependencies,
)
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.system.progress import Bar
from doi_proxy.upstream.client import HandleClient
from doi_proxy.upstream.source import SealedSource
from tests.cache.entries import entry, missing
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.parts import usual_api, usual_cache, usual_resolver

pytestmark = pytest.mark.anyio

URL = "http://example.org/"


class Bench:
    """A cache and a resolver in front of a fake upstream, or in front of none."""

    def __init__(self, upstream: FakeUpstream, source: HandleClient, clock: Clock) -> None:
        self.upstream, self.clock = upstream, clock
        self.cache: TieredStore = usual_cache("memory:", clock=clock)
        self.resolver = self._resolver(source)
        self.sealed = self._resolver(SealedSource())

    def visit(
        self, *, is_sealed: bool = False, concurrency: int = 1, limit: int | None = None, **options: Any
    ) -> Visit:
        resolver = self.sealed if is_sealed else self.resolver
        bounds = VisitBounds(concurrency, limit, queries_upstream=not is_sealed)
        return Visit(self.cache, resolver, clock=self.clock, bounds=bounds, **options)

    async def close(self) -> None:
        await self.resolver.close()
        await self.sealed.close()
        await self.cache.close()

    def _resolver(self, source: HandleClient | SealedSource) -> Resolver:
        return usual_resolver(self.cache, source, self.clock, upstream=60, recheck=0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with FakeUpstream() as upstream:
        clock = Clock()
        source = usual_api(upstream.url, clock=clock)
        bench = Bench(upstream, source, clock)
        yield bench
        await bench.close()
        await source.aclose()


async def run(visit: Visit, *items: NameItem | str) -> dict[VisitOutcome, int]:
    await visit.run(iter([HandleName(item) if isinstance(item, str) else item for item in items]), Bar())
    return dict(visit.tally.counts)


def test_a_tally_counts_all_names_and_repeats_the_first_messages_of_each_verdict() -> None:
    tally = Tally()
    for number in range(MAX_NAMED + 1):
        tally.add(VisitOutcome.INVALID, f"line {number}")
    tally.add(VisitOutcome.RESOLVED)
    assert not tally.has_failures()
    tally.add(VisitOutcome.STALE, "10.1/x")
    assert tally.has_failures()
    assert tally.counts == {VisitOutcome.INVALID: MAX_NAMED + 1, VisitOutcome.RESOLVED: 1, VisitOutcome.STALE: 1}
    assert tally.messages == [*(f"invalid: line {number}" for number in range(MAX_NAMED)), "stale: 10.1/x"]


async def test_each_answer_has_its_verdict(bench: Bench) -> None:
    bench.upstream.put("10.5555/url", url=URL)
    bench.upstream.put("10.5555/none", [])
    bench.upstream.fault("10.5555/fails", "reset")
    visit = bench.visit()
    unreadable = RefusedItem("list.txt:5", "???", "the name is not a DOI name")
    counts = await run(visit, "10.5555/url", "10.5555/none", "10.5555/gone", "10.5555/fails", unreadable)
    assert counts == {
        VisitOutcome.RESOLVED: 1,
        VisitOutcome.VALUES_NOT_FOUND: 1,
        VisitOutcome.NOT_FOUND: 1,
        VisitOutcome.COULD_NOT_VERIFY: 1,
        VisitOutcome.INVALID: 1,
    }
    assert "invalid: list.txt:5: '???': the name is not a DOI name" in visit.tally.messages
    assert await run(bench.visit(), "10.5555/URL") == {VisitOutcome.SKIPPED: 1}
    assert bench.upstream.queries("10.5555/url") == 1


async def test_a_record_that_cannot_be_renewed_is_stale(bench: Bench) -> None:
    bench.upstream.put("10.5555/url", url=URL, ttl=60)
    await run(bench.visit(), "10.5555/url")
    bench.clock.advance(3_600 * 24)
    bench.upstream.fault("10.5555/url", "reset")
    assert await run(bench.visit(), "10.5555/url") == {VisitOutcome.STALE: 1}


async def test_the_limit_counts_only_names_that_are_queried(bench: Bench) -> None:
    for name in "abc":
        bench.upstream.put(f"10.5555/{name}", url=URL)
    await run(bench.visit(), "10.5555/a")
    visit = bench.visit(limit=1)
    assert await run(visit, "10.5555/a", "10.5555/b", "10.5555/a", "10.5555/c") == {
        VisitOutcome.SKIPPED: 2,
        VisitOutcome.RESOLVED: 1,
    }
    assert visit.stop_reason == "the limit is reached"


async def test_failures_in_a_row_stop_a_visit_and_an_answer_between_them_does_not_let_them(bench: Bench) -> None:
    failing = [f"10.5555/fails{number}" for number in range(2 * MAX_FAILURES)]
    for name in failing:
        bench.upstream.fault(name, "reset")
    visit = bench.visit()
    assert await run(visit, *failing[:-1]) == {VisitOutcome.COULD_NOT_VERIFY: MAX_FAILURES}
    assert visit.stop_reason == f"{MAX_FAILURES} names in a row could not be verified"
    visit = bench.visit()
    rest = failing[: MAX_FAILURES - 1]
    assert (await run(visit, *rest, "10.5555/gone", *rest))[VisitOutcome.NOT_FOUND] == 1
    assert visit.stop_reason == ""


async def test_a_sealed_visit_skips_what_the_store_has(bench: Bench) -> None:
    await bench.cache.put(entry("10.5555/A"))
    await bench.cache.put(missing("10.5555/B"))
    visit = bench.visit(is_sealed=True)
    counts = await run(visit, "10.5555/a", "10.5555/b", "10.5555/c")
    assert counts == {VisitOutcome.SKIPPED: 2, VisitOutcome.COULD_NOT_VERIFY: 1}
    assert visit.tally.messages == ["could_not_verify: 10.5555/c: not in the store"]


async def test_an_error_in_the_list_ends_a_visit_and_is_left_for_the_caller(bench: Bench) -> None:
    failure = ConfigurationError("list.gz: its end is missing")

    def items() -> Iterator[NameItem]:
        yield HandleName("10.5555/gone")
        raise failure

    calls: list[None] = []
    visit = bench.visit(concurrency=2, after_each=lambda: calls.append(None))
    await visit.run(items(), Bar())
    assert (visit.list_failure, visit.stop_reason) == (failure, "list.gz: its end is missing")
    assert len(calls) == visit.tally.counts.total() == 1


async def test_the_first_reason_to_stop_is_kept_and_no_name_is_started(bench: Bench) -> None:
    visit = bench.visit()
    visit.stop("interrupted")
    visit.stop("later")
    assert await run(visit, "10.5555/a") == {}
    assert visit.stop_reason == "interrupted"


async def test_the_names_that_a_redirect_needs_are_resolved_too(bench: Bench) -> None:
    def alias(name: str, to: str) -> None:
        value = {"index": 1, "type": "HS_ALIAS", "data": {"format": "string", "value": to}, "ttl": 86_400}
        bench.upstream.put(name, [value])

    alias("10.5555/alias", "10.5555/end")
    alias("10.5555/loop", "10.5555/loop")
    bench.upstream.put("10.5555/end", url=URL)
    destinations = Destinations(bench.resolver, PrefixChain(bench.resolver), resolves="any")

    async def find_failure(name: str) -> CouldNotVerify | None:
        return await resolve_dependencies(destinations, await bench.resolver.resolve(HandleName(name)))

    assert await find_failure("10.5555/alias") is None
    assert await find_failure("10.5555/loop") is None
    assert bench.upstream.queries("10.5555/end") == 1
    alias("10.5555/broken", "10.5555/fails")
    bench.upstream.fault("10.5555/fails", "reset")
    assert await find_failure("10.5555/broken") is not None
