"""A turn: when it is over, and that other work comes first then."""

from __future__ import annotations

import asyncio

import pytest

from app.features.lists.batch import Turn
from tests.clock import Clock

pytestmark = pytest.mark.anyio


async def test_other_work_runs_after_a_turn_and_not_during_it() -> None:
    clock = Clock()
    turn = Turn(clock)
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "another request")
    await turn.yield_if_over()
    assert not turn.is_over() and others == []
    clock.advance(0.01)
    assert turn.is_over()
    await turn.yield_if_over()
    assert not turn.is_over() and others == ["another request"]
