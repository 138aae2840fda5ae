"""Whose trouble it is: the tokens, the places, the upstream, or this machine. Each has one word everywhere."""

from __future__ import annotations

import errno
import socket

import httpx
import pytest

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify, ResourcesShort
from doi_proxy.system.files import find_shortage
from doi_proxy.upstream.budget import Budget, BudgetLimits
from doi_proxy.upstream.guard import Breaker, BreakerState
from doi_proxy.upstream.source import UpstreamQuery
from tests.clock import Clock
from tests.fake_upstream import EVERY_NAME
from tests.parts import usual_api
from tests.upstream.guards import open_guard
from tests.world.world import World

#: A metric of the queries that were not sent.
_REFUSED = 'doi_proxy_upstream_questions_total{outcome="%s",upstream="1"}'


def test_nine_new_names_a_second_at_an_upstream_of_three_seconds_make_it_slow_and_spend_no_budget() -> None:
    with World(status_networks="0.0.0.0/0, ::/0") as world:
        world.upstream.fault(EVERY_NAME, "delay", seconds=3.0)
        clients = [world.client(f"192.0.{number}.7") for number in range(25)]
        asked = []
        for number in range(225):
            asked.append(clients[number % 25].ask(f"/10.5555/{number}", {"accept": "application/json"}))
            world.sleep(1 / 9)
        status = world.get("/status?format=json").json
        replies = [world.finish(request) for request in asked]
        refused = [reply for reply in replies if reply.status == 503]
        assert len(refused) > 20
        assert {reply.json["type"].partition("#")[2] for reply in refused} == {"upstream-slow"}
        assert all(1 <= int(reply["retry-after"] or 0) <= 4 for reply in refused)
        assert status["budget"]["tokens"] > 1.0 - 1e-9
        assert status["summary"]["sentence"].startswith("The upstream is slow, and queries about new names wait. ")
        assert status["summary"]["problems"][0] == "DoiProxyUpstreamSlow"
        (event,) = [event for event in status["events"] if event["kind"] == "refusal"]
        assert (event["cause"], event["until"]) == ("upstream-slow", None)
        (line,) = [line for line in world.log if "are refused" in line]
        assert ": upstream-slow: 12 of 16 queries are in flight, " in line and "no token is missing" in line
        metrics = world.get("/metrics").text
        assert f"{_REFUSED % 'budget-spent'} 0.0" in metrics
        assert f"{_REFUSED % 'upstream-slow'} 0.0" not in metrics
        world.upstream.fault(EVERY_NAME, "delay", seconds=0.0)
        world.sleep(15)
        assert [line for line in world.log if "queries about new names are sent again after" in line]
        summary = world.get("/status?format=json").json["summary"]
        assert "DoiProxyUpstreamSlow" not in summary["problems"]


SHORTAGES = [MemoryError(), OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENOBUFS, "No buffer space")]


class _Short(httpx.AsyncBaseTransport):
    """A transport on a machine that is short of something."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("cannot connect") from self._error


@pytest.mark.anyio
@pytest.mark.parametrize("error", SHORTAGES, ids=["memory", "files", "buffers"])
async def test_a_machine_that_is_short_of_memory_or_files_does_not_blame_the_upstream(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock, breaker = Clock(0.0), Breaker(failures=2, cooldown=15)
    limits = BudgetLimits(rate=10, burst=100, max_concurrency=4)
    outcomes = list[str]()
    guard = open_guard(
        usual_api("http://upstream.example", transport=_Short(error)),
        Budget(limits, clock),
        clock,
        breaker=breaker,
        record_query=lambda outcome, _: outcomes.append(outcome),
    )
    for number in range(20):
        with pytest.raises(ResourcesShort) as failure:
            await guard.fetch(UpstreamQuery(HandleName(f"10.1234/{number}")))
        assert (failure.value.status, failure.value.token) == (503, "resources-short")
        assert failure.value.retry_after
    assert breaker.state is BreakerState.CLOSED
    assert set(outcomes) == {"resources-short"} and len(outcomes) == 20
    (line,) = caplog.messages
    assert line.startswith("queries about new names are refused: resources-short: ")


@pytest.mark.parametrize("error", [OSError(errno.ECONNREFUSED, "refused"), ValueError(), socket.gaierror(-3, "again")])
def test_any_other_failure_is_no_shortage(error: Exception) -> None:
    failure = CouldNotVerify()
    failure.__cause__ = error
    assert find_shortage(failure) == ""
