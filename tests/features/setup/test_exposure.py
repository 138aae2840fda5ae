"""What a stranger reaches is a finding, judged by real answers of a proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.features.setup.doctor import (
    KINDS,
    ProbeAnswer,
    Prober,
    examine_without_key,
    judge_admin,
    judge_health,
    judge_status,
)
from doi_proxy.proxy_client import parse_server
from tests.cluster.processes import Proxy as ProcessProxy
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

OPEN: Final = {"admin_token": "correct-horse-battery-staple", "status_networks": "0.0.0.0/0, ::/0"}


async def ask(*paths: str, **settings: Any) -> list[ProbeAnswer]:
    """What a stranger gets from a proxy with these settings."""
    async with Proxy(**settings) as proxy:
        found = [await proxy.get(path) for path in paths]
    return [ProbeAnswer(got.status, dict(got.fields), got.body) for got in found]


@table("kind", [*KINDS, ""])
async def test_an_open_admin_api_and_status_are_findings(kind: str) -> None:
    admin, status = await ask("/admin/settings", "/status?format=json", **OPEN)
    findings = [*judge_admin(admin, kind), *judge_status(status, kind)]
    assert [one.source for one in findings] == ["probe /admin/", "probe /status"]
    assert {one.severity for one in findings} == {"warning"}
    assert all(one.remedy for one in findings)


async def test_a_closed_proxy_has_no_finding() -> None:
    [status] = await ask("/status?format=json", status_networks="198.51.100.0/24")
    assert [*judge_admin(ProbeAnswer(400, {}, b""), ""), *judge_status(status, "")] == []
    # A front proxy that refuses, and a page of another server.
    assert [*judge_admin(ProbeAnswer(403, {}, b""), ""), *judge_status(ProbeAnswer(200, {}, b"<html>"), "")] == []


@pytest.mark.process
async def test_without_a_key_the_rest_is_examined(tmp_path: Path) -> None:
    async with ProcessProxy(tmp_path, "http://127.0.0.1:9", "memory:", mode="sealed", **OPEN) as proxy:
        found = await asyncio.to_thread(examine_without_key, Prober(parse_server(proxy.url, "--url"), ""), None)
    assert [(one.severity, one.source) for one in found.findings] == [
        ("note", "probe /admin/"),
        ("note", "admin_token"),
    ]


def test_another_server_is_named() -> None:
    finding = judge_health(ProbeAnswer(404, {}, b"<html>"))
    assert finding is not None and finding.severity == "error"
