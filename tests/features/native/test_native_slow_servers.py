"""A handle server whose queries were slow is remembered: names of further prefixes start as slow ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.features.native.feature import Native
from doi_proxy.upstream.budget import SLOW_AFTER, SLOW_PREFIX_SECONDS
from handle_protocol.site import HealthLimits, ServerHealth
from tests.clock import Clock
from tests.features.native.clients import client_of, query
from tests.handle_protocol.server import HandleServer

LIMITS = HealthLimits(entries=100)
NOW = 1_000.0


@pytest.mark.anyio
async def test_further_prefixes_of_a_slow_server_are_marked_and_those_of_a_quick_one_are_not() -> None:
    clock, marked = Clock(), list[str]()
    async with (
        HandleServer() as root,
        HandleServer(serial=2, host="127.0.0.2") as slow,
        HandleServer(serial=3, host="127.0.0.3") as quick,
        client_of(root, from_root=True, monotonic=clock, mark_slow=marked.append) as client,
    ):
        for prefix, server in (("10.1", slow), ("10.1a", slow), ("10.3", slow), ("10.2", quick)):
            root.put_values(f"0.NA/{prefix}", server.site_value())
            server.put(f"{prefix}/1", url="https://target.example/")
        await client.fetch(query("10.2/1"))
        slow.hold("10.1/1")
        fetching = asyncio.create_task(client.fetch(query("10.1/1")))
        await slow.arrived("10.1/1")
        clock.advance(SLOW_AFTER)
        slow.release("10.1/1")
        await fetching
        assert marked == []
        await client.fetch(query("10.2/1"))
        await client.fetch(query("10.1a/1"))
        assert marked == ["10.1A"]
        # That answer was quick, so the server is not slow any more.
        await client.fetch(query("10.3/1"))
        assert marked == ["10.1A"]


def test_a_server_is_slow_until_a_quick_answer_or_for_ten_minutes() -> None:
    health = ServerHealth(LIMITS)
    for server in ("answers", "silent", "quick"):
        health.record_end(server, 0.1 if server == "quick" else SLOW_AFTER, NOW)
    assert [health.has_slow_queries(one, NOW) for one in ("answers", "silent", "quick")] == [True, True, False]
    health.record_answer("interface", "answers", SLOW_AFTER)
    assert health.has_slow_queries("answers", NOW)
    health.record_answer("interface", "answers", 0.1)
    assert not health.has_slow_queries("answers", NOW)
    assert health.has_slow_queries("silent", NOW + SLOW_PREFIX_SECONDS - 1)
    assert not health.has_slow_queries("silent", NOW + SLOW_PREFIX_SECONDS)


def test_a_flood_of_slow_servers_takes_bounded_memory() -> None:
    health = ServerHealth(LIMITS)
    for number in range(200):
        health.record_end(number, SLOW_AFTER, NOW)
    assert len(health._slow) == LIMITS.entries
    assert not health.has_slow_queries(0, NOW) and health.has_slow_queries(199, NOW)


# --- When handle servers are an upstream -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({}, False),
        ({"upstream_url": "hdl:", "upstream_bootstrap": "root.json"}, True),
        ({"upstream_url": "https://doi.org, hdl://192.0.2.1"}, True),
        ({"upstream_routes": "10.1000=hdl://192.0.2.1"}, True),
        ({"upstream_url": "hdl://192.0.2.1", "mode": "sealed"}, False),
    ],
)
def test_a_url_that_begins_with_hdl_turns_it_on_unless_the_resolver_is_sealed(
    settings: dict[str, Any], is_on: bool
) -> None:
    assert Native.is_on(Settings(**settings)) is is_on
