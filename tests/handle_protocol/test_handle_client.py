"""The client for programs: `HandleResolver.resolve`, from the root and at named servers."""

from __future__ import annotations

import sys
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest

from handle_protocol.client import HandleResolver, allow_public, service_at
from handle_protocol.errors import (
    HandleNotFound,
    MalformedMessage,
    ServerRefused,
    ServerUnreachable,
    ServiceNotFound,
    SignatureInvalid,
)
from handle_protocol.referral import HandleService
from handle_protocol.wire.site_value import Value
from tests.handle_protocol.certificates import new_key, serve_tls
from tests.handle_protocol.keys import public_bytes
from tests.handle_protocol.server import HandleServer

pytestmark = pytest.mark.anyio
NAME = "10.5555/1"


def put(server: HandleServer) -> HandleServer:
    """The server, with a prefix that leads to itself, and a name of two values."""
    server.put_values("0.NA/10.5555", server.site_value())
    server.put_values(NAME, Value(1, b"URL", b"https://example.org/"), Value(2, b"EMAIL", b"desk@example.org"))
    return server


def root_of(server: HandleServer) -> HandleService:
    return HandleService((server.site(),), is_verified=True)


def from_root(server: HandleServer) -> HandleResolver:
    return HandleResolver.from_root(root_of(server), private_servers=True)


@pytest.mark.parametrize("transport", ["udp", "tcp", "http"])
@pytest.mark.parametrize("certified", [False, True])
async def test_a_handle_is_resolved_from_the_root_by_each_transport(transport: str, certified: bool) -> None:
    async with HandleServer(transports=frozenset({transport})) as server:
        async with from_root(put(server)) as resolver:
            record = await resolver.resolve(NAME, types=["URL"], certified=certified)
        assert [(value.index, value.text) for value in record.values] == [(1, "https://example.org/")]
        assert set(server.by_transport) == {transport}


@pytest.mark.parametrize("transport", ["udp", "tcp", "http"])
async def test_only_the_tunnel_needs_aiohttp(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "handle_protocol.transport.tunnel", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    async with HandleServer(transports=frozenset({transport})) as server, from_root(put(server)) as resolver:
        if transport != "http":
            assert len((await resolver.resolve(NAME)).values) == 2
            return
        with pytest.raises(ServerUnreachable):
            await resolver.resolve(NAME)


async def test_a_handle_is_resolved_by_https_whose_certificate_has_the_key_of_the_site(tmp_path: Path) -> None:
    key = new_key()
    async with HandleServer(key=key, tls=serve_tls(tmp_path, key), transports=frozenset({"http"})) as server:
        async with from_root(put(server)) as resolver:
            assert len((await resolver.resolve(NAME)).values) == 2
        assert set(server.by_transport) == {"https"}


async def test_types_and_indexes_select_a_union() -> None:
    async with (
        HandleServer() as server,
        HandleResolver.from_root(root_of(put(server)), private_servers=True) as resolver,
    ):
        for types, indexes, expected in (((), (), [1, 2]), (["email"], [1], [1, 2]), ((), [2], [2]), (["X"], (), [])):
            record = await resolver.resolve(NAME, types, indexes)
            assert [value.index for value in record.values] == expected


async def test_a_name_and_a_prefix_that_do_not_exist_are_not_found() -> None:
    async with (
        HandleServer() as server,
        HandleResolver.from_root(root_of(put(server)), private_servers=True) as resolver,
    ):
        for handle in ("10.5555/none", "10.9999/1"):
            with pytest.raises(HandleNotFound, match=f"The handle {handle} does not exist"):
                await resolver.resolve(handle)


async def test_addresses_inside_a_network_are_not_queried_unless_the_caller_allows_it() -> None:
    async with HandleServer() as server, HandleResolver.from_root(root_of(put(server))) as resolver:
        with pytest.raises(ServiceNotFound, match="No handle server could be found"):
            await resolver.resolve(NAME)
        assert server.queries() == 0


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("93.184.216.34", True),
        ("2001:500::1", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.1", False),
        ("ff0e::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
    ],
)
def test_only_public_addresses_are_allowed(address: str, is_allowed: bool) -> None:
    found = ip_address(address)
    assert (allow_public(found) == found) is is_allowed


async def test_one_server_at_an_address_is_queried_about_every_handle() -> None:
    async with HandleServer() as server:
        put(server)
        service = service_at("127.0.0.1", server.port, http_port=server.port, public_key=public_bytes(server.key))
        async with HandleResolver.of_sites(service) as resolver:
            assert len((await resolver.resolve(NAME, certified=True)).values) == 2
            server.lie(NAME, "other-key")
            with pytest.raises(SignatureInvalid):
                await resolver.resolve(NAME, certified=True)
            server.lie(NAME, "not-responsible")
            with pytest.raises(ServerRefused) as caught:
                await resolver.resolve(NAME)
            assert caught.value.response_code == 301


async def test_a_server_without_a_known_key_proves_nothing() -> None:
    async with HandleServer() as server, HandleResolver.of_sites(service_at("127.0.0.1", put(server).port)) as resolver:
        with pytest.raises(SignatureInvalid, match="no public key"):
            await resolver.resolve(NAME, certified=True)


async def test_a_server_that_lies_or_is_away_is_an_error_and_not_an_absence() -> None:
    async with HandleServer() as server, HandleResolver.of_sites(root_of(put(server))) as resolver:
        server.lie(NAME, "value-count")
        with pytest.raises(MalformedMessage):
            await resolver.resolve(NAME)
    async with HandleResolver.of_sites(service_at("127.0.0.1", server.port)) as resolver:
        with pytest.raises(ServerUnreachable):
            await resolver.resolve(NAME)


def test_a_service_has_an_address_and_no_name() -> None:
    assert service_at("::1").sites[0].servers[0].ip == IPv6Address("::1")
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        service_at("handle.example.org")
