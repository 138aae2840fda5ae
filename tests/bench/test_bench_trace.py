"""A hot redirect stays in few places, and one module decides how long an answer may be kept."""

from __future__ import annotations

import pytest

from bench.trace import DECIDED, deciders, traces

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("header", DECIDED)
def test_one_module_decides_a_header(header: str) -> None:
    assert deciders(header) == ["web/freshness.py"]


async def test_a_hot_redirect_crosses_few_packages() -> None:
    found = {label: trace.crossings for label, trace in (await traces()).items()}
    assert found["express lane"] <= 8
    assert found["protocol"] <= 12
    assert found["plain ASGI"] <= 10
