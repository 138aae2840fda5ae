"""A batch against a fake upstream: order, one lookup per name, bounds, waits, and the end of the work."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.lists.batch import BatchBounds, Batches, BatchInput, BatchOptions
from doi_proxy.features.lists.verdict import ListRow, Verdict, not_a_doi
from doi_proxy.features.local_records.records import LocalAnswer, LocalRecord, LocalRecords, answer_of_value
from doi_proxy.features.suggestions.suggested_names import Existence, SuggestedNames
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.budget import Budget, BudgetLimits
from handle_protocol.errors import UnusableAnswer
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import entry
from tests.clock import Clock
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.parts import usual_api, usual_cache, usual_resolver
from tests.upstream.guards import open_guard

pytestmark = pytest.mark.anyio

URL = "http://example.org/"
BOUNDS = BatchBounds(concurrency=4, window=16, timeout=60.0, memory_bytes=1_000_000)
PLAIN = BatchOptions()
#: Seconds after which a test that waits for an event fails.
SOON = 10


@dataclass
class Bench:
    """Batches in front of a fake upstream. `pauses` are the waits of names, during which the clock advances."""

    upstream: FakeUpstream
    clock: Clock
    cache: TieredStore
    resolver: Resolver
    batches: Batches
    pauses: list[float] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    async def run(self, *inputs: BatchInput, **options: Any) -> list[ListRow]:
        return [row async for row in self.batches.rows(stream(inputs), replace(PLAIN, **options))]


async def stream(inputs: Iterable[BatchInput]) -> AsyncIterator[BatchInput]:
    for one in inputs:
        yield one


@asynccontextmanager
async def running(*, resolves: str = "doi", bounds: BatchBounds = BOUNDS, **budget: Any) -> AsyncGenerator[Bench]:
    async with FakeUpstream() as upstream:
        clock = Clock()
        cache = usual_cache("memory:", clock=clock)
        api = usual_api(upstream.url, clock=clock)
        limits: dict[str, Any] = {"rate": 1e6, "burst": 1e6, "max_concurrency": 16}
        guard = open_guard(
            api,
            Budget(BudgetLimits(**(limits | budget)), clock),
            clock,
        )
        resolver = usual_resolver(cache, guard, clock, upstream=60, recheck=0)
        prefixes = PrefixChain(resolver)
        destinations = Destinations(resolver, prefixes, resolves=resolves)  # type: ignore[arg-type]
        names = SuggestedNames(Existence(resolver, queries=0, concurrency=1, timeout=0), frozenset())
        batches = Batches(destinations, bounds, clock, clock, names)
        bench = Bench(upstream, clock, cache, resolver, batches)
        bench.batches = replace(batches, sleep=bench.sleep, count=bench.counted.append)
        try:
            yield bench
        finally:
            await resolver.close()
            await api.aclose()
            await cache.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running() as bench:
        yield bench


async def test_rows_come_in_the_order_of_the_inputs_with_their_spelling(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    bench.upstream.put("10.5555/b", [])
    alias = {"index": 1, "type": "HS_ALIAS", "data": {"format": "string", "value": "10.5555/A"}, "ttl": 86400}
    bench.upstream.put("10.5555/alias", [alias])
    bench.upstream.fault("10.5555/broken", "reset")
    inputs = ["https://doi.org/10.5555/A", "10.5555/b", "10.5555/alias", "10.5555/none", "?", "10.5555/broken"]
    rows = await bench.run(*inputs)
    assert [row.input for row in rows] == inputs
    assert [(row.doi, row.verdict) for row in rows] == [
        ("10.5555/A", Verdict.RESOLVED),
        ("10.5555/b", Verdict.NO_TARGET),
        ("10.5555/alias", Verdict.ALIAS),
        ("10.5555/none", Verdict.NOT_FOUND),
        (None, Verdict.NOT_A_DOI),
        ("10.5555/broken", Verdict.UNVERIFIED),
    ]
    assert [row.url for row in rows] == [URL, None, URL, None, None, None]
    assert bench.counted == [row.verdict.value for row in rows]


async def test_a_short_doi_is_read_in_the_url_of_a_resolver_as_parse_reads_it(bench: Bench) -> None:
    alias = {"index": 1, "type": "HS_ALIAS", "data": {"format": "string", "value": "10.5555/a"}, "ttl": 86400}
    bench.upstream.put("10/abcde", [alias])
    bench.upstream.put("10.5555/a", url=URL)
    rows = await bench.run("https://doi.org/abcde", "abcde")
    assert [(row.doi, row.verdict) for row in rows] == [("10/abcde", Verdict.ALIAS), (None, Verdict.NOT_A_DOI)]


async def test_names_that_may_be_fetched_are_counted_and_those_of_the_cache_are_not(bench: Bench) -> None:
    for name in "abc":
        bench.upstream.put(f"10.5555/{name}", url=URL)
    await bench.run("10.5555/a")
    rows = await bench.run("10.5555/a", "10.5555/b", "10.5555/a", "10.5555/c", max_fetched=1)
    assert [row.doi for row in rows] == ["10.5555/a", "10.5555/b"]
    assert bench.upstream.queries("10.5555/c") == 0


async def test_rows_for_metadata_depend_on_the_records_of_the_prefix(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    bench.upstream.fault("10.5555", "reset")
    await bench.run("10.5555/a")
    for known in (False, True):
        (row,) = await bench.run("10.5555/a", for_metadata=True)
        assert (row.verdict is Verdict.RESOLVED) == known
        bench.upstream.reset()
        bench.clock.advance(60)


async def test_a_slow_name_holds_back_the_rows_after_it_and_a_bounded_number_of_lookups() -> None:
    async with running(bounds=replace(BOUNDS, concurrency=2, window=3)) as bench:
        read = []

        async def inputs() -> AsyncIterator[BatchInput]:
            for number in range(100):
                read.append(number)
                yield f"10.5555/{number}" if number else "10.5555/slow"

        for number in range(100):
            bench.upstream.put(f"10.5555/{number}", url=f"{URL}{number}")
        bench.upstream.put("10.5555/slow", url=URL)
        bench.upstream.hold("10.5555/slow")
        rows = bench.batches.rows(inputs(), PLAIN)
        first = asyncio.ensure_future(anext(rows))
        await bench.upstream.arrived("10.5555/slow")
        await bench.upstream.arrived("10.5555/3")
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert not first.done()
        # The slow one, three in the queue, three that the reader holds, and three that have arrived.
        assert len(read) == 10
        bench.upstream.release("10.5555/slow")
        assert (await first).doi == "10.5555/slow"
        assert [row.doi async for row in rows] == [f"10.5555/{number}" for number in range(1, 100)]
        assert bench.upstream.max_in_flight <= 2


async def test_a_list_takes_half_of_the_places_at_the_upstream() -> None:
    async with running(max_concurrency=4) as bench:
        names = [f"10.{number}/a" for number in range(1000, 1004)]
        for name in names:
            bench.upstream.hold(name)
        rows = asyncio.ensure_future(bench.run(*names))
        await bench.upstream.arrived(names[1])
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert bench.upstream.queries() == 2
        for name in names:
            bench.upstream.release(name)
        await rows


async def test_rows_are_given_while_the_next_input_is_awaited(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    has_row = asyncio.Event()

    async def inputs() -> AsyncIterator[BatchInput]:
        yield "10.5555/a"
        async with asyncio.timeout(SOON):
            await has_row.wait()
        yield "10.5555/b"

    rows = bench.batches.rows(inputs(), PLAIN)
    assert (await anext(rows)).doi == "10.5555/a"
    has_row.set()
    assert (await anext(rows)).doi == "10.5555/b"
    await rows.aclose()


async def test_repeated_names_are_one_query_whatever_their_spelling_and_distance(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    inputs = ["10.5555/a", "10.5555/A", "10.5555/none", "10.5555/NONE"]
    far = [f"not a name {number}" for number in range(500)]
    rows = await bench.run(*inputs, *far, *inputs)
    assert [row.verdict for row in rows if row.doi] == 2 * ([Verdict.RESOLVED] * 2 + [Verdict.NOT_FOUND] * 2)
    assert bench.upstream.queries() - bench.upstream.queries("10.5555") == 2


async def test_a_name_that_failed_or_expired_is_not_queried_again_in_the_same_batch(bench: Bench) -> None:
    bench.upstream.fault("10.5555/broken", "reset")
    bench.upstream.put("10.5555/brief", url=URL, ttl=0)

    async def inputs() -> AsyncIterator[BatchInput]:
        for _ in range(3):
            for text in ("10.5555/broken", "10.5555/gone", "10.5555/brief"):
                yield text
            # Longer than "not found" is cached.
            bench.clock.advance(3_600)

    rows = [row async for row in bench.batches.rows(inputs(), replace(PLAIN, agency="none"))]
    assert [row.verdict for row in rows] == [Verdict.UNVERIFIED, Verdict.NOT_FOUND, Verdict.RESOLVED] * 3
    assert bench.upstream.queries("10.5555/gone") == bench.upstream.queries("10.5555/brief") == 1
    once = bench.upstream.queries("10.5555/broken")
    await bench.run("10.5555/broken", agency="none")
    assert bench.upstream.queries("10.5555/broken") == 2 * once


async def test_names_wait_for_the_budget_and_are_rate_limited_after_the_timeout() -> None:
    async with running(rate=1e-9, burst=1.0) as bench:
        bench.upstream.put("10.5555/a", url=URL)
        bench.upstream.put("10.5555/b", url=URL)
        rows = await bench.run("10.5555/a", "10.5555/b", "10.5555/c", agency="none")
        assert [row.verdict for row in rows] == [Verdict.RESOLVED, Verdict.RATE_LIMITED, Verdict.RATE_LIMITED]
        assert rows[1].message is not None and "budget" in rows[1].message
        assert sum(bench.pauses) <= 2 * BOUNDS.timeout


async def test_a_rest_of_the_timeout_that_the_clock_does_not_show_ends() -> None:
    async with running(rate=1e-9, burst=1.0, bounds=replace(BOUNDS, timeout=2.0005)) as bench:

        async def sleep_whole_milliseconds(seconds: float) -> None:
            assert len(bench.pauses) < 10
            await bench.sleep(int(seconds * 1_000) / 1_000)

        bench.batches = replace(bench.batches, sleep=sleep_whole_milliseconds)
        rows = await bench.run("10.5555/a", "10.5555/b", agency="none")
        assert [row.verdict for row in rows] == [Verdict.NOT_FOUND, Verdict.RATE_LIMITED]


# Its own clock does not follow the loop, so in virtual time the name would wait for ever.
@pytest.mark.real_time
async def test_a_name_is_queried_when_the_upstream_accepts_queries_again(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    bench.upstream.fault("10.5555/a", "status", status=429, count=1)
    assert [row.verdict for row in await bench.run("10.5555/a", agency="none")] == [Verdict.RESOLVED]
    assert bench.pauses


async def test_with_only_cached_nothing_is_queried(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL, ttl=100)
    await bench.run("10.5555/a", agency="none")
    queries = bench.upstream.queries()
    rows = await bench.run("10.5555/a", "10.5555/b", only_cached=True)
    assert [row.verdict for row in rows] == [Verdict.RESOLVED, Verdict.UNVERIFIED]
    bench.clock.advance(1_000)
    (stale,) = await bench.run("10.5555/a", only_cached=True)
    assert (stale.verdict, stale.stale, stale.age) == (Verdict.RESOLVED, True, 1_000)
    assert bench.upstream.queries() == queries
    assert bench.pauses == []


async def test_a_literal_input_is_a_name_as_it_is(bench: Bench) -> None:
    bench.upstream.put("10.5555/100%25", url=URL)
    (escaped,) = await bench.run("10.5555/100%2525")
    (literal,) = await bench.run("10.5555/100%25", literal=True)
    assert escaped.doi == literal.doi == "10.5555/100%25"
    assert literal.verdict is Verdict.RESOLVED
    (broken,) = await bench.run("10.5555/100%")
    assert broken.verdict is Verdict.NOT_A_DOI and broken.message is not None and "%25" in broken.message


@pytest.mark.parametrize("text", ["10.5555", "hdl", "20.500.12592/1", "0.NA/10"])
async def test_only_doi_names_are_looked_up(bench: Bench, text: str) -> None:
    (row,) = await bench.run(text)
    assert (row.doi, row.verdict) == (None, Verdict.NOT_A_DOI)
    assert bench.upstream.queries() == 0


async def test_other_handles_are_looked_up_where_the_resolver_resolves_them() -> None:
    async with running(resolves="any") as bench:
        bench.upstream.put("20.500.12592/1", url=URL)
        rows = await bench.run("20.500.12592/1", "10/abc", "20.500.12592", agency="none")
        assert [row.verdict for row in rows] == [Verdict.RESOLVED, Verdict.NOT_FOUND, Verdict.NOT_A_DOI]


async def test_suggestions_are_offered_for_names_that_lead_nowhere(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    unreadable = not_a_doi('"\\ud800"', "Line 4 is not JSON.")
    rows = await bench.run("10.5555/a.", "see 10.5555/a", "10.5555/a", unreadable, "?", suggests=True)
    found = [None if row.suggestions is None else [one.doi.text for one in row.suggestions] for row in rows]
    assert found == [["10.5555/a"], ["10.5555/a"], [], [], []]
    assert bench.upstream.queries("10.5555/a") == 1
    (plain,) = await bench.run("10.5555/a.")
    assert plain.suggestions is None


async def test_a_name_that_is_not_found_has_suggestions_that_exist_first(bench: Bench) -> None:
    bench.upstream.put("10.5555/1.full", url=URL)

    async def suggest() -> list[str]:
        (row,) = await bench.run("10.5555/1.full.pdf", suggests=True)
        assert row.verdict is Verdict.NOT_FOUND
        return [one.doi.text for one in row.suggestions or ()]

    assert await suggest() == ["10.5555/1", "10.5555/1.full"]
    await bench.run("10.5555/1.full")
    assert await suggest() == ["10.5555/1.full", "10.5555/1"]
    assert bench.upstream.queries("10.5555/1") == 0
    await bench.run("10.5555/1")
    assert await suggest() == ["10.5555/1.full"]


async def test_an_error_of_a_look_up_ends_the_list_after_the_rows_before_it(bench: Bench) -> None:
    """The values of a record in memory are not JSON."""
    damaged = entry("10.5555/B")
    bench.cache.memory.keep(msgspec.structs.replace(damaged, answer=Answer(ResponseCode.SUCCESS, b"[{")))
    rows = bench.batches.rows(stream(["?", "10.5555/b"]), PLAIN)
    async with asyncio.timeout(SOON):
        assert (await anext(rows)).verdict is Verdict.NOT_A_DOI
        with pytest.raises(UnusableAnswer):
            await anext(rows)


async def test_other_work_runs_between_the_turns_of_a_batch(bench: Bench) -> None:
    """The clock advances with each reading of it, as in work that takes long."""
    bench.upstream.put("10.5555/a", url=URL)
    await bench.run("10.5555/a", agency="none")

    def timer() -> float:
        bench.clock.advance(0.001)
        return bench.clock()

    bench.batches = replace(bench.batches, timer=timer)
    progress: list[int] = []

    async def watch() -> None:
        while True:
            progress.append(len(bench.counted))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await bench.run(*["10.5555/a"] * 100, agency="none")
    watching.cancel()
    steps = [after - before for before, after in pairwise(progress)]
    assert max(steps) <= 2


async def test_agencies_come_from_the_cache_or_from_one_query_for_each_prefix(bench: Bench) -> None:
    for name in ("10.5555/a", "10.5555/b", "10.5555/c"):
        bench.upstream.put(name, url=URL)
    xml = "<namespace><locs>10.SERV/CROSSREF</locs></namespace>"
    bench.upstream.put(
        "10.5555", [{"index": 1, "type": "HS_NAMESPACE", "data": {"format": "string", "value": xml}, "ttl": 86400}]
    )
    bench.upstream.put("10.SERV/CROSSREF", url=URL)
    names = ("10.5555/a", "10.5555/b", "10.5555/c")
    assert {row.ra for row in await bench.run(*names)} == {None}
    assert bench.upstream.queries("10.5555") == 0
    assert {row.ra for row in await bench.run(*names, agency="any")} == {"Crossref"}
    assert bench.upstream.queries("10.5555") == bench.upstream.queries("10.SERV/CROSSREF") == 1
    assert {row.ra for row in await bench.run(*names)} == {"Crossref"}
    assert {row.ra for row in await bench.run(*names, agency="none")} == {None}


async def test_rows_that_are_known_already_keep_their_place(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    known = not_a_doi("x" * 10, "Line 2 is too long.")
    rows = await bench.run("10.5555/a", known, "10.5555/a")
    assert rows[1] is known
    assert [row.verdict for row in rows] == [Verdict.RESOLVED, Verdict.NOT_A_DOI, Verdict.RESOLVED]


async def test_an_error_of_the_inputs_follows_the_rows_before_it(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)

    async def inputs() -> AsyncIterator[BatchInput]:
        yield "10.5555/a"
        raise ConfigurationError("line 2 cannot be read")

    rows = bench.batches.rows(inputs(), PLAIN)
    assert (await anext(rows)).verdict is Verdict.RESOLVED
    with pytest.raises(ConfigurationError, match="line 2"):
        await anext(rows)


async def test_a_closed_batch_starts_no_more_work_and_leaves_nothing_running(bench: Bench) -> None:
    bench.upstream.fault(EVERY_NAME, "delay", seconds=0)
    bench.upstream.put("10.5555/0", url=URL)
    bench.upstream.hold("10.5555/1")
    before = asyncio.all_tasks()
    rows = bench.batches.rows(stream(f"10.5555/{number}" for number in range(1_000)), replace(PLAIN, agency="none"))
    assert (await anext(rows)).doi == "10.5555/0"
    await bench.upstream.arrived("10.5555/1")
    await rows.aclose()
    await bench.resolver.close()
    names = {str(task.get_coro()) for task in asyncio.all_tasks() - before}
    assert not [name for name in names if "batch" in name.lower()]
    assert bench.upstream.queries() <= 1 + BOUNDS.window + BOUNDS.concurrency + 1


async def test_a_batch_whose_end_is_cancelled_leaves_nothing_running(bench: Bench) -> None:
    """A client can leave while its list ends."""
    bench.upstream.put("10.5555/0", url=URL)
    bench.upstream.hold("10.5555/1")
    before = asyncio.all_tasks()
    groups = bench.batches.groups(stream(f"10.5555/{number}" for number in range(1_000)), replace(PLAIN, agency="none"))
    assert (await anext(groups))[0].doi == "10.5555/0"
    await bench.upstream.arrived("10.5555/1")

    async def close() -> None:
        await groups.aclose()

    closing = asyncio.create_task(close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert closing.cancelled()
    await asyncio.sleep(0)
    names = {str(task.get_coro()) for task in asyncio.all_tasks() - before}
    assert not [name for name in names if "batch" in name.lower()]


async def test_groups_hold_the_rows_that_are_known_together(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    await bench.run("10.5555/a", agency="none")
    groups = [
        len(group) async for group in bench.batches.groups(stream(["10.5555/a"] * 100), replace(PLAIN, agency="none"))
    ]
    assert sum(groups) == 100
    assert max(groups) > 1


async def test_local_records_win_and_have_no_age(bench: Bench) -> None:
    record = LocalRecord(
        "10.5555/a", False, LocalAnswer(answer_of_value("URL", URL), None), until=math.inf, file="x.toml", line=1
    )
    bench.resolver.local_records = LocalRecords([record])
    (row,) = await bench.run("10.5555/a", agency="none")
    assert (row.verdict, row.url, row.age, row.stale) == (Verdict.RESOLVED, URL, None, False)
    assert bench.upstream.queries() == 0
