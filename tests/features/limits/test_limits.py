"""The limits of one client by themselves. test_fair_shares.py has the answers that they lead to."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ClientDenied, RateExceeded
from doi_proxy.features.limits.feature import TooManyBypasses
from doi_proxy.features.limits.limits import ALLOW_FILE, BYPASS, DENIED, DENY_FILE, MAX_ADDRESSES, ClientLimits
from doi_proxy.networks import NetworkList
from doi_proxy.rationing import MAX_ACCOUNTS, Rate
from doi_proxy.resolver.resolution import Conditions, ResolveOptions
from doi_proxy.store.kept_file import KeptFile
from doi_proxy.web.request import Request
from doi_proxy.web.responses import Message, Scope
from doi_proxy.web.stage import fold_stages, read_conditions
from tests.clock import Clock

CLIENT, NEIGHBOUR, OTHER = "192.0.2.7", "192.0.2.8", "198.51.100.9"
AUTH = ResolveOptions(authoritative=True)


async def receive() -> Message:
    raise AssertionError("the body is not needed")


def request(address: str) -> Request:
    scope: Scope = {
        "method": "GET",
        "raw_path": b"/10.1000/182",
        "query_string": b"",
        "headers": [],
        "client": (address, 1) if address else None,
    }
    return Request(scope, receive, public_url=None, sub_path=b"")


class Bench:
    """Limits of two requests, one a second, and of one bypass every ten seconds."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.refusals: list[str] = []
        defaults: dict[str, Any] = {
            "requests": Rate(1, 2),
            "bypasses": Rate(0.1, 1),
            "clock": self.clock,
            "refused": self.refusals.append,
        }
        allowed, denied = options.pop("allow", ()), options.pop("deny", ())
        self.limits = ClientLimits(**defaults | options)
        self.limits.set_allowed(NetworkList(map(ip_network, allowed)))
        self.limits.set_denied(NetworkList(map(ip_network, denied)))
        self.stages = fold_stages([self.limits])

    def conditions_of(self, sent: Request, options: ResolveOptions) -> Conditions:
        return read_conditions(sent, options, self.stages)


def write_list(folder: Path, text: str) -> Path:
    path = folder / "networks.txt"
    path.write_text(text)
    return path


def test_what_an_answer_cost_is_paid_by_the_next_requests() -> None:
    bench = Bench(requests=Rate(1, 4))
    bench.limits.admit(CLIENT)
    bench.limits.charge(CLIENT, 2.0)
    bench.limits.admit(CLIENT)
    with pytest.raises(RateExceeded):
        bench.limits.admit(CLIENT)
    # However much it was, the client waits until its bucket has filled twice at most.
    bench.limits.charge(CLIENT, 1_000_000.0)
    with pytest.raises(RateExceeded) as error:
        bench.limits.admit(CLIENT)
    assert error.value.retry_after == 5.0
    # A second answer, which cost nothing or little, does not shorten that.
    bench.limits.charge(CLIENT, 0.0)
    bench.limits.charge(CLIENT, 1.0)
    with pytest.raises(RateExceeded) as error:
        bench.limits.admit(CLIENT)
    assert error.value.retry_after == 5.0
    bench.limits.admit(OTHER)
    bench.clock.advance(5.0)
    bench.limits.admit(CLIENT)


def test_a_request_that_bypasses_the_cache_is_counted_apart() -> None:
    bench = Bench()
    assert bench.conditions_of(request(CLIENT), ResolveOptions()).client == "192.0.2.0/24"
    conditions = bench.conditions_of(request(CLIENT), AUTH)
    assert (conditions.authoritative, conditions.certified, conditions.client) == (True, False, "192.0.2.0/24")
    # Once a request, before its first query: an alias leads to further ones.
    conditions.admit_bypass()
    conditions.admit_bypass()
    certified = bench.conditions_of(request(NEIGHBOUR), ResolveOptions(certified=True))
    with pytest.raises(TooManyBypasses) as error:
        certified.admit_bypass()
    assert (error.value.quota.name, error.value.retry_after) == (BYPASS, 10.0)
    assert not bench.conditions_of(request(CLIENT), ResolveOptions()).authoritative
    bench.limits.admit(CLIENT)


def test_a_network_on_the_allow_list_has_no_limit_and_one_on_the_deny_list_is_refused(tmp_path: Path) -> None:
    allowed = Bench(requests=Rate(1, 1), allow=["192.0.2.7"])
    for _ in range(3):
        allowed.limits.admit(CLIENT)
        allowed.conditions_of(request(CLIENT), AUTH).admit_bypass()
    allowed.limits.admit(NEIGHBOUR)
    with pytest.raises(RateExceeded):
        allowed.limits.admit(NEIGHBOUR)
    denied = Bench(deny=["192.0.2.7"])
    with pytest.raises(ClientDenied):
        denied.limits.admit(CLIENT)
    denied.limits.admit(NEIGHBOUR)
    assert denied.refusals == [DENIED]


