"""The store as a user with only the rights that docs/valkey.md names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.store import ValkeyStore
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_cluster import Server, running_cluster
from tests.features.valkey.valkey_sentinel import running_sentinels

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

PATIENCE = 5.0
PAGE: Final = Path(__file__).parents[3] / "docs" / "valkey.md"
#: The commands in the page: "ACL SETUSER", a user and rules.
USERS: Final = re.findall(
    r"^(?:A user at the Sentinels needs `)?ACL SETUSER (\S+) ([^`\n]+)", PAGE.read_text("utf-8"), re.MULTILINE
)


def create_user(server: Server, number: int) -> str:
    """Create the user of a command of the page. Returns user and password as in a URL."""
    name, rules = USERS[number]
    server.client.execute_command("ACL", "SETUSER", name, *rules.split())
    (password,) = re.findall(r">(\S+)", rules)
    return f"{name}:{password}"


async def use_all(url: str, clock: Clock) -> None:
    """Every operation of the store."""
    store = ValkeyStore(url, clock=clock, timeout=PATIENCE)
    try:
        cursor = (await store.changes(None)).cursor
        await store.put(entry(), announce=True, sent_at=clock(), unless_newer=True)
        assert await store.get("10.1000/182") == entry()
        assert [found.key async for found in store.scan()] == ["10.1000/182"]
        assert await store.spend("upstream") >= 1
        assert await store.read_note("note") is None
        assert await store.delete("10.1000/182")
        await store.delete("10.1000/")
        assert (await store.changes(cursor)).keys
        stats = await store.stats()
        assert (stats.healthy, stats.bytes > 0) == (True, True)
    finally:
        await store.close()


async def test_a_user_of_a_cluster_needs_only_the_rights_in_the_page(tmp_path: Path, clock: Clock) -> None:
    with running_cluster(tmp_path) as cluster:
        for server in cluster.servers:
            user = create_user(server, 0)
            server.client.execute_command("ACL", "SETUSER", "default", "resetkeys")
        with pytest.raises(StoreError, match=r"(?i)permission"):
            await use_all(cluster.url, clock)
        with pytest.raises(StoreError, match="invalid username-password pair"):
            await use_all(cluster.url.replace("//", "//doi-proxy:wrong@"), clock)
        await use_all(cluster.url.replace("//", f"//{user}@"), clock)


async def test_the_users_at_sentinels_and_servers_differ(tmp_path: Path, clock: Clock) -> None:
    with running_sentinels(tmp_path) as sentinels:
        for server in (sentinels.primary, sentinels.replica):
            user = create_user(server, 0)
            server.client.execute_command("ACL", "SETUSER", "default", "resetkeys")
        for server in sentinels.sentinels:
            name, _, password = create_user(server, 1).partition(":")
            server.client.execute_command("ACL", "SETUSER", "default", "-sentinel|masters")
        url = sentinels.url.replace("//", f"//{user}@")
        with pytest.raises(StoreError, match=r"(?i)permission"):
            await use_all(url, clock)
        options = f"?sentinel_username={name}&sentinel_password={password}"
        with pytest.raises(StoreError, match=r"(?i)permission"):
            await use_all(sentinels.url + options, clock)
        await use_all(url + options, clock)
