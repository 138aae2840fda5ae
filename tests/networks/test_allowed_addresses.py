"""Which addresses handle servers may have, and that the address that was checked is the one that is connected."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network

import pytest

from doi_proxy.networks import SPECIAL, AllowedAddresses, is_public
from handle_protocol.referral import HandleService, Question
from handle_protocol.wire.site_value import TransportProtocol
from tests.features.native.clients import PROTOCOLS, open_exchange
from tests.handle_protocol.server import HandleServer
from tests.table import table


@table("network", list(SPECIAL))
def test_no_address_of_a_special_block_is_queried(network: str) -> None:
    block = ip_network(network)
    for address in (block[0], block[-1], block[block.num_addresses // 3]):
        is_nat64 = address in ip_network("64:ff9b::/96")
        assert not is_public(address) or is_nat64


@table(
    ("address", "expected"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("2001:200::1", True),
        ("2a00:1450:4001:80b::200e", True),
        ("9.255.255.255", True),
        ("11.0.0.0", True),
        ("100.63.255.255", True),
        ("100.128.0.0", True),
        ("223.255.255.255", True),
        ("169.254.169.254", False),
        ("192.0.0.9", False),
        ("255.255.255.255", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::169.254.169.254", False),
        ("64:ff9b::93.184.216.34", True),
        ("64:ff9b:1::10.0.0.1", False),
        ("64:ff9b:1:ffff::169.254.169.254", False),
        ("::10.0.0.1", False),
        ("::93.184.216.34", False),
        ("::ffff:0:10.0.0.1", False),
        ("::ffff:0:93.184.216.34", False),
        ("2002:a00:1::", False),
        ("2002:5db8:d822::", False),
        ("2001:0:5db8:d822::f5ff:fffe", False),
        ("2606:2800:220:1:0:5efe:a00:1", False),
        ("2606:2800:220:1:200:5efe:a00:1", False),
        ("fec0::1", False),
        ("5f00::1", False),
        ("3fff:fff::1", False),
        ("3fff:1000::1", True),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff0e::1", False),
    ],
)
def test_only_public_addresses_are_queried(address: str, expected: bool) -> None:
    assert is_public(ip_address(address)) is expected
    assert (ip_address(address) in AllowedAddresses(private=False)) is expected
    assert ip_address(address) in AllowedAddresses(private=True)


def test_a_server_inside_is_queried_at_the_address_that_the_operator_named() -> None:
    outside, inside = ip_address("93.184.216.34"), ip_address("10.0.0.7")
    allowed = AllowedAddresses(private=False, inside={outside: inside})
    assert allowed.find(outside) == inside
    # A site value that names the address inside is the word of a registrant.
    assert allowed.find(inside) is None
    assert allowed.find(ip_address("93.184.216.35")) == ip_address("93.184.216.35")


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_address_that_was_checked_is_connected_without_a_lookup(
    protocol: TransportProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an address needs no lookup")

    async with HandleServer() as server:
        server.put("10.1000/182", url="http://www.doi.org/hb.html")
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
        exchange = open_exchange([protocol])
        try:
            response = await exchange(HandleService((server.site(),), is_verified=False), Question(b"10.1000/182"))
        finally:
            await exchange.aclose()
        assert (response.header.response_code, server.queries()) == (1, 1)
