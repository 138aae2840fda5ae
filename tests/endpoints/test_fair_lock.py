"""A lock whose clients take turns, whatever the number of their requests."""

from __future__ import annotations

import asyncio

import pytest

from doi_proxy.endpoints.operators import FairLock

pytestmark = pytest.mark.anyio

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
