"""Verified answers in the cache: what answers `cert`, and what may replace a record that a signature proves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace as replace_member

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import UnprovenAnswer
from doi_proxy.resolver.fetcher import FailureMemory, ResolverOptions
from doi_proxy.resolver.resolution import Conditions, Origin, Resolution
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import Source, Verification
from tests.cache.conftest import valkey_url
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock
from tests.features.native.clients import TCP, client_of
from tests.handle_protocol.server import HandleServer
from tests.parts import usual_cache, usual_timeouts, usual_ttl_policy

__all__ = ["valkey_url"]

# A handle server answers over UDP.
pytestmark = pytest.mark.anyio

NAME: Final = HandleName("10.1000/182")
OLD, NEW = "http://example.org/old", "http://example.org/new"
CERT: Final = Conditions(certified=True)
TTL: Final = 1_000


class Process:
    """A resolver that queries handle servers, and its cache."""

    def __init__(self, cache: TieredStore, resolver: Resolver, failures: FailureMemory) -> None:
        self.cache = cache
        self.resolver = resolver
        self.failures = failures

    async def ask(self, conditions: Conditions = CERT, name: HandleName = NAME) -> Resolution:
        return await self.resolver.resolve(name, conditions)


@asynccontextmanager
async def process(
    source: Source,
    clock: Clock,
    *,
    verification: Verification = "when-asked",
    cache: TieredStore | None = None,
) -> AsyncIterator[Process]:
    cache = cache or usual_cache("memory:", clock=clock)
    failures = FailureMemory(ttl=60, most=60, max_bytes=1_000_000)
    resolver = Resolver(
        cache,
        source,
        clock,
        options=ResolverOptions(
            usual_ttl_policy(negative=60),
            usual_timeouts(upstream=60),
            verification=verification,
        ),
        failures=failures,
    )
    try:
        yield Process(cache, resolver, failures)
    finally:
        await resolver.close()
        await cache.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[HandleServer]:
    async with HandleServer() as server:
        server.put(NAME.text, url=OLD, ttl=TTL)
        yield server


@pytest.fixture
async def one(server: HandleServer, clock: Clock) -> AsyncIterator[Process]:
    async with client_of(server, protocols=(TCP,)) as source, process(source, clock) as one:
        yield one


def target(resolution: Resolution) -> str | None:
    return resolution.record.values[0].text


def facts(resolution: Resolution) -> tuple[Origin, str | None, bool]:
    return resolution.origin, target(resolution), resolution.is_verified


class TestCert:
    """`cert` is answered from the cache if the entry proves itself."""

    async def test_a_flood_costs_one_query_in_its_ttl(self, one: Process, server: HandleServer, clock: Clock) -> None:
        await asyncio.gather(*(one.ask() for _ in range(50)))
        clock.advance(TTL - 1)
        assert facts(await one.ask()) == (Origin.HIT, OLD, True)
        assert server.queries(NAME.text) == 1
        clock.advance(1)
        assert facts(await one.ask()) == (Origin.BYPASSED, OLD, True)
        assert server.queries(NAME.text) == 2

    async def test_an_unverified_entry_does_not_answer_it(self, one: Process, server: HandleServer) -> None:
        assert facts(await one.ask(Conditions())) == (Origin.ASKED, OLD, False)
        assert facts(await one.ask()) == (Origin.BYPASSED, OLD, True)
        # An ordinary request takes the verified entry.
        assert facts(await one.ask(Conditions())) == (Origin.HIT, OLD, True)
        assert server.queries(NAME.text) == 2

    @pytest.mark.parametrize("known", [entry(url=NEW), missing(NAME.key)], ids=["record", "not found"])
    async def test_an_unverified_entry_does_not_answer_it_after_a_failure(
        self, one: Process, server: HandleServer, known: Entry
    ) -> None:
        await one.cache.put(known)
        server.lie(NAME.text, "unsigned")
        with pytest.raises(UnprovenAnswer):
            await one.ask()

    async def test_the_proof_that_a_name_does_not_exist_is_cached(
        self, one: Process, server: HandleServer, clock: Clock
    ) -> None:
        absent = HandleName("10.1000/none")
        for _ in range(3):
            assert (await one.ask(name=absent)).is_verified
        assert server.queries(absent.text) == 1
        clock.advance(60)
        assert (await one.ask(name=absent)).origin is Origin.BYPASSED

    @pytest.mark.parametrize("conditions", [Conditions(True, True), Conditions(certified=True, max_age=10)])
    async def test_auth_and_a_younger_age_query_the_server(
        self, one: Process, server: HandleServer, clock: Clock, conditions: Conditions
    ) -> None:
        await one.ask()
        clock.advance(11)
        assert facts(await one.ask(conditions)) == (Origin.BYPASSED, OLD, True)
        assert server.queries(NAME.text) == 2

    async def test_a_cached_answer_does_not_count_as_a_bypass(self, one: Process) -> None:
        bypasses: list[int] = []
        conditions = Conditions(certified=True, admit_bypass=lambda: bypasses.append(1))
        for _ in range(3):
            await one.ask(conditions)
        assert len(bypasses) == 1

    async def test_a_stale_record_has_the_reason_and_is_not_verified(
        self, one: Process, server: HandleServer, clock: Clock
    ) -> None:
        await one.ask()
        clock.advance(TTL)
        server.lie(NAME.text, "unsigned")
        stale = await one.ask()
        assert (facts(stale), type(stale.failure)) == ((Origin.STALE, OLD, False), UnprovenAnswer)

    async def test_after_a_purge_it_is_proven_again(self, one: Process, server: HandleServer) -> None:
        await one.ask()
        await one.cache.delete(NAME.key)
        assert (await one.ask()).origin is Origin.BYPASSED
        assert server.queries(NAME.text) == 2

    async def test_a_missing_signature_does_not_stop_ordinary_requests(
        self, one: Process, server: HandleServer
    ) -> None:
        server.lie(NAME.text, "unsigned")
        with pytest.raises(UnprovenAnswer):
            await one.ask()
        assert facts(await one.ask(Conditions())) == (Origin.ASKED, OLD, False)

    async def test_without_verification_it_bypasses_the_cache(self, server: HandleServer, clock: Clock) -> None:
        async with (
            client_of(server, protocols=(TCP,), verification="never") as source,
            process(source, clock, verification="never") as one,
        ):
            await one.cache.put(verified(entry(url=OLD)))
            for _ in range(2):
                assert facts(await one.ask()) == (Origin.BYPASSED, OLD, False)
            assert server.queries(NAME.text) == 2


def verified(one: Entry) -> Entry:
    return replace_member(one, answer=replace_member(one.answer, is_verified=True))


class TestReplacement:
    """An answer that is not verified may replace a verified record. `cert` then asks again."""

    @pytest.mark.parametrize(
        "conditions", [Conditions(max_age=0), Conditions(authoritative=True)], ids=["reload", "auth"]
    )
    async def test_after_an_unsigned_answer_cert_asks_and_never_fails(
        self, one: Process, server: HandleServer, clock: Clock, conditions: Conditions
    ) -> None:
        await one.ask()
        clock.advance(1)
        server.put(NAME.text, url=NEW, ttl=TTL)
        assert target(await one.ask(conditions)) == NEW
        assert facts(await one.ask(Conditions())) == (Origin.HIT, NEW, False)
        assert facts(await one.ask()) == (Origin.BYPASSED, NEW, True)
        assert facts(await one.ask()) == (Origin.HIT, NEW, True)


class TestAlways:
    """With `always`, an entry that is not verified is known, and not confirmed."""

    @pytest.fixture
    def store(self, clock: Clock) -> MemoryStore:
        """The store, which another process shares."""
        return MemoryStore(1_000_000, clock=clock)

    @pytest.fixture
    async def strict(self, server: HandleServer, clock: Clock, store: MemoryStore) -> AsyncIterator[Process]:
        cache = TieredStore(
            MemoryStore(1_000_000, clock=clock),
            store,
            clock=clock,
            ceiling=86_400.0,
            only_verified=True,
        )
        async with (
            client_of(server, protocols=(TCP,), verification="always") as source,
            process(source, clock, verification="always", cache=cache) as strict,
        ):
            yield strict

    @pytest.mark.parametrize("conditions", [Conditions(), CERT], ids=["ordinary", "cert"])
    async def test_it_is_confirmed_on_use(self, strict: Process, server: HandleServer, conditions: Conditions) -> None:
        await strict.cache.put(entry(url=NEW))
        assert facts(await strict.ask(conditions))[1:] == (OLD, True)
        assert facts(await strict.ask(conditions)) == (Origin.HIT, OLD, True)
        assert server.queries(NAME.text) == 1

    @pytest.mark.parametrize("conditions", [Conditions(), Conditions(only_cached=True)], ids=["ordinary", "cached"])
    async def test_it_is_stale_while_it_cannot_be_confirmed(
        self, strict: Process, server: HandleServer, conditions: Conditions
    ) -> None:
        await strict.cache.put(entry(url=NEW))
        server.lie(NAME.text, "unsigned")
        assert facts(await strict.ask(conditions)) == (Origin.STALE, NEW, False)

    async def test_it_never_answers_cert(self, strict: Process, server: HandleServer) -> None:
        await strict.cache.put(entry(url=NEW))
        server.lie(NAME.text, "unsigned")
        with pytest.raises(UnprovenAnswer):
            await strict.ask()

    async def test_what_another_process_stored_without_proof_is_not_an_answer(
        self, strict: Process, store: MemoryStore, clock: Clock
    ) -> None:
        await strict.ask()
        clock.advance(TTL)
        await store.put(entry(url=NEW, fetched_at=clock() - 1))
        assert facts(await strict.ask(Conditions())) == (Origin.RENEWED, OLD, True)

    async def test_not_found_without_proof_is_not_used(self, strict: Process, server: HandleServer) -> None:
        await strict.cache.put(missing(NAME.key))
        server.lie(NAME.text, "unsigned")
        with pytest.raises(UnprovenAnswer):
            await strict.ask(Conditions())
        known = await strict.cache.get(NAME.key)
        assert known is not None and not known.is_usable(NOW)

    async def test_not_found_with_proof_is_cached(self, strict: Process, server: HandleServer) -> None:
        absent: dict[str, Any] = {"conditions": Conditions(), "name": HandleName("10.1000/none")}
        for _ in range(3):
            assert (await strict.ask(**absent)).is_verified
        assert server.queries("10.1000/none") == 1
