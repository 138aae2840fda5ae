"""kill -9 of each part in turn, under load: no answer is wrong, and no registered name is "not found"."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.load import Load, Verdicts
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import RECHECK

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.process]


REGISTERED: Final = {f"10.1234/known{number}": f"https://www.example.org/{number}" for number in range(60)}
#: Every third record has a TTL of a second, so it is fetched repeatedly.
TTLS: Final = dict.fromkeys(list(REGISTERED)[::3], 1)
UNKNOWN: Final = [f"10.1234/unknown{number}" for number in range(20)]
#: Answers of each phase; about ten for each name.
ANSWERS: Final = 600
SETTINGS: Final[dict[str, object]] = {
    "upstream_breaker_cooldown": 0.5,
    RECHECK: 0.5,
    # An upstream that runs answers, however busy the machine is.
    "upstream_timeout": 60,
    "cache_negative_ttl": 1,
}


def expect_the_truth(load: Load, *killed: int) -> None:
    """No lie in any phase, and no failed connection but at `killed`, the ports of killed processes."""
    report = load.report()
    print(f"\n{report}")
    phases = load.phases.values()
    lies = [lie for phase in phases for lie in (*phase.wrong, *phase.false_not_found, *phase.other)]
    assert lies == [], report
    assert {port for phase in phases for port in phase.no_answer} <= set(killed), report
    unverified = [what for phase in phases for what in phase.known_unverified]
    assert unverified == [], f"registered names that were known before: {unverified[:5]}\n{report}"


def expect_no_failure(*phases: Verdicts) -> None:
    """Every request was answered, and rightly."""
    failed = [str(phase) for phase in phases if phase.no_answer.total() + phase.could_not_verify.total()]
    assert failed == []


@pytest.mark.valkey
async def test_no_answer_is_wrong_while_proxy_upstream_and_valkey_are_killed_in_turn(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream(REGISTERED, ttls=TTLS)
    store = f"valkey://127.0.0.1:{valkey.port}/0"
    first, second = (start_proxy(upstream.url, store, **SETTINGS) for _ in range(2))
    await asyncio.gather(upstream.ready(), first.ready(), second.ready())
    async with Load([first, second], REGISTERED, UNKNOWN) as load:
        quiet = load.phase("all run")
        await load.answers(ANSWERS)

        load.phase("a proxy is killed")
        first.process.kill()
        await load.answers(ANSWERS)
        first.restart()
        await first.ready()
        proxy_back = load.phase("the proxy is back")
        await load.answers(ANSWERS)

        load.phase("the upstream is killed")
        upstream.process.kill()
        await load.answers(ANSWERS)
        upstream.restart()
        await upstream.ready()
        load.phase("the upstream is back")
        await asyncio.gather(ask_again(first), ask_again(second))
        await load.answers(ANSWERS)

        without_valkey = load.phase("Valkey is killed")
        valkey.terminate()
        await load.answers(ANSWERS)
        valkey.start()
        valkey_back = load.phase("Valkey is back, empty")
        await load.answers(ANSWERS)

        hung_valkey = load.phase("Valkey hangs")
        os.kill(valkey_id(valkey), signal.SIGSTOP)
        await load.answers(ANSWERS)
        os.kill(valkey_id(valkey), signal.SIGCONT)
        load.phase("Valkey goes on")
        await load.answers(ANSWERS)
    expect_the_truth(load, first.port)
    expect_no_failure(quiet, proxy_back, without_valkey, valkey_back, hung_valkey)


def valkey_id(valkey: Any) -> int:
    """The process of a server, which its package keeps to itself."""
    return int(valkey._process.pid)


async def ask_again(proxy: Proxy) -> None:
    """Wait until a proxy has the word of the upstream that is back about every unregistered name.

    One name says nothing about the others: a refusal is prepared for the rest of its second.
    """

    async def verified() -> bool:
        return {(await proxy.ask(f"/{name}")).status for name in UNKNOWN} == {404}

    await until(verified, START_DEADLINE, f"{proxy.url} asks the upstream again")


# --- An upstream that cannot be reached: what the log has once, and what is answered ---------------------------------


async def test_an_upstream_that_cannot_be_reached_is_one_line_and_one_state(
    tmp_path: Path, start_proxy: StartProxy
) -> None:
    settings = {"upstream_breaker_cooldown": 0.2, RECHECK: 0.2}
    proxy = start_proxy("http://127.0.0.1:1", f"sqlite:///{tmp_path}/store.sqlite3", **settings)
    await proxy.ready()

    async def is_told() -> bool:
        assert {(await proxy.ask(f"/10.5555/{number}")).status for number in range(8)} <= {502, 503}
        return bool((await proxy.ask("/readyz")).json["detail"]["upstream"] == "failing")

    await until(is_told, START_DEADLINE, "/readyz says that the upstream fails")
    (line,) = [line for line in proxy.process.log.splitlines() if "upstream 1" in line]
    assert "correct the address, or allow this machine to reach it" in line
