"""Registry records: confirmed by the upstream at their first use, and answered with if it cannot be queried."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from app.doi.name import HandleName
from app.errors import UpstreamRefused
from app.resolver.demand import Demand
from app.resolver.resolution import Origin
from tests.clock import Clock
from tests.registry_records import count_registry, write_registry
from tests.resolver.test_resolver import NAME, NEW, Bench, running, target

pytestmark = pytest.mark.anyio

REGISTRY = "https://a.example/registry"


@asynccontextmanager
async def knowing(path: Path, *, owner: str | None = None) -> AsyncIterator[Bench]:
    """A resolver whose store has a registry record of NAME."""
    write_registry(path, Clock(), {NAME.text: REGISTRY})
    async with running(store=f"sqlite:///{path}", owner=owner) as bench:
        yield bench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.mark.parametrize("owner", [None, "this process"])
async def test_the_upstream_confirms_it_at_the_first_use(path: Path, owner: str | None) -> None:
    async with knowing(path, owner=owner) as bench:
        bench.upstream.put(NAME.text, url=NEW)
        first, second = await bench.ask(), await bench.ask()
        assert [(one.origin, target(one), one.agency) for one in (first, second)] == [
            (Origin.ASKED, NEW, None),
            (Origin.HIT, NEW, None),
        ]
        assert bench.queries() == 1


async def test_a_confirmation_is_not_announced(path: Path) -> None:
    """No process has the registry record in memory, and thousands of announcements would empty the memory of all."""
    async with knowing(path) as bench:
        bench.upstream.put(NAME.text, url=NEW)
        await bench.ask()
        await bench.cache.flush()
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT count(*) FROM announcements").fetchone() == (0,)


async def test_it_answers_while_the_upstream_fails_and_says_so(path: Path) -> None:
    async with knowing(path) as bench:
        bench.upstream.fault(NAME.text, "status", status=503)
        found = await bench.ask()
        assert (found.origin, target(found), found.agency) == (Origin.REGISTRY, REGISTRY, "Crossref")
        assert isinstance(found.failure, UpstreamRefused)
        bypassed = await bench.ask(demand=Demand(authoritative=True))
        assert (bypassed.origin, target(bypassed)) == (Origin.REGISTRY, REGISTRY)


async def test_it_answers_a_caller_that_wants_the_cache_alone(path: Path) -> None:
    async with knowing(path) as bench:
        found = await bench.ask(demand=Demand(only_cached=True))
        assert (found.origin, found.failure, bench.queries()) == (Origin.REGISTRY, None, 0)


async def test_a_not_found_of_the_upstream_wins_after_a_second_query(path: Path) -> None:
    async with knowing(path) as bench:
        found = await bench.ask()
        assert (found.origin, found.is_registered, bench.queries()) == (Origin.ASKED, False, 2)
        await bench.cache.flush()
        bench.clock.advance(3_600)
        assert count_registry(path, bench.clock) == 0


async def test_other_names_are_not_known(path: Path) -> None:
    async with knowing(path) as bench:
        assert not (await bench.ask(HandleName(NAME.text + "/2"))).is_registered
