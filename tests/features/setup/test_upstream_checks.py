"""`doctor --upstream` says which upstreams answer, and by which transports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from doi_proxy.assembly.checks import examine_upstreams
from doi_proxy.assembly.settings import Settings
from doi_proxy.system.check import Finding, exit_status
from tests.handle_protocol.server import TRANSPORTS, HandleServer, write_bootstrap

# A check of the settings runs an event loop of its own.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


async def examine(**settings: str | bool) -> list[Finding]:
    return await asyncio.to_thread(examine_upstreams, Settings(**settings))


def by_source(findings: list[Finding]) -> dict[str, str]:
    return {one.source.rpartition(" ")[2]: one.problem.partition(",")[0] for one in findings}


async def test_each_transport_of_a_handle_server_is_named() -> None:
    async with HandleServer() as server:
        found = await examine(upstream_url=server.url)
    assert by_source(found) == {"UDP": "works", "TCP": "works", "HTTP": "works", "HTTPS": "no server offers it"}
    assert exit_status(found) == 0


async def test_a_transport_that_does_not_work_is_named() -> None:
    async with HandleServer(transports=TRANSPORTS - {"udp"}) as server:
        found = by_source(await examine(upstream_url=server.url))
    assert found["UDP"].startswith("The handle server could not be reached.")
    assert (found["TCP"], found["HTTP"]) == ("works", "works")


async def test_an_upstream_that_does_not_answer_is_an_error() -> None:
    async with HandleServer() as server:
        pass
    found = await examine(upstream_url=f"{server.url},http://127.0.0.1:{server.port}")
    assert [(one.severity, one.source) for one in found if one.severity == "error"] == [
        ("error", server.url),
        ("error", f"http://127.0.0.1:{server.port}"),
    ]
    assert exit_status(found) == 2


async def examine_root(server: HandleServer, folder: Path) -> dict[str, str]:
    file = folder / "root.json"
    file.write_bytes(write_bootstrap(server))
    found = await examine(
        upstream_url="hdl:", upstream_bootstrap=str(file), upstream_private_servers=True, upstream_timeout="1"
    )
    return {one.source: one.problem.partition(",")[0] for one in found}


async def test_each_interface_of_the_root_is_named(tmp_path: Path) -> None:
    async with HandleServer() as server:
        found = await examine_root(server, tmp_path)
        start = f"hdl: 127.0.0.1 port {server.port} by"
    assert found == {f"{start} HTTP": "works", f"{start} TCP": "works", f"{start} UDP": "works"}


async def test_an_interface_of_the_root_that_a_firewall_drops_is_named(tmp_path: Path) -> None:
    async def examine_closed(closed: str) -> dict[str, str]:
        folder = tmp_path / closed
        folder.mkdir()
        async with HandleServer(mute=frozenset({closed})) as server:
            return await examine_root(server, folder)

    # Each waits for its whole timeout, so they wait together.
    interfaces = ("udp", "tcp", "http")
    for closed, found in zip(interfaces, await asyncio.gather(*map(examine_closed, interfaces)), strict=True):
        assert len(found) == 3
        for source, problem in found.items():
            is_closed = source.endswith(closed.upper())
            assert problem == ("no answer within 1 s" if is_closed else "works"), (closed, source)


async def test_a_root_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    async with HandleServer() as server:
        pass
    found = await examine_root(server, tmp_path)
    assert found["hdl:"] == "no server of the root answers"


async def test_a_private_address_of_the_root_is_not_queried(tmp_path: Path) -> None:
    async with HandleServer() as server:
        file = tmp_path / "root.json"
        file.write_bytes(write_bootstrap(server))
        found = await examine(upstream_url="hdl:", upstream_bootstrap=str(file))
        assert "upstream_private_servers" in found[0].problem
        assert (server.queries(), exit_status(found)) == (0, 2)
