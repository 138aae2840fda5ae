"""From a store URL to a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from doi_proxy.assembly.features import store_openers
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.features.valkey.store import ValkeyStore
from doi_proxy.store.file import StoreOptions
from doi_proxy.store.file import open_store as open_shared_store
from tests.cache.entries import entry
from tests.clock import Clock
from tests.table import table

pytestmark = pytest.mark.anyio


def open_store(url: str, clock: Clock) -> TieredStore:
    options = StoreOptions(clock, max_bytes=100_000_000, timeout=0.1)
    store = open_shared_store(url, options, store_openers())
    return TieredStore(MemoryStore(100_000, clock=clock), store, clock=clock, ceiling=86_400.0)


@pytest.mark.parametrize("url", ["memory:", "memory://"])
async def test_memory_has_no_second_tier(url: str, clock: Clock) -> None:
    cache = open_store(url, clock)
    await cache.put(entry())
    assert (await cache.stats()).store is None
    assert await cache.get("10.1000/182") == entry()


async def test_four_slashes_are_an_absolute_path(tmp_path: Path, clock: Clock) -> None:
    cache = open_store(f"sqlite:///{tmp_path}/store.sqlite3", clock)
    await cache.put(entry())
    await cache.close()
    assert (tmp_path / "store.sqlite3").exists()


async def test_three_slashes_are_a_relative_path(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await open_store("sqlite:///var/store.sqlite3", clock).close()
    assert (tmp_path / "var" / "store.sqlite3").exists()


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1/0",
        "rediss://:secret@127.0.0.1:1",
        "valkey://127.0.0.1:1/3",
        "valkeys://u:secret@[::1]:1/0",
        "valkey+unix:///run/none.sock?db=1",
        "redis+unix://u:secret@/run/none.sock",
        "valkey+sentinel://u:secret@h1:1,h2:2/name/1?sentinel_password=secret",
        "valkeys+cluster://u:secret@h1:1,h2:2?ssl_check_hostname=false",
    ],
)
async def test_a_server_is_connected_to_when_it_is_wanted(url: str, clock: Clock) -> None:
    cache = open_store(url, clock)
    await cache.close()
    assert cache.counters.store_errors == 0


async def test_a_server_may_be_called_valkey(clock: Clock) -> None:
    store = ValkeyStore("valkey://valkey.invalid:6379/0", clock=clock, timeout=5.0)
    # No host of that name exists, and the error of the library names the host that it did not find.
    with pytest.raises(StoreError, match=r"connecting to valkey\.invalid:6379"):
        await store.get("10.1000/182")
    await store.close()


@table(
    "url",
    [
        "", "memory", "memory:/tmp", "sqlite:", "sqlite://store", "sqlite:///", "sqlite:////", "sqlite:store.sqlite3",
        "sqlite:///:memory:", "sqlite:///var/", "/var/store", "file:///var/store", "postgres://host/0", "redis:",
        "redis://", "redis:///0", "redis://host:port/0", "redis://host:99999/0", "valkey://:secret@host/first",
        "redis://host/0?socket_timeout=soon", "redis://host/0?nonsense=1",
        "redis+", "redis+tcp://host", "redisx://host", "valkeys+unix:///run/x",
        "valkey+cluster://:secret@h1,h2/1", "valkey+sentinel://:secret@h1", "valkey+cluster://:secret@h1,h2:99999", "valkey+unix:///run/x?nonsense=1",
    ],
)  # fmt: skip
async def test_any_other_url_is_one_clear_line_without_its_password(url: str, clock: Clock) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url, clock)
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.process
def test_the_libraries_of_other_stores_are_not_imported() -> None:
    code = "import sys, doi_proxy.store.file; print(sorted({'redis', 'sqlite3'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
