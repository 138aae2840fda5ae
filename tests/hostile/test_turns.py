"""No turn of the event loop is longer than 20 ms of processor time, whatever arrives. docs/security.md has a table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.main import create
from doi_proxy.web.request_path import ROUTES, find_route
from tests.hostile.turn_groups import GROUPS, UNITS, Longest, measure_group, measure_unit
from tests.hostile.turns import MAX_TURN_MS, is_short

pytestmark = [pytest.mark.process, pytest.mark.nightly]

_ROOT = Path(__file__).resolve().parents[2]


def _over_the_bound(measured: list[Longest]) -> list[str]:
    return [
        f"{one.name}, {one.largest}: {one.milliseconds:.0f} ms, status {one.status}"
        for one in measured
        if one.status == 500 or not is_short(one.milliseconds)
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("group", GROUPS)
async def test_no_turn_of_an_endpoint_is_longer_than_the_bound(group: str, tmp_path: Path, upstream_url: str) -> None:
    measured = await measure_group(group, tmp_path, upstream_url)
    assert _over_the_bound(measured) == []
    assert group != "certified" or {one.status for one in measured} == {200}


@pytest.mark.parametrize("kind", UNITS)
def test_no_turn_of_a_reader_or_a_message_is_longer_than_the_bound(kind: str) -> None:
    assert _over_the_bound([measure_unit(unit) for unit in UNITS[kind]()]) == []


def test_every_endpoint_has_a_row() -> None:
    application = create(Settings(store_url="memory:", admin_token="x" * 20))
    operations: Any = application._operations
    routes = [*operations.app.routes, *(route for gate in operations.gates for route in gate.app.routes)]
    endpoints = {
        f"{method} {route.path}"
        for route in routes
        for method in getattr(route, "methods", ()) or ()
        if method != "HEAD"
    }
    rows = [exchange for _, exchanges in GROUPS.values() for exchange in exchanges(0)]
    assert endpoints - {row.endpoint for row in rows} == set()
    paths = operations.paths
    asked = {find_route(row.method, row.target.partition("?")[0].encode(), paths) for row in rows}
    assert asked >= {*ROUTES, *paths.own_api.values()}


def test_the_table_has_measured_endpoints_readers_and_messages_and_nothing_above_the_bound() -> None:
    text = (_ROOT / "docs" / "security.md").read_text("utf-8")
    table = text.partition("## The longest turns")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `?([^`|]+)`? \| [^|]+ \| (\d+) ms \|$", table, re.MULTILINE))
    endpoints = {exchange.endpoint for _, exchanges in GROUPS.values() for exchange in exchanges(0)}
    assert {*rows} <= endpoints | {unit.name for units in UNITS.values() for unit in units()}
    assert max(map(int, rows.values())) <= MAX_TURN_MS
