"""Registry records: confirmed by the upstream at their first use, and answered with if it cannot be queried.

It is in memory until the file of an agency, a purge or the upstream says something else in any process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from doi_proxy.assembly.core import RECHECK
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import NotInBundle, UpstreamRefused
from doi_proxy.resolver.resolution import Conditions, Origin
from doi_proxy.upstream.source import SealedSource
from tests.cache.entries import entry, missing
from tests.clock import Clock
from tests.parts import usual_cache, usual_resolver
from tests.registry_records import FILE_DATE, count_registry, write_registry
from tests.resolver.test_resolver import NAME, NEW, Bench, running, target

pytestmark = pytest.mark.anyio

REGISTRY = "https://a.example/registry"


@asynccontextmanager
async def knowing(path: Path) -> AsyncIterator[Bench]:
    """A resolver whose store has a registry record of NAME."""
    write_registry(path, Clock(), {NAME.text: REGISTRY})
    async with running(store=f"sqlite:///{path}") as bench:
        yield bench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def test_the_upstream_confirms_it_at_the_first_use(path: Path) -> None:
    async with knowing(path) as bench:
        bench.upstream.put(NAME.text, url=NEW)
        first, second = await bench.ask(), await bench.ask()
        assert [(one.origin, target(one), one.agency) for one in (first, second)] == [
            (Origin.ASKED, NEW, None),
            (Origin.HIT, NEW, None),
        ]
        assert bench.queries() == 1


async def test_it_answers_while_the_upstream_fails_and_says_so(path: Path) -> None:
    async with knowing(path) as bench:
        bench.upstream.fault(NAME.text, "status", status=503)
        found = await bench.ask()
        assert (found.origin, target(found), found.agency) == (Origin.REGISTRY, REGISTRY, "Crossref")
        assert isinstance(found.failure, UpstreamRefused)
        bypassed = await bench.ask(conditions=Conditions(authoritative=True))
        assert (bypassed.origin, target(bypassed)) == (Origin.REGISTRY, REGISTRY)


async def test_it_answers_a_caller_that_wants_the_cache_alone(path: Path) -> None:
    async with knowing(path) as bench:
        at_once = bench.resolver.resolve_now(NAME, only_cached=True)
        found = await bench.ask(conditions=Conditions(only_cached=True))
        assert (found.origin, found.failure, bench.queries()) == (Origin.REGISTRY, None, 0)
        assert at_once == found


async def test_a_not_found_of_the_upstream_wins_after_a_second_query(path: Path) -> None:
    async with knowing(path) as bench:
        found = await bench.ask()
        assert (found.origin, found.is_registered, bench.queries()) == (Origin.ASKED, False, 2)
        await bench.cache.flush()
        bench.clock.advance(3_600)
        assert count_registry(path, bench.clock) == 0


def find_target(bench: Bench) -> str | None:
    """The URL of the registry record that memory answers with. None if it does not answer."""
    found = bench.resolver.resolve_now(NAME)
    assert found is None or found.origin is Origin.REGISTRY
    return None if found is None else target(found)


@pytest.fixture
async def failing(path: Path) -> AsyncIterator[Bench]:
    """The upstream fails, and memory has the record."""
    async with knowing(path) as bench:
        await bench.cache.forget_announced()
        bench.upstream.fault(NAME.text, "status", status=503)
        await bench.ask()
        yield bench


async def test_memory_does_not_answer_while_the_upstream_works(path: Path) -> None:
    async with knowing(path) as bench:
        await bench.cache.find(NAME.key)
        assert bench.resolver.peek(NAME.key) is not None
        assert find_target(bench) is None


async def test_memory_answers_while_the_name_is_not_queried_again(failing: Bench) -> None:
    found = failing.resolver.resolve_now(NAME)
    assert found is not None
    assert (found.origin, target(found), found.agency) == (Origin.REGISTRY, REGISTRY, "Crossref")
    assert isinstance(found.failure, UpstreamRefused)
    failing.clock.advance(RECHECK)
    assert find_target(failing) is None


async def test_an_import_into_the_file_takes_effect_once_it_is_announced(failing: Bench, path: Path) -> None:
    write_registry(path, Clock(), {NAME.text: NEW}, date=FILE_DATE + 1)
    await failing.cache.forget_announced()
    assert find_target(failing) == target(await failing.ask()) == NEW


@pytest.mark.parametrize("is_prefix", [False, True])
async def test_a_purge_takes_effect_at_once_here_and_there_once_it_is_announced(
    failing: Bench, path: Path, is_prefix: bool
) -> None:
    there = usual_cache(f"sqlite:///{path}", clock=failing.clock)
    assert await there.find(NAME.key) is not None
    purging = there.clear_prefix(NAME.key.partition("/")[0]) if is_prefix else there.delete(NAME.key)
    assert await purging == 1
    assert there.get_now(NAME.key) is await there.find(NAME.key) is None
    await there.close()
    await failing.cache.forget_announced()
    assert failing.resolver.peek(NAME.key) is await failing.cache.find(NAME.key) is None
    assert find_target(failing) is None


@pytest.mark.parametrize("answer", [entry(NAME.key), missing(NAME.key)])
async def test_an_answer_that_another_process_got_wins_at_once(failing: Bench, path: Path, answer: Entry) -> None:
    there = usual_cache(f"sqlite:///{path}", clock=failing.clock)
    await there.put(answer)
    await there.close()
    failing.clock.advance(0.5)
    found = failing.resolver.resolve_now(NAME)
    assert found is not None
    assert found.entry == await failing.cache.find(NAME.key) == answer


async def test_a_not_found_that_another_process_got_ends_the_record_also_after_its_ttl(
    failing: Bench, path: Path
) -> None:
    there = usual_cache(f"sqlite:///{path}", clock=failing.clock)
    await there.put(missing(NAME.key))
    await there.close()
    await failing.cache.forget_announced()
    failing.clock.advance(86_400)
    assert await failing.cache.find(NAME.key) is failing.resolver.peek(NAME.key) is None


async def test_a_sealed_resolver_answers_from_memory_until_a_change_is_announced(path: Path) -> None:
    clock = Clock()
    write_registry(path, clock, {NAME.text: REGISTRY})
    cache = usual_cache(f"sqlite:///{path}", clock=clock)
    resolver = usual_resolver(cache, SealedSource(), clock)
    await cache.forget_announced()
    first = await resolver.resolve(NAME)
    clock.advance(86_400)
    found = resolver.resolve_now(NAME)
    assert found is not None
    for answer in (first, found):
        assert (answer.origin, target(answer)) == (Origin.REGISTRY, REGISTRY)
        assert isinstance(answer.failure, NotInBundle)
    await cache.forget_registry()
    assert resolver.resolve_now(NAME) is None
    await resolver.close()
    await cache.close()


async def test_names_that_are_read_together_are_known_as_those_that_are_read_one_by_one(path: Path) -> None:
    """An entry of the store wins, also one that waits to be written, and so does a deletion that waits."""
    names = [f"10.5555/{number}" for number in range(100, 140)]
    write_registry(path, Clock(), dict.fromkeys(names, REGISTRY))
    async with running(store=f"sqlite:///{path}") as bench:
        cache, store = bench.cache, bench.cache.store
        assert store is not None
        await cache.put(entry(names[0], NEW))
        await cache.flush()
        await cache.put(entry(names[1], NEW))
        await store.delete(names[2])
        for name in names[:3]:
            cache.memory.drop(name)
        cache.read_ahead([*names, "10.5555/none"])
        found = {name: known.agency for name in [*names, "10.5555/none"] if (known := cache.get_now(name)) is not None}
        assert found == dict.fromkeys(names[:2]) | dict.fromkeys(names[3:], "Crossref")


async def test_a_damaged_block_does_not_hide_what_is_read_together_with_it(path: Path) -> None:
    names = [f"10.5555/{number}" for number in range(100, 140)]
    write_registry(path, Clock(), dict.fromkeys(names, REGISTRY))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE registry_blocks SET data = x'00' WHERE first = ?", (names[0],))
    async with running(store=f"sqlite:///{path}") as bench:
        bench.cache.read_ahead(names)
        assert [name for name in names if bench.cache.get_now(name) is not None] == names[20:]
        assert bench.cache.counters.store_errors == 0
