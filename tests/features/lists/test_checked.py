"""With `suggest=checked`, suggested names are looked up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

#: Of its two suggestions, the rules put 10.5555/a-1 first.
BROKEN = "10.5555/a\u20131."


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(upstream_rate=10) as started:
        started.upstream.put("10.5555/a-1", url="https://example.org/")
        yield started


async def ask(proxy: Proxy, names: list[str], suggest: str = "checked") -> list[dict[str, Any]]:
    got = await proxy.post(f"/api/resolve?suggest={suggest}", json.dumps(names), content_type="application/json")
    assert got.status == 200, got.text
    rows: list[dict[str, Any]] = got.json
    return rows


def states(row: dict[str, Any]) -> list[tuple[str, bool | None]]:
    return [(one["doi"], one["exists"]) for one in row["suggestions"]]


async def test_a_name_that_exists_is_the_best_and_comes_first(proxy: Proxy) -> None:
    [row] = await ask(proxy, ["see 10.5555/b;"])
    assert row["best"] is None and states(row) == [("10.5555/b", False)]
    [row] = await ask(proxy, [BROKEN], "true")
    assert ("10.5555/a-1", None) in states(row)
    [row] = await ask(proxy, [BROKEN])
    assert (row["verdict"], row["best"]["doi"]) == ("not_found", "10.5555/a-1")
    assert states(row)[0] == ("10.5555/a-1", True)
    assert all(exists is False for _, exists in states(row)[1:])


async def test_checks_have_a_twentieth_of_the_budget(proxy: Proxy) -> None:
    rows = await ask(proxy, [f"see 10.5555/{number};" for number in range(20)])
    found = [exists for row in rows for _, exists in states(row)]
    # The bucket of checks has 5 tokens, and half of one more each second.
    # A name that does not exist takes up to three more of them, for what it may have been.
    assert len(found) == 20 and 2 <= found.count(False) < 12 and found.count(True) == 0
    assert all(row["best"] is not None for row in rows if states(row)[0][1] is None)


async def test_a_failure_of_the_upstream_is_not_a_missing_name(proxy: Proxy) -> None:
    proxy.upstream.fault("10.5555/b", "status", status=503)
    [row] = await ask(proxy, ["see 10.5555/b;"])
    assert states(row) == [("10.5555/b", None)] and row["best"]["doi"] == "10.5555/b"
