"""Servers at IPv6 addresses, and names with addresses of both families."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.features.native import direct
from handle_protocol.referral import HandleService, Question, ResponseCode
from handle_protocol.wire.message import ResponseStatus
from handle_protocol.wire.site_value import TransportProtocol
from tests.features.native.clients import (
    HTTP,
    HTTPS,
    TCP,
    UDP,
    Exchanges,
    client_of,
    direct_server,
    open_exchange,
    query,
)
from tests.handle_protocol.certificates import new_key, serve_tls
from tests.handle_protocol.server import HandleServer


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not _has_ipv6(), reason="this machine has no ::1"),
]

NAME = b"10.1000/182"
_MUTE = frozenset({"udp", "tcp", "http"})


@pytest.mark.parametrize("protocol", [UDP, TCP, HTTP, HTTPS], ids=lambda one: one.name)
async def test_each_transport_reaches_an_ipv6_address(protocol: TransportProtocol, tmp_path: Path) -> None:
    key = new_key()
    exchange = open_exchange((protocol,))
    async with HandleServer(host="::1", key=key, tls=serve_tls(tmp_path, key)) as server:
        response = await exchange(HandleService((server.site(),), is_verified=False), Question(NAME))
        assert response.code == ResponseStatus.HANDLE_NOT_FOUND
        assert server.by_transport == {protocol.name.lower(): 1}
        await exchange.aclose()


async def test_the_url_of_an_ipv6_address_names_a_server() -> None:
    async with HandleServer(host="::1") as server, client_of(server) as client:
        assert server.url == f"hdl://[::1]:{server.port}"
        assert (await client.fetch(query("10.1000/182"))).code is ResponseCode.HANDLE_NOT_FOUND


def both_families(port: int) -> Any:
    """The look-up of a name that has ::1 and 127.0.0.1."""

    async def look_up(*args: Any, **kwargs: Any) -> list[Any]:
        return [(socket.AF_INET6, 0, 0, "", ("::1", port, 0, 0)), (socket.AF_INET, 0, 0, "", ("127.0.0.1", port))]

    return look_up


async def test_the_order_of_addresses_is_that_of_the_system_and_the_transports_alternate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        HandleServer(mute=_MUTE) as server,
        HandleServer(server.port, host="::1", mute=_MUTE) as six,
    ):
        monkeypatch.setattr(direct, "look_up", both_families(server.port))
        exchange = open_exchange(head_start=2.0)
        task = asyncio.create_task(direct_server(server, exchange, host="both.example").resolve(Question(NAME)))
        await six.arrived("10.1000/182", 3)
        await server.arrived("10.1000/182", 3)
        # ::1 by UDP, 127.0.0.1 by TCP, ::1 by TCP, and so on.
        assert (next(iter(six.by_transport)), next(iter(server.by_transport))) == ("udp", "tcp")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await exchange.aclose()


async def test_a_silent_ipv6_address_costs_one_head_start(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Exchanges()
    async with (
        HandleServer() as server,
        HandleServer(server.port, host="::1", mute=_MUTE) as six,
    ):
        monkeypatch.setattr(direct, "look_up", both_families(server.port))
        exchange = open_exchange(head_start=2.0, observer=seen)
        finder = direct_server(server, exchange, host="both.example")
        for number in range(3):
            assert (await finder.resolve(Question(b"10.1000/%d" % number))).code == ResponseStatus.HANDLE_NOT_FOUND
        # The first query was sent to the silent address too, by UDP. The last went to the one that answers alone.
        assert six.by_transport.keys() == {"udp"}
        assert (six.queries("10.1000/2"), server.queries("10.1000/2")) == (0, 1)
        await finder.aclose()
        await exchange.aclose()
