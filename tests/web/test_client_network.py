"""The network that counts as one client."""

from __future__ import annotations

import pytest

from doi_proxy.web.request_path import UNKNOWN_CLIENT, client_of


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.0/24"),
        ("192.0.2.250", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", UNKNOWN_CLIENT),
        ("unix:", UNKNOWN_CLIENT),
        ("192.0.2.7, 198.51.100.1", UNKNOWN_CLIENT),
    ],
)
def test_an_address_belongs_to_the_network_of_its_prefix(address: str, client: str) -> None:
    assert client_of(address) == client


def test_the_access_log_has_a_shorter_prefix() -> None:
    assert client_of("2001:db8:1:2::5", 48) == "2001:db8:1::/48"
