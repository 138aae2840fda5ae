"""All upstream queries of one request share one deadline. The answer says what used it up."""

from __future__ import annotations

import asyncio

import pytest

from doi_names.name import HandleName
from doi_proxy.resolver.resolution import ORDINARY, Conditions, Resolution
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import Priority
from tests.table import table
from tests.values import value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

#: A deadline that passes while the test waits, in seconds.
SOON = 0.05
LINK, OTHER = "10.5072/LINK", "10.5072/OTHER"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of a request end soon."""
    monkeypatch.setattr("doi_proxy.web.stage.REQUEST_SECONDS", SOON)


@table(
    ("target", "status"),
    [
        (f"/{OTHER}", 504),
        (f"/api/handles/{OTHER}", 504),
        (f"/api/handles/{OTHER}?auth=true", 504),
    ],
)
async def test_an_upstream_that_hangs_uses_up_the_time_of_a_request(target: str, status: int) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(OTHER, url="https://there.example/")
        proxy.upstream.hold(OTHER)
        got = await proxy.get(target, accept="application/json")
        assert (got.status, "The upstream is too slow" in got.text) == (status, True)
        proxy.upstream.release(OTHER)


async def test_the_query_goes_on_and_its_answer_is_kept() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(OTHER, url="https://there.example/")
        proxy.upstream.hold(OTHER)
        assert (await proxy.get(f"/{OTHER}")).status == 504
        proxy.upstream.release(OTHER)
        # The record of the first query, whose answer arrives now: the second request joins it.
        async with asyncio.timeout(10):
            while (got := await proxy.get(f"/{OTHER}")).status != 302:
                assert got.status == 504
        assert proxy.upstream.queries(OTHER) == 1


async def test_the_wait_for_the_budget_uses_up_the_time_of_a_request() -> None:
    async with Proxy(upstream_max_concurrency=1) as proxy:
        proxy.upstream.hold(LINK)
        assert (await proxy.get(f"/{LINK}")).status == 504
        got = await proxy.get(f"/{OTHER}", accept="application/json")
        assert (got.status, "in flight" in got.text) == (503, True)
        assert got["retry-after"]
        proxy.upstream.release(LINK)


async def test_the_queries_of_one_request_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query of a cold request waited for the budget by itself: 5.5 to 20.3 s were measured."""
    seen: list[float | None] = []
    resolve = Resolver.resolve

    async def record(self: Resolver, name: HandleName, conditions: Conditions = ORDINARY) -> Resolution:
        # Suggestions have a deadline of their own, which is shorter.
        if conditions.priority is Priority.PERSON:
            seen.append(conditions.due)
        return await resolve(self, name, conditions)

    monkeypatch.setattr(Resolver, "resolve", record)
    async with Proxy() as proxy:
        proxy.upstream.put(LINK, [value(1, "HS_ALIAS", OTHER)])
        assert (await proxy.get(f"/{LINK}", accept="text/html")).status == 404
        assert len(seen) >= 2 and len(set(seen)) == 1 and seen[0] is not None
        seen.clear()
        await proxy.get(f"/doiRA/{LINK},{OTHER},10.5073/x")
        assert len(seen) >= 2 and len(set(seen)) == 1 and seen[0] is not None
