"""A query parameter that looks like a known one is an error on our own endpoints, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi.routing import APIRoute

from doi_proxy.endpoints import list_parameters, refuse_slips
from doi_proxy.errors import InvalidParameter
from doi_proxy.list_formats.fair_lock import FairLock
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


RESOLVE = frozenset({"output", "fields", "only", "extract", "suggest", "match", "column", "echo", "encoding"})


@table(
    ("sent", "meant"),
    [
        ("sugest", "suggest"),
        ("suggestion", "suggest"),
        ("Output", "output"),
        ("collumn", "column"),
        ("field", "fields"),
        ("matches", "match"),
    ],
)
def test_a_slip_names_the_parameter_that_was_meant(sent: str, meant: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{sent}: this parameter is not known. Did you mean {meant}\\?$"):
        refuse_slips(["echo", sent], RESOLVE)


def test_parameters_of_other_programs_are_ignored() -> None:
    refuse_slips(["_", "v", "utm_source", "fbclid", "lang", "id", "", "sugest" * 4, *RESOLVE], RESOLVE)


def test_a_request_with_very_many_parameters_is_compared_in_part() -> None:
    refuse_slips([*(f"p{number}" for number in range(10_000)), "sugest"], RESOLVE)


async def test_a_parameter_of_a_model_is_known_by_the_names_of_its_members() -> None:
    async with Proxy() as proxy:
        app: Any = proxy.app
        known = {
            route.path: list_parameters(route.dependant)
            for route in app._operations.app.routes
            if isinstance(route, APIRoute)
        }
    assert known["/api/resolve"] == RESOLVE
    assert known["/api/extract"] == {"output"}
    assert known["/status"] == {"format", "refresh"}


@table(
    ("method", "target"),
    [
        ("POST", "/api/resolve?sugest=true"),
        ("POST", "/api/extract?ouput=csv"),
        ("POST", "/api/parse?colum=a"),
        ("GET", "/api/parse?doi=10.1000/182&dois=1"),
        ("HEAD", "/api/parse?doi=10.1000/182&dois=1"),
        ("GET", "/status?fromat=json"),
        ("GET", "/admin/explain?doi=10.1000/182&fetsh=1"),
    ],
)
async def test_our_own_endpoints_refuse_slips(method: str, target: str) -> None:
    async with Proxy(admin_token="a" * 40, status_networks="0.0.0.0/0, ::/0") as proxy:
        got = await proxy.ask(
            method, target, body="10.1000/182", content_type="text/plain", authorization=f"Bearer {'a' * 40}"
        )
    assert got.status == 400
    assert method == "HEAD" or (
        got.json["type"].endswith("#invalid-parameter") and "Did you mean" in got.json["detail"]
    )


@table(
    "target",
    ["/10.1000/182?noredirct", "/api/handles/10.1000/182?tpye=URL", "/ra/10.1000/182?nmaes=1", "/docs?fromat=x"],
)
async def test_paths_of_names_and_pages_ignore_what_they_do_not_know(target: str) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url="https://example.org/")
        assert (await proxy.get(target)).status in (200, 302)


# --- A lock whose clients take turns, whatever the number of their requests ------------------------------------------


HOG = "192.0.2.0/24"
OTHER = "198.51.100.0/24"


async def use(lock: FairLock, client: str, log: list[str], times: int = 1) -> None:
    for _ in range(times):
        async with lock.hold(client):
            log.append(client)
            await asyncio.sleep(0)


@pytest.mark.parametrize("hogs", [[HOG] * 250, [f"192.0.{number}.0/24" for number in range(16)]], ids=["one", "/20"])
async def test_a_client_waits_for_two_turns_of_another_however_many_requests_or_networks_that_has(
    hogs: list[str],
) -> None:
    lock, log = FairLock(), list[str]()
    tasks = [asyncio.create_task(use(lock, client, log, 10)) for client in hogs]
    await asyncio.sleep(0)
    started = len(log)
    await use(lock, OTHER, log, 10)
    # The request under way at the beginning, then two turns before each of the ten.
    assert len(log) - started <= 1 + 10 * 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_no_turn_is_lost_when_waiting_requests_are_cancelled() -> None:
    lock, log = FairLock(), list[str]()
    first = asyncio.create_task(use(lock, HOG, log, 50))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(use(lock, f"203.0.{number}.0/24", log)) for number in range(20)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    assert len(log) == 60
    await use(lock, OTHER, log)
    assert log[-1] == OTHER


async def test_a_request_that_is_cancelled_as_its_turn_comes_passes_it_on() -> None:
    lock, log = FairLock(), list[str]()
    async with lock.hold(HOG):
        cancelled = asyncio.create_task(use(lock, OTHER, log))
        next_one = asyncio.create_task(use(lock, HOG, log))
        await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, next_one, return_exceptions=True)
    assert log == [HOG]


async def test_an_error_frees_the_lock() -> None:
    lock, log = FairLock(), list[str]()
    with pytest.raises(ValueError, match="broken"):
        async with lock.hold(HOG):
            raise ValueError("broken")
    await use(lock, OTHER, log)
    assert log == [OTHER]
