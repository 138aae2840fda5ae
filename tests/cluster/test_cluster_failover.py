"""A primary of a Valkey cluster is killed, or hangs, under load: no answer is wrong, and none is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.load import Load
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.cluster.test_cluster_killed import REGISTERED, SETTINGS, TTLS, UNKNOWN, expect_no_failure, expect_the_truth
from tests.features.valkey.valkey_cluster import Cluster, running_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.valkey, pytest.mark.process]

#: Answers of each phase.
ANSWERS: Final = 400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that the test breaks."""
    with running_cluster(tmp_path) as one:
        yield one


async def test_no_answer_is_lost_while_a_primary_is_killed_and_another_one_hangs(
    cluster: Cluster, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream(REGISTERED, ttls=TTLS)
    proxies = [start_proxy(upstream.url, cluster.url, **SETTINGS) for _ in range(2)]
    await asyncio.gather(upstream.ready(), *(proxy.ready() for proxy in proxies))
    async with Load(proxies, REGISTERED, UNKNOWN) as load:
        phases = [load.phase("all run")]
        await load.answers(ANSWERS)

        phases.append(load.phase("a primary is killed"))
        killed, hung, _ = cluster.primaries()
        killed.kill()
        await load.answers(ANSWERS)
        await report_recovery(proxies, "kill -9")
        phases.append(load.phase("its replica is the primary"))
        await load.answers(ANSWERS)

        phases.append(load.phase("another primary hangs"))
        killed.restart()
        await asyncio.to_thread(cluster.wait_for_nodes)
        hung.send(signal.SIGSTOP)
        await load.answers(ANSWERS)
        await report_recovery(proxies, "SIGSTOP")
        hung.send(signal.SIGCONT)
        phases.append(load.phase("it goes on as a replica"))
        await load.answers(ANSWERS)
    expect_the_truth(load)
    expect_no_failure(*phases)
    for proxy in proxies:
        warnings = [line for line in proxy.process.log.splitlines() if "The store is" in line]
        print("\n".join(warnings))
        # One line when an outage begins and one when it ends, however many operations failed. On a busy machine, a
        # server that works is too slow at times.
        begins = ["The store is down" in line for line in warnings]
        assert begins == [number % 2 == 0 for number in range(len(warnings))]
        assert begins


async def report_recovery(proxies: list[Proxy], what: str) -> None:
    """Wait until the store of each proxy works, and print how long that took."""

    async def works() -> bool:
        answers: list[Any] = [(await proxy.ask("/readyz")).json for proxy in proxies]
        return all(answer["detail"]["store"] == "ok" for answer in answers)

    print(f"{what}: the store works again after {await until(works, START_DEADLINE, 'the store works'):.1f} s")
