"""The most requested names: counted within bounds, kept without dates, dropped by purges, fetched again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from app.assembly.settings import Settings
from app.cache.purges import EVERYTHING, MAX_PURGES
from app.cache.purging import POPULAR_NAMES, WORKS
from app.doi.name import HandleName
from app.features.admin.purge import Selection, purge
from app.features.feature import Core
from app.features.warm_return import feature
from app.features.warm_return.feature import CountingStage, Forgetting, WarmReturn
from app.features.warm_return.popular import MOST_NAMES, PopularNames, read_names, write_names
from app.server.protocol import ExpressProtocol
from app.upstream.source import Priority
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.parts import command_context
from tests.server.ways import Server

pytestmark = pytest.mark.anyio

#: For a condition, in seconds.
DEADLINE: Final = 30.0


def test_names_that_are_used_again_survive_a_scan() -> None:
    popular = PopularNames()
    for _ in range(40):
        popular.count("10.5555/HOT")
    for number in range(5 * MOST_NAMES):
        popular.count(f"10.5555/{number}")
    popular.count("10.5555/" + "X" * 1_000)
    assert popular.list() == ["10.5555/HOT"]
    assert len(popular._uses) <= 2 * MOST_NAMES
    popular.clear()
    assert popular.list() == []


def test_the_note_has_the_newest_names_first_and_no_more_than_its_bound() -> None:
    note = write_names(["10.1/B"], write_names(["10.1/A", "10.1/B"], None))
    assert read_names(note) == ["10.1/B", "10.1/A"]
    many = write_names((f"10.1/{number}" for number in range(2 * MOST_NAMES)), note)
    assert len(read_names(many)) == MOST_NAMES
    assert read_names(write_names(["10.1/A\u2028B"], None)) == ["10.1/A\u2028B"]
    assert read_names(None) == read_names(b"") == []
    assert read_names(b"10.1/" + b"X" * 8_000 + b"\n10.1/A") == ["10.1/A"]


@asynccontextmanager
async def core_with(folder: Path, upstream: FakeUpstream) -> AsyncIterator[Core]:
    store = {"store_url": f"sqlite:///{folder}/store.sqlite3", "upstream_contact": "mailto:a@example.org"}
    context = command_context(Settings(**store, upstream_url=upstream.url))
    async with context.stores.open_as_service() as core:
        yield core


async def until(is_true: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    async with asyncio.timeout(DEADLINE):
        while not is_true():  # noqa: ASYNC110 - the condition is about another task
            await asyncio.sleep(0)


@asynccontextmanager
async def running_service(service: WarmReturn) -> AsyncIterator[None]:
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_purge_drops_its_names_from_the_list(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        cache = core.cache
        await cache.change_note(WORKS, lambda _: b"10.1/A\t1\n10.1/AB\t1")
        await cache.change_note(POPULAR_NAMES, lambda _: b"10.1/A\n10.1/B\n10.2/A\n10.3/A")
        await purge(cache, Selection(names=(HandleName("10.1/a"),)))
        assert await cache.read_note(POPULAR_NAMES) == b"10.1/B\n10.2/A\n10.3/A"
        assert await cache.read_note(WORKS) == b"10.1/AB\t1"
        await cache.clear_prefix("10.2")
        assert await cache.read_note(POPULAR_NAMES) == b"10.1/B\n10.3/A"
        await cache.begin_purge(EVERYTHING)
        assert await cache.read_note(POPULAR_NAMES) == b""


async def test_what_the_store_lacks_at_the_start_is_fetched(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        for name in ("10.5555/a", "10.5555/b"):
            upstream.put(name, url="https://target.example/")
        await core.resolver.resolve(HandleName("10.5555/a"))
        # A name that is not valid, as in a damaged note.
        await core.cache.change_note(POPULAR_NAMES, lambda _: b"10.5555/A\n\x01\n10.5555/B")
        async with running_service(WarmReturn(core, PopularNames(), time.time)):
            await until(lambda: upstream.queries("10.5555/B") == 1)
        assert upstream.queries("10.5555/a") == 1


async def test_the_most_used_names_are_fetched_after_a_purge_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "_LOOK_INTERVAL", 0.01)
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        popular = PopularNames()
        for name in ("10.5555/HOT", "10.5555/ONCE"):
            upstream.put(name, url="https://target.example/")
            await core.resolver.resolve(HandleName(name))
            popular.count(name)
        popular.count("10.5555/HOT")
        service = WarmReturn(core, popular, time.time)
        async with running_service(service):
            await purge(core.cache, Selection(everything=True))
            await until(lambda: upstream.queries("10.5555/HOT") == 2)
        assert upstream.queries("10.5555/ONCE") == 1
        assert (popular.list(), await core.cache.read_note(POPULAR_NAMES)) == ([], None)


async def test_a_name_that_is_purged_meanwhile_is_left_out(tmp_path: Path) -> None:
    async with (
        FakeUpstream() as upstream,
        core_with(tmp_path, upstream) as core,
        core_with(tmp_path, upstream) as other,
    ):
        for name in ("10.1/A", "10.2/B", "10.3/C"):
            upstream.put(name, url="https://target.example/")
        await core.cache.forget_announced()
        await core.cache.change_note(POPULAR_NAMES, lambda _: b"10.1/A\n10.2/B\n10.3/C")
        service = WarmReturn(core, PopularNames(), time.time)
        purge_one = partial(purge, other.cache, Selection(names=(HandleName("10.2/B"),)))
        with purged_after_the_first_query(core, purge_one):
            async with running_service(service):
                await until(lambda: upstream.queries("10.3/C") == 1)
        assert upstream.queries("10.2/B") == 0


async def test_a_name_that_was_purged_before_a_purge_of_everything_is_left_out_unless_it_was_used_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "_LOOK_INTERVAL", 0.01)
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        popular, names = PopularNames(), ("10.1/PURGED", "10.2/WITH-PREFIX", "10.3/AGAIN", "10.4/KEPT")
        for name in names:
            upstream.put(name, url="https://target.example/")
            await core.resolver.resolve(HandleName(name))
            popular.count(name)
            popular.count(name)
        for scope in (
            Selection(names=(HandleName("10.1/PURGED"), HandleName("10.3/AGAIN"))),
            Selection(prefix=HandleName("10.2")),
        ):
            await purge(core.cache, scope)
        await core.resolver.resolve(HandleName("10.3/AGAIN"))
        async with running_service(WarmReturn(core, popular, time.time)):
            await purge(core.cache, Selection(everything=True))
            await until(lambda: upstream.queries("10.4/KEPT") == 2)
        assert [upstream.queries(name) for name in names] == [1, 1, 3, 2]


async def test_a_second_purge_of_everything_begins_again_with_all_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "_LOOK_INTERVAL", 0.01)
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        for name in ("10.1/A", "10.2/B"):
            upstream.put(name, url="https://target.example/")
        await core.cache.change_note(POPULAR_NAMES, lambda _: b"10.1/A\n10.2/B")
        service = WarmReturn(core, PopularNames(), time.time)
        with purged_after_the_first_query(core, partial(purge, core.cache, Selection(everything=True))):
            async with running_service(service):
                await until(lambda: upstream.queries("10.2/B") == 1)
        assert upstream.queries("10.1/A") == 2


@contextmanager
def purged_after_the_first_query(core: Core, purge: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """Purge once the first name has been fetched."""
    resolve, is_first = core.resolver.resolve, True

    async def resolve_and_purge(*given: Any) -> object:
        nonlocal is_first
        resolution = await resolve(*given)
        if is_first:
            is_first = False
            await purge()
        return resolution

    with patch.object(core.resolver, "resolve", resolve_and_purge):
        yield


@contextmanager
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, seconds in (("_LOOK_INTERVAL", 0.01), ("_PAUSE", 0.0), ("_ROUND_INTERVAL", 0.0)):
        monkeypatch.setattr(feature, name, seconds)
    yield


async def test_names_of_a_prefix_that_fails_do_not_hold_up_the_names_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "_PAUSE", 0.0)
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        failing, good = [f"10.1/{number}" for number in range(50)], [f"10.2/{number}" for number in range(50)]
        for name in good:
            upstream.put(name, url="https://target.example/")
        for name in failing:
            # It concerns this name, and no other one.
            upstream.fault(name, "status", status=403, retry_after=3600)
        note = "\n".join((*failing, *good)).encode()
        await core.cache.change_note(POPULAR_NAMES, lambda _: note)
        async with running_service(WarmReturn(core, PopularNames(), time.time)):
            await until(lambda: upstream.queries(good[-1]) == 1)
        assert (sum(map(upstream.queries, failing)), sum(map(upstream.queries, good))) == (1, 50)


async def test_a_name_that_fails_comes_after_the_others_of_its_prefix_and_is_left_out_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        upstream.put("10.1/GOOD", url="https://target.example/")
        upstream.fault("10.1/FAILS", "status", status=403)
        await core.cache.change_note(POPULAR_NAMES, lambda _: b"10.1/FAILS\n10.1/GOOD")
        service = WarmReturn(core, PopularNames(), time.time)
        with quick_rounds(monkeypatch):
            async with running_service(service):
                await until(lambda: upstream.queries("10.1/GOOD") == 1)
                await until(lambda: not service._names)
        assert service._tries["10.1/FAILS"] == 3


async def test_no_name_is_lost_in_a_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        refused: list[Priority] = []
        upstream.put("10.1/A", url="https://target.example/")
        await core.cache.change_note(POPULAR_NAMES, lambda _: b"10.1/A")
        budget = core.upstream.budget

        def refuse(priority: Priority) -> float:
            refused.append(priority)
            return 300.0

        budget.drill = refuse
        with quick_rounds(monkeypatch):
            async with running_service(WarmReturn(core, PopularNames(), time.time)):
                await until(lambda: len(refused) > 10)
                budget.drill = None
                await until(lambda: upstream.queries("10.1/A") == 1)
        assert set(refused) == {Priority.BACKGROUND}


@pytest.mark.parametrize("purges", [1, MAX_PURGES + 1])
async def test_a_name_is_left_out_that_is_purged_after_the_clock_was_set_back_or_among_very_many(
    tmp_path: Path, purges: int
) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        clock = Clock(time.time())
        for name in ("10.1/A", "10.2/B"):
            upstream.put(name, url="https://target.example/")
        await core.cache.change_note(POPULAR_NAMES, lambda _: b"10.1/A\n10.2/B")
        service = WarmReturn(core, PopularNames(), clock)

        async def purge_many() -> None:
            if purges == 1:
                clock.advance(-3600)
                core.cache._purges.record("10.2/B", clock() + 1)
            for number in range(1, purges):
                core.cache._purges.record("10.2/B" if number == 1 else f"10.9/{number}", clock() + 1)

        with purged_after_the_first_query(core, purge_many):
            async with running_service(service):
                await until(lambda: upstream.queries("10.1/A") == 1)
                await until(lambda: not service._names)
        assert upstream.queries("10.2/B") == 0


async def test_the_list_is_written_at_the_end_without_what_is_gone(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        popular = PopularNames()
        upstream.put("10.5555/hot", url="https://target.example/")
        await core.resolver.resolve(HandleName("10.5555/hot"))
        for _ in range(2):
            popular.count("10.5555/HOT")
            popular.count("10.5555/GONE")
        async with running_service(WarmReturn(core, popular, time.time)):
            await asyncio.sleep(0)
        assert await core.cache.read_note(POPULAR_NAMES) == b"10.5555/HOT"
        await Forgetting(core).run()
        assert await core.cache.read_note(POPULAR_NAMES) == b""


async def test_a_prepared_answer_counts_once_a_second() -> None:
    names: list[str] = []
    with patch.object(CountingStage, "count_name", lambda _, key: names.append(key)):
        server = Server(Clock(), ExpressProtocol)
        request = b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(5):
            await server.answers(request)
        assert names == ["10.1000/182"]
        server.clock.advance(1)
        await server.answers(request)
        assert len(names) == 2
        quiet = Server(Clock(), ExpressProtocol, privacy_level=3)
        for _ in range(3):
            await quiet.answers(request)
        assert len(names) == 2
