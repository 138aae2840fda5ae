"""One question for one name, however many ask, however they spell it, and whichever process they reach."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import PATIENT, Proxy, UpstreamProcess
from tests.cluster.raw_http import Answered

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

NAME: Final = "10.1234/MixedCase"
URL: Final = "https://www.example.org/mixed"
CALLERS: Final = 200
#: Seconds for which the upstream holds its answer.
HELD: Final = 2.0
SPELLINGS: Final = (
    "/10.1234/mixedcase",
    "/10.1234/MIXEDCASE",
    "/10.1234%2Fmixedcase",
    "/10.1234%2fMixed%43ase",
    "/doi:10.1234/MixedCase",
    "/urn:doi:10.1234:mixedcase",
    "/info:doi/10.1234/mixedcase",
    "/https://doi.org/10.1234/mixedcase",
    "/10.1234/mixedcase?type=URL",
    "/api/handles/10.1234/mixedcase",
    "/api/handles/10.1234/MixedCase?type=URL",
)


def is_right(target: str, answer: Answered) -> bool:
    if target.startswith("/api/"):
        values = answer.json.get("values", [])
        return answer.status == 200 and [value["data"]["value"] for value in values] == [URL]
    return answer.status == 302 and answer.location == URL


async def expect_one_question(upstream: UpstreamProcess, proxies: list[Proxy]) -> None:
    await asyncio.gather(upstream.ready(), *(proxy.ready() for proxy in proxies))
    await upstream.tell("fault", name=NAME, kind="delay", seconds=HELD)
    targets = [SPELLINGS[number % len(SPELLINGS)] for number in range(CALLERS)]
    answers = await asyncio.gather(
        *(proxies[number % len(proxies)].ask(target) for number, target in enumerate(targets))
    )
    wrong = [(target, answer) for target, answer in zip(targets, answers, strict=True) if not is_right(target, answer)]
    assert wrong == []
    counts = await upstream.counts()
    print(f"{len(answers)} right answers, questions: {counts['by_name']}")
    assert counts["by_name"] == {NAME.upper(): 1}


@pytest.mark.valkey
async def test_two_proxies_on_one_valkey_ask_once_for_two_hundred_callers(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: URL})
    url = f"valkey://127.0.0.1:{valkey.port}/0"
    proxies = [start_proxy(upstream.url, url, **PATIENT) for _ in range(2)]
    await expect_one_question(upstream, proxies)


async def test_two_workers_on_one_sqlite_store_ask_once_for_two_hundred_callers(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str
) -> None:
    upstream = start_upstream({NAME: URL})
    await expect_one_question(upstream, [start_proxy(upstream.url, store_file, workers=2)])