@pytest.mark.anyio
async def test_a_change_of_a_list_is_in_force_without_a_reload_and_a_mistake_is_not(tmp_path: Path) -> None:
    path, bench = write_list(tmp_path, "192.0.2.0/24"), Bench()
    file = KeptFile(DENY_FILE, bench.limits.set_denied, Settings(store_url="memory:", client_deny_file=path))

    async def change(text: str) -> str:
        write_list(tmp_path, text)
        await file.look()
        await file.look()
        with pytest.raises(ClientDenied):
            bench.limits.admit(OTHER)
        bench.limits.admit(CLIENT)
        return file.state

    with pytest.raises(ClientDenied):
        bench.limits.admit(CLIENT)
    assert await change("198.51.100.0/24\n") == "ok"
    assert await change("campus") == "broken"


def test_senders_who_forge_their_addresses_do_not_renew_the_tokens_of_a_client() -> None:
    bench = Bench(requests=Rate(1, 1))
    bench.limits.admit(CLIENT)
    for number in range(MAX_ACCOUNTS + 1):
        forged = str(ip_address(0x0B000000 + 256 * number))
        assert not bench.limits.is_exempt(forged)
        with contextlib.suppress(RateExceeded):
            bench.limits.admit(forged, is_forgeable=True)
    bench.limits.forget_addresses()
    with pytest.raises(RateExceeded):
        bench.limits.admit(CLIENT)


def test_a_client_that_was_served_is_refused_as_soon_as_its_network_is_denied() -> None:
    bench = Bench(requests=None)
    assert bench.limits.passes(CLIENT)
    bench.limits.deny(["192.0.2.0/24"])
    assert not bench.limits.passes(CLIENT) and not bench.limits.passes(NEIGHBOUR) and bench.limits.passes(OTHER)
    bench.limits.deny([])
    assert bench.limits.passes(CLIENT)


def test_a_bounded_number_of_addresses_is_remembered_and_their_limits_hold() -> None:
    bench = Bench(requests=Rate(1, 1))
    assert bench.limits.passes(CLIENT) and bench.limits.passes(OTHER)
    assert len(bench.limits._standings) == 2
    for number in range(MAX_ADDRESSES + 10):
        bench.limits.passes(f"10.{number // 256}.{number % 256}.1")
    assert len(bench.limits._standings) <= MAX_ADDRESSES
    assert not bench.limits.passes(NEIGHBOUR)


def test_clients_without_an_address_share_one_bucket() -> None:
    bench = Bench(requests=Rate(1, 1))
    bench.limits.admit("")
    with pytest.raises(RateExceeded):
        bench.limits.admit("a path of a socket")


def test_the_networks_of_a_customer_have_eight_rates_together_and_those_of_a_provider_64() -> None:
    bench = Bench(requests=Rate(1, 5))
    assert sum(bench.limits.passes(f"2001:db8:1:{number:x}::1") for number in range(400)) == 40
    assert sum(bench.limits.passes(f"2001:db8:{number:x}::1") for number in range(2, 400)) == 64 * 5 - 40
    # A network of another provider is another account, and an IPv4 network pays with its /20.
    assert bench.limits.passes("2001:db9::1")
    assert sum(bench.limits.passes(f"192.0.{number % 16}.1") for number in range(160)) == 40


def test_a_request_that_one_account_refuses_is_charged_to_none() -> None:
    bench = Bench(requests=Rate(1, 1))
    assert bench.limits.passes(CLIENT)
    assert not any(bench.limits.passes(CLIENT) for _ in range(100))
    assert sum(bench.limits.passes(f"192.0.{number}.1") for number in range(16) if number != 2) == 7


def test_a_sender_that_can_forge_its_address_spends_no_other_client_s_rate(tmp_path: Path) -> None:
    bench = Bench(requests=Rate(1, 1), deny=["203.0.113.0/24"])
    for number in range(64):
        bench.limits.admit(f"192.0.2.{number}", is_forgeable=True)
    with pytest.raises(RateExceeded):
        bench.limits.admit(OTHER, is_forgeable=True)
    assert bench.limits.passes(CLIENT)
    with pytest.raises(ClientDenied):
        bench.limits.admit("203.0.113.1", is_forgeable=True)


def test_the_client_that_was_not_seen_for_longest_is_forgotten() -> None:
    bench = Bench(requests=Rate(1, 1))
    for address in ("203.0.113.1", "198.51.100.1"):
        bench.limits.admit(address)
        with pytest.raises(RateExceeded):
            bench.limits.admit(address)
    # Each has a bucket of its own, and one of its /20.
    for number in range(MAX_ACCOUNTS // 2 - 1):
        bench.limits.admit(f"{20 + number // 4_096}.{number // 16 % 256}.{number % 16 * 16}.1")
        if number % 5_000 == 0:
            bench.limits.passes("203.0.113.1")
    assert not bench.limits.passes("203.0.113.1")
    assert bench.limits.passes("198.51.100.1")


@pytest.mark.parametrize("everyone", ["0.0.0.0/0", "::/0"])
def test_a_list_that_denies_every_client_is_refused(everyone: str, tmp_path: Path) -> None:
    path = write_list(tmp_path, f"192.0.2.0/24\n{everyone}\n")
    (problem,) = DENY_FILE.read(path).problems
    assert str(problem).startswith(f"{path}: it denies every client; ")
    assert CLIENT in ALLOW_FILE.read(path).value
