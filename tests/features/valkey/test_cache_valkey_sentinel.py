"""The store at a primary that Sentinel names: a kill, a hang, and a primary that becomes a replica."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.store import ValkeyStore
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_sentinel import SentinelSet, running_sentinels
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

#: A loaded test machine may take longer than a server on the same network; nothing here waits for it.
PATIENCE = 5.0


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[SentinelSet]:
    """Servers that the test may break."""
    with running_sentinels(tmp_path) as one:
        yield one


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_lost_primary_is_replaced(sentinels: SentinelSet, clock: Clock, number: signal.Signals) -> None:
    store = ValkeyStore(sentinels.url, clock=clock, timeout=0.5)
    await store.put(entry(), announce=True)
    sentinels.primary.wait_until_copied()
    cursor = (await store.changes(None)).cursor
    sentinels.primary.send(number)
    with pytest.raises(StoreError, match=r"primary 'doi' of .* failed: "):
        await store.get("10.1000/182")
    print(f"the replica took over after {sentinels.wait_for_failover():.1f} s")
    clock.advance(1.0)
    assert await store.get("10.1000/182") == entry()
    assert await store.delete("10.1000/182")
    heard = await store.changes(cursor)
    assert "10.1000/182" in heard.keys or heard.overrun
    assert (await store.stats()).healthy
    await store.close()


async def test_a_primary_that_became_a_replica_is_left(sentinels: SentinelSet, clock: Clock) -> None:
    store = ValkeyStore(sentinels.url, clock=clock, timeout=PATIENCE)
    await store.put(entry())
    sentinels.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", "doi")
    sentinels.wait_for_failover()
    sentinels.wait_for_demotion()
    # The old primary refuses the write, if the connection to it is still open.
    with suppress(StoreError):
        await store.put(entry())
    clock.advance(1.0)
    await store.put(entry(url="http://example.org/new"))
    assert await store.get("10.1000/182") == entry(url="http://example.org/new")
    await store.close()


async def test_an_unknown_name_is_reported(session_sentinels: SentinelSet, clock: Clock) -> None:
    store = ValkeyStore(session_sentinels.url.replace("/doi", "/other"), clock=clock, timeout=PATIENCE)
    with pytest.raises(StoreError, match="No master found for 'other'; correct the store URL"):
        await store.get("10.1000/182")
    await store.close()


async def test_a_sentinel_can_be_down(session_sentinels: SentinelSet, clock: Clock) -> None:
    ports = free_port(), free_port(), session_sentinels.sentinels[2].port
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    store = ValkeyStore(f"valkey+sentinel://{hosts}/doi", clock=clock, timeout=PATIENCE)
    await store.put(entry())
    assert await store.get("10.1000/182") == entry()
    await store.close()


async def test_a_sentinel_url_that_meets_a_plain_server_says_so(valkey_url: str, clock: Clock) -> None:
    url = valkey_url.replace("valkey:", "valkey+sentinel:").replace("/0", "/doi")
    store = ValkeyStore(url, clock=clock, timeout=PATIENCE)
    with pytest.raises(StoreError, match="unknown command 'SENTINEL'"):
        await store.get("10.1000/182")
    await store.close()
