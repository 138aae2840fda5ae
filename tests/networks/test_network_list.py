"""Lists of networks: which addresses a list holds, and which files are refused."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.limits.limits import ALLOW_FILE
from doi_proxy.networks import NetworkList

NUMBERS = st.integers(0, 2**32 - 1)


def write_list(folder: Path, text: str) -> Path:
    path = folder / "networks.txt"
    path.write_text(text, "utf-8")
    return path


def read_networks(path: Path) -> NetworkList:
    reading = ALLOW_FILE.read(path)
    if reading.errors:
        raise ConfigurationError(str(reading.errors[0]))
    return reading.value


def test_lines_are_networks_and_comments(tmp_path: Path) -> None:
    networks = read_networks(write_list(tmp_path, "# both\n\n192.0.2.0/24\n2001:db8::/32  # IPv6\n203.0.113.5\n"))
    inside = ["192.0.2.255", "2001:db8:ffff::1", "203.0.113.5", "::ffff:192.0.2.1", "2001:db8::1%eth0"]
    assert [address for address in inside if address not in networks] == []
    assert [one for one in ["192.0.3.0", "2001:db9::1", "203.0.113.6", "unknown", ""] if one in networks] == []


def test_a_byte_order_mark_is_not_part_of_the_first_network(tmp_path: Path) -> None:
    assert "192.0.2.1" in read_networks(write_list(tmp_path, "\ufeff192.0.2.0/24\r\n"))


def test_an_empty_list_holds_nothing() -> None:
    assert "192.0.2.1" not in NetworkList()


@pytest.mark.parametrize("line", ["campus", "192.0.2.1/24", "192.0.2.0/33", "10.0.0.0/8 10.1.0.0/16"])
def test_a_line_that_is_not_a_network_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"networks\.txt:2:1: "):
        read_networks(write_list(tmp_path, f"# first\n{line}\n"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.txt"):
        read_networks(tmp_path / "none.txt")


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 32)), max_size=5), NUMBERS)
def test_a_list_holds_the_addresses_of_its_networks_and_no_other(listed: list[tuple[int, int]], number: int) -> None:
    networks = [ip_network(pair, strict=False) for pair in listed]
    address = ip_address(number)
    assert (str(address) in NetworkList(networks)) == any(address in network for network in networks)


def test_addresses_of_the_other_version_are_not_held() -> None:
    assert "0.0.0.1" not in NetworkList([ip_network("::/96")])
    assert "::1" not in NetworkList([ip_network("0.0.0.0/0")])


def test_a_list_is_read_up_to_16_mib(tmp_path: Path) -> None:
    most = 16 * 1024 * 1024
    line = "192.0.2.0/24 #"
    assert "192.0.2.1" in read_networks(write_list(tmp_path, line + "x" * (most - len(line))))
    with pytest.raises(ConfigurationError, match=f"networks.txt: the text has more than {most} bytes; merge"):
        read_networks(write_list(tmp_path, line + "x" * most))


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "networks.txt"
    path.write_bytes(b"192.0.2.0/24 # caf\xe9")
    with pytest.raises(ConfigurationError, match=r"networks\.txt:1:19: the text is not UTF-8"):
        read_networks(path)
