"""What a stranger reaches is a finding, judged by real answers of a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from app.features.setup.doctor import examine_without_key
from app.features.setup.exposure import judge_admin, judge_health, judge_readiness, judge_status
from app.features.setup.probes import ProbeAnswer, Prober
from app.features.setup.remedies import KINDS
from app.proxy_client.server import parse_server
from tests.cluster.processes import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.process]

NOWHERE: Final = "http://127.0.0.1:9"
OPEN: Final = {"mode": "sealed", "admin_token": "correct-horse-battery-staple", "status_networks": "0.0.0.0/0, ::/0"}
CLOSED: Final = {"mode": "sealed", "status_networks": "192.0.2.0/24"}


@pytest.fixture(scope="module")
async def proxies(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """A proxy that shows everything, and one that shows nothing."""
    folder = tmp_path_factory.mktemp("proxies")
    started = [Proxy(folder, NOWHERE, "memory:", **settings) for settings in (OPEN, CLOSED)]
    try:
        await asyncio.gather(*(one.ready() for one in started))
        yield started[0], started[1]
    finally:
        for one in started:
            one.process.kill()


def answers_of(proxy: Proxy) -> tuple[ProbeAnswer, ProbeAnswer]:
    prober = Prober(parse_server(proxy.url, "--url"), "")
    return prober.send_plain("/admin/settings"), prober.send_plain("/status?format=json")


@pytest.mark.parametrize("kind", [*KINDS, ""])
async def test_an_open_admin_api_and_status_are_findings(proxies: tuple[Proxy, Proxy], kind: str) -> None:
    admin, status = await asyncio.to_thread(answers_of, proxies[0])
    findings = [*judge_admin(admin, kind), *judge_status(status, kind)]
    assert [one.source for one in findings] == ["probe /admin/", "probe /status"]
    assert {one.severity for one in findings} == {"warning"}
    assert all(one.remedy for one in findings)


async def test_a_closed_proxy_has_no_finding(proxies: tuple[Proxy, Proxy]) -> None:
    admin, status = await asyncio.to_thread(answers_of, proxies[1])
    assert [*judge_admin(admin, ""), *judge_status(status, "")] == []
    # A front proxy that refuses, and a page of another server.
    assert [*judge_admin(ProbeAnswer(403, {}, b""), ""), *judge_status(ProbeAnswer(200, {}, b"<html>"), "")] == []


async def test_without_a_key_the_rest_is_examined(proxies: tuple[Proxy, Proxy]) -> None:
    found = await asyncio.to_thread(examine_without_key, Prober(parse_server(proxies[0].url, "--url"), ""), None)
    assert [(one.severity, one.source) for one in found.findings] == [
        ("note", "probe /admin/"),
        ("note", "admin_token"),
    ]


async def test_another_server_is_named(proxies: tuple[Proxy, Proxy]) -> None:
    finding = judge_health(ProbeAnswer(404, {}, b"<html>"))
    assert finding is not None and finding.severity == "error"


def test_a_store_that_does_not_write_is_a_finding() -> None:
    def judge(body: bytes, status: int = 200) -> list[str]:
        return [found.problem for found in judge_readiness(ProbeAnswer(status, {}, body))]

    assert ["reads, but does not write" in found for found in judge(b'{"detail": {"store": "read-only"}}')] == [True]
    assert len(judge(b'{"detail": {"store": "failing"}}')) == 1
    for body in (
        b'{"detail": {"store": "ok"}}',
        b'{"detail": {"store": "memory-only"}}',
        b"<html>",
        b"[]",
        b'{"detail": 1}',
    ):
        assert judge(body) == []
    assert judge(b'{"detail": {"store": "failing"}}', 403) == []
