"""An upstream that cannot be reached, and two workers: what the log says once, and what both of them answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.authority import LOOPBACK, Authority
from tests.cluster.conftest import StartProxy
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import RECHECK
from tests.fake_upstream import FakeUpstream

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

KNOWN: Final = "10.5555/known"
#: New names, each a query of one of the workers.
NEW: Final = [f"10.5555/new{number}" for number in range(16)]
SETTINGS: Final[dict[str, object]] = {
    "upstream_breaker_cooldown": 0.2,
    RECHECK: 0.2,
    "upstream_rate": 1000,
    "upstream_burst": 1000,
    "status_networks": "0.0.0.0/0, ::/0",
}


@dataclass(frozen=True)
class Trouble:
    """What an upstream presents, the words of the cause, and the remedy."""

    names: str
    days: int
    is_trusted: bool
    cause: str
    remedy: str


TROUBLES: Final = {
    "expired": Trouble(LOOPBACK, -1, True, "certificate has expired", "check the clock of this machine; otherwise"),
    "unknown authority": Trouble(
        LOOPBACK, 1, False, "unable to get local issuer certificate", "set upstream_ca_bundle to"
    ),
    "another host": Trouble(
        "DNS:other.example", 1, True, "certificate is not valid for '127.0.0.1'", "its certificate is for another host"
    ),
}


async def status(proxy: Proxy) -> dict[str, Any]:
    found: dict[str, Any] = (await proxy.ask("/status", headers={"Accept": "application/json"})).json
    return found


async def expect_one_line(proxy: Proxy, cause: str, remedy: str) -> None:
    """One line for the service, with its cause and its remedy, and the same state at each worker."""

    async def is_told() -> bool:
        found = [await status(proxy) for _ in range(4)]
        ready = [(await proxy.ask("/readyz")).json["detail"]["upstream"] for _ in range(4)]
        states = {one["summary"]["state"] for one in found}
        return (states, set(ready)) == ({"down"}, {"failing"})

    await until(is_told, START_DEADLINE, "every worker says that the upstream fails")
    assert (await status(proxy))["summary"]["failed_share"] > 0
    lines = [line for line in proxy.process.log.splitlines() if "upstream 1" in line]
    assert len(lines) == 1, lines
    assert cause in lines[0] and remedy in lines[0], lines
    assert len(lines[0]) < 350, lines


async def answers(proxy: Proxy, names: Iterable[str] = NEW) -> set[int]:
    """The statuses of names, by connections that the workers divide among them."""
    return {found.status for found in await asyncio.gather(*(proxy.ask(f"/{name}") for name in names))}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
async def test_a_certificate_that_cannot_be_used_is_one_line_with_its_remedy(
    trouble: Trouble, tmp_path: Path, start_proxy: StartProxy
) -> None:
    authority = Authority(tmp_path)
    settings = {**SETTINGS, "workers": 2}
    good, store = authority.sign(LOOPBACK), f"sqlite:///{tmp_path}/store.sqlite3"
    async with FakeUpstream(tls=good) as upstream:
        port, url = int(upstream.url.rpartition(":")[2]), upstream.url
        for name in (KNOWN, *NEW):
            upstream.put(name, url="https://www.example.org/")
        first = start_proxy(url, store, **settings, upstream_ca_bundle=authority.file)
        await first.ready()
        assert (await first.ask(f"/{KNOWN}")).status == 302
        first.process.terminate()
    async with FakeUpstream(port, tls=authority.sign(trouble.names, days=trouble.days)):
        proxy = start_proxy(url, store, **settings, upstream_ca_bundle=authority.file if trouble.is_trusted else "")
        await proxy.ready()
        assert await answers(proxy) <= {502, 503}
        assert (await proxy.ask(f"/{KNOWN}")).status == 302
        await expect_one_line(proxy, trouble.cause, trouble.remedy)
    if not trouble.is_trusted:
        return
    async with FakeUpstream(port, tls=good) as upstream:
        back, rounds = "upstream 1 (127.0.0.1) is up again", count()

        async def is_back() -> bool:
            # Names that no worker has queried: the one that was down must get an answer before it writes the line.
            number = next(rounds)
            names = [f"{name}/{number}" for name in NEW]
            for name in names:
                upstream.put(name, url="https://www.example.org/")
            is_working = await answers(proxy, names) == {302} and (await status(proxy))["summary"]["state"] == "working"
            return is_working and back in proxy.process.log

        await until(is_back, START_DEADLINE, "the renewed certificate serves")
    assert proxy.process.count(back) == 1


@pytest.mark.parametrize(
    ("url", "cause", "remedy"),
    [
        ("http://nowhere.invalid", "'ConnectError: ", "check the DNS of this machine"),
        ("http://127.0.0.1:1", "Connect call failed", "correct the address, or allow this machine to reach it"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
async def test_an_address_that_leads_nowhere_is_one_line_with_its_remedy(
    workers: int, url: str, cause: str, remedy: str, tmp_path: Path, start_proxy: StartProxy
) -> None:
    proxy = start_proxy(url, f"sqlite:///{tmp_path}/store.sqlite3", workers=workers, **SETTINGS)
    await proxy.ready()
    assert await answers(proxy) <= {502, 503}
    await expect_one_line(proxy, cause, remedy)
