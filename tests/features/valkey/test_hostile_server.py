"""A server that answers commands with errors, or in another shape: what can be read is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from redis import Redis

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify, StoreError
from doi_proxy.features.valkey.store import ValkeyStore
from doi_proxy.resolver.resolution import Origin
from tests.cache.entries import entry
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.features.valkey.relay import Relay, running_relay
from tests.parts import usual_api, usual_resolver

pytestmark = [pytest.mark.anyio, pytest.mark.valkey]

PATIENCE: Final = 5.0
#: Seconds until a store gives up a text that does not come.
SHORT_PATIENCE: Final = 0.5
NAMES: Final = [f"10.1000/{number}" for number in range(2)]
#: The commands of a process that looks names up.
COMMANDS: Final = [b"GET", b"PTTL", b"SET", b"XADD", b"XREVRANGE", b"INCR", b"DBSIZE", b"INFO"]
#: Errors of a command. redis takes the last three for lost connections.
ERRORS: Final = [
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
    "NOPERM User default has no permissions to run this command",
    "MOVED 1 127.0.0.1:1",
    "ASK 1 127.0.0.1:1",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOAUTH Authentication required.",
    "LOADING Valkey is loading the dataset in memory",
    "ERR max number of clients reached",
]
UNFINISHED: Final = "unfinished texts"
SHAPES: Final = {
    "empty array": b"*0\r\n",
    "null array": b"*-1\r\n",
    "nested arrays": b"*1\r\n" * 10 + b"*0\r\n",
    "deeply nested arrays": b"*1\r\n" * 2_000 + b"*0\r\n",
    "two names": b"*2\r\n$1\r\n0\r\n*2\r\n:1\r\n*0\r\n",
    "number": b":-1\r\n",
    "long number": b":" + b"9" * 5_000 + b"\r\n",
    "null": b"$-1\r\n",
    "text": b"$4\r\ntext\r\n",
    "not a number": b"$3\r\nnan\r\n",
    "status": b"+OK\r\n",
    "long array": b"*2000000000\r\n",
    "long nested array": b"*1\r\n*2000000000\r\n",
    "long text": b"$2000000000\r\n",
    "long texts": b"*2\r\n$1\r\nx\r\n$67108864\r\n",
    UNFINISHED: b"*2\r\n" + b"$40000000\r\n" * 2,
    "words": b"hello\r\n",
}
TEXTS: Final = [entry(name, url="http://example.org/stored") for name in NAMES]


@pytest.fixture
async def relay(valkey_url: str) -> AsyncIterator[Relay]:
    port = int(valkey_url.rpartition(":")[2].partition("/")[0])
    with Redis(port=port) as client:
        client.flushall()
    async with running_relay(port) as relay:
        yield relay


def open_store(relay: Relay, clock: Clock, timeout: float = PATIENCE) -> ValkeyStore:
    return ValkeyStore(f"valkey://127.0.0.1:{relay.port}/0", clock=clock, timeout=timeout)


def patience_with(shape: str) -> float:
    return SHORT_PATIENCE if shape == UNFINISHED else PATIENCE


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: " ".join(error.split()[:2]))
@pytest.mark.parametrize("is_up", [True, False], ids=["upstream up", "upstream down"])
async def test_what_can_be_read_is_served_whatever_else_is_refused(relay: Relay, error: str, is_up: bool) -> None:
    clock = Clock()
    filling = open_store(relay, clock)
    for one in TEXTS:
        await filling.put(one)
    await filling.close()
    # The records are stale, so each look-up asks the upstream, and stores an answer.
    clock.advance(TEXTS[0].fresh_until - clock() + 1)
    async with FakeUpstream() as upstream:
        for name in NAMES:
            upstream.put(name, url="http://example.org/new")
        url = upstream.url if is_up else "http://127.0.0.1:1"
        for command in COMMANDS:
            cache = TieredStore(MemoryStore(0, clock=clock), open_store(relay, clock), clock=clock, ceiling=1e9)
            source = usual_api(url, clock=clock)
            resolver = usual_resolver(cache, source, clock, upstream=60)
            relay.command, relay.reply = command, f"-{error}\r\n".encode()
            for name in NAMES:
                await cache.forget_announced()
                await cache.stats()
                if is_up:
                    assert (await resolver.resolve(HandleName(name))).record.values[0].text == "http://example.org/new"
                elif command != b"GET":
                    assert (await resolver.resolve(HandleName(name))).origin is Origin.STALE
                else:
                    with pytest.raises(CouldNotVerify):
                        await resolver.resolve(HandleName(name))
            relay.reply = b""
            if not is_up:
                # The refusal has silenced nothing, not even for a moment: the clock stands still.
                assert (await resolver.resolve(HandleName(NAMES[0]))).origin is Origin.STALE
            await resolver.close()
            await source.aclose()
            await cache.close()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: " ".join(error.split()[:2]))
async def test_a_store_that_refuses_writes_is_read_only(relay: Relay, clock: Clock, error: str) -> None:
    cache = TieredStore(MemoryStore(0, clock=clock), open_store(relay, clock), clock=clock, ceiling=1e9)
    assert (await cache.stats()).state == "ok"
    relay.command, relay.reply = b"SET", f"-{error}\r\n".encode()
    stats = await cache.stats()
    assert stats.store is not None
    assert (stats.state, stats.healthy, "can be read, but not written: " in stats.store.detail) == (
        "read-only",
        False,
        True,
    )
    relay.command = b""
    assert (await cache.stats()).state == "failing"
    relay.reply = b""
    assert (await cache.stats()).state == "ok"
    await cache.close()


async def _read_all(entries: AsyncIterator[Entry]) -> list[Entry]:
    return [found async for found in entries]


OPERATIONS: Final[dict[str, Callable[[ValkeyStore], Awaitable[Any]]]] = {
    "get": lambda store: store.get(NAMES[0]),
    "put": lambda store: store.put(entry(), announce=True, sent_at=1.0, unless_newer=True),
    "delete": lambda store: store.delete(NAMES[0]),
    "changes": lambda store: store.changes("1-1"),
    "read_note": lambda store: store.read_note("note"),
    "write_note": lambda store: store.write_note("note", b""),
    "spend": lambda store: store.spend("upstream"),
    "stats": lambda store: store.stats(),
    "scan": lambda store: _read_all(store.scan()),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_reply_of_another_shape_is_an_error_of_the_store(relay: Relay, clock: Clock, shape: str) -> None:
    for command in (b"", b"PTTL", b"GET", b"XRANGE"):
        relay.reply = b""
        stores = [open_store(relay, clock, patience_with(shape)) for _ in OPERATIONS]
        for store in stores:
            await store.put(TEXTS[0])
        relay.command, relay.reply = command, SHAPES[shape]
        # At the same time, since each waits until its deadline for a text that does not come.
        calls = (call(store) for call, store in zip(OPERATIONS.values(), stores, strict=True))
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, StoreError):
                raise result
        for store in stores:
            await store.close()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_store_whose_first_reply_has_another_shape_fails(relay: Relay, clock: Clock, shape: str) -> None:
    relay.reply = SHAPES[shape]
    for scheme in ("valkey://127.0.0.1:{}/0", "valkey+cluster://127.0.0.1:{}", "valkey+sentinel://127.0.0.1:{}/main"):
        store = ValkeyStore(scheme.format(relay.port), clock=clock, timeout=patience_with(shape))
        with suppress(StoreError):
            assert await store.get(NAMES[0]) is None
        await store.close()


@pytest.mark.parametrize("shape", ["long array", "long nested array", "long text", "long texts"])
async def test_a_reply_that_announces_too_much_is_refused_before_it_is_read(
    relay: Relay, clock: Clock, shape: str
) -> None:
    store = open_store(relay, clock)
    await store.put(TEXTS[0])
    relay.reply = SHAPES[shape]
    with pytest.raises(StoreError, match="Its reply is too long"):
        await store.get(NAMES[0])
    await store.close()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("NOAUTH Authentication required.", "correct the user and the password in the store URL"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "raise maxmemory of the server"),
        (
            "READONLY You can't write against a read only replica.",
            "name the primary, or the Sentinels, in the store URL",
        ),
    ],
)
async def test_a_refusal_says_what_to_do(relay: Relay, error: str, remedy: str) -> None:
    store = open_store(relay, Clock())
    relay.command, relay.reply = b"GET", f"-{error}\r\n".encode()
    with pytest.raises(StoreError, match=remedy):
        await store.get(NAMES[0])
    await store.close()
