"""The first screen of `/status`: one sentence, what is wrong, and the numbers of now."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from doi_proxy.features.status.models import EventStatus, HistoryPoint, UpstreamName
from doi_proxy.features.status.summary import Facts, read_english, summarize, write_event, write_problem, write_uptime
from doi_proxy.web.languages import Catalogue, read_packaged
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

NAME: Final = "10.5555/known"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    settings = {"status_networks": "0.0.0.0/0, ::/0", "upstream_breaker_failures": 1, "cache_ttl_ceiling": 60.0}
    async with Proxy(**settings) as proxy:
        proxy.upstream.put(NAME, url="http://here.example/")
        yield proxy


async def summary(proxy: Proxy) -> dict[str, Any]:
    found: dict[str, Any] = (await proxy.get("/status")).json["summary"]
    return found


async def page(proxy: Proxy, target: str = "/status", language: str = "en") -> str:
    return (await proxy.get(target, accept="text/html", accept_language=language)).text


async def record() -> None:
    """Let the service record what was counted, as it does every thirty seconds."""
    await asyncio.sleep(31)


async def fail(proxy: Proxy, names: int) -> None:
    """Request names that the upstream gives no answer about."""
    for number in range(names):
        proxy.upstream.fault(f"10.5555/new-{number}", "status", status=500)
        await proxy.get(f"/10.5555/new-{number}")


@table(
    ("event", "words"),
    [
        (("purge", 3.0, None, "", 1), "Purge: 1 entry"),
        (("purge", 3.0, None, "", 1_200), "Purge: 1,200 entries"),
        (("outage", 3.0, None, "doi.org", 0), "doi.org gives no usable answer"),
        (("outage", 3.0, 63.0, "doi.org", 0), "doi.org gave no usable answer for 1 min"),
        (("outage", 3.0, 48.0, "doi.org", 0, "new-cause"), "doi.org gave no usable answer for 45 s: new-cause"),
        (
            ("pause", 3.0, 128.0, "doi.org", 0, "upstream-refused", "429"),
            "doi.org requested a pause of 2 min 5 s: queries are refused (HTTP status 429)",
        ),
        (
            ("outage", 3.0, None, "doi.org", 0, "upstream-bad-answer", "new-sign"),
            "doi.org gives no usable answer: the answers cannot be read",
        ),
        (
            ("refusal", 3.0, 63.0, "", 0, "places-full"),
            "New names were refused for 1 min: all places for upstream queries are taken",
        ),
        (("store", 3.0, 3.0, "", 0), "The store failed for 0 s"),
        (("store", 3.0, None, "", 0, "store-full"), "The store fails: the disk is full"),
        (("store", 3.0, 63.0, "", 0, "store-deleted"), "The store failed for 1 min: the file was deleted"),
        (("clock", 3.0, None, "back", 10_800), "The clock was set back by 3 h"),
        (
            ("reload-failed", 3.0, None, "", 1),
            "Reload failed; previous settings or files stay in force, and the log says why",
        ),
    ],
)
def test_an_event_is_a_sentence(event: tuple[Any, ...], words: str) -> None:
    values = dict(zip(EventStatus.model_fields, event, strict=False))
    assert write_event(read_english(), EventStatus(**values)) == words


def upstream(state: Any = "ok", cause: str = "", sign: str = "") -> UpstreamName:
    return UpstreamName(name="doi.org", state=state, down_since=500, cause=cause, sign=sign)


UNANSWERED: Final = HistoryPoint(
    start=0, requests=9, answers=0, hits=0, stale=0, unverified=9, questions=9, upstream_seconds=1.0, loop_delay=None
)
LATE: Final = UNANSWERED.model_copy(update={"unverified": 0, "loop_delay": 0.5})
STALE: Final = UNANSWERED.model_copy(update={"unverified": 0, "answers": 9, "stale": 9})
FINE: Final = Facts([upstream()])
#: Everything that is wrong at once.
ALL_WRONG: Final = Facts(
    [upstream("failing", "upstream-timeout")],
    refusals={"upstream-slow", "places-full", "budget-spent", "resources-short"},
    store="failing",
    was_clock_set=True,
    has_failed_reload=True,
    has_broken_records=True,
)


@table(
    ("facts", "point", "sentence"),
    [
        (FINE, None, "Working. doi.org answers. "),
        (replace(FINE, mode="sealed"), None, "Working from its store alone. "),
        (replace(FINE, is_draining=True), None, "Shutting down."),
        (
            replace(FINE, upstreams=[upstream("failing", "upstream-timeout")]),
            None,
            "doi.org has given no usable answer since 1 January 1970, 00:08 UTC: no answer in time. ",
        ),
        (replace(FINE, refusals={"resources-short"}), UNANSWERED, "This machine is short of memory or of open files. "),
        (
            replace(FINE, cause="upstream-refused", sign="503"),
            UNANSWERED,
            "Many names get no answer: queries are refused (HTTP status 503). 100% of the names get no answer. ",
        ),
        (
            replace(FINE, cause="upstream-unreachable", sign="dns"),
            UNANSWERED,
            "Many names get no answer: no connection (its host has no address in the DNS). 100% of the names ",
        ),
        (
            replace(FINE, upstreams=[upstream("failing", "upstream-unreachable", "egress")]),
            None,
            "doi.org has given no usable answer since 1 January 1970, 00:08 UTC: no connection (the egress proxy "
            "cannot be reached). ",
        ),
        (FINE, UNANSWERED, "Many names get no answer. 100% of the names get no answer. "),
        (
            replace(FINE, mode="sealed", cause="sealed"),
            UNANSWERED,
            "Many names get no answer: the store does not have them, and no upstream is queried; import their ",
        ),
        (replace(FINE, store="failing"), None, "The store fails. "),
        (replace(FINE, store="failing", store_cause="store-full"), None, "The store fails: the disk is full. "),
        (replace(FINE, store="read-only", mode="sealed"), None, "The store can be read, but not written. "),
        (replace(FINE, was_clock_set=True), STALE, "The clock of this machine was set. "),
        (FINE, STALE, "Many answers are past their TTL. "),
        (FINE, LATE, "Requests are delayed by other requests. "),
        (replace(FINE, has_broken_records=True), None, "A file of local records has an error. "),
        (ALL_WRONG, UNANSWERED, "This machine is short of memory or of open files. "),
        (
            replace(ALL_WRONG, refusals=()),
            UNANSWERED,
            "doi.org has given no usable answer since 1 January 1970, 00:08 UTC: no answer in time. ",
        ),
    ],
)
def test_the_sentence_is_the_worst_that_is_wrong(facts: Facts, point: HistoryPoint | None, sentence: str) -> None:
    found = summarize(facts, [] if point is None else [point], 0, 600)
    assert found.sentence.startswith(sentence)


def test_what_was_counted_before_a_gap_is_not_of_now() -> None:
    found = summarize(FINE, [UNANSWERED, LATE.model_copy(update={"start": 43_200, "loop_delay": 0.1})], 43_210, 43_220)
    assert (found.problems, found.failed_share) == ([], 0.0)
    assert found.requests_per_second == pytest.approx(9 / 10)


def test_every_problem_has_a_place_in_the_order_and_words_in_every_language() -> None:
    found = summarize(ALL_WRONG, [UNANSWERED, STALE, LATE], 0, 600)
    for language in ("en", "de", "es", "fr"):
        texts = Catalogue(language, read_packaged("doi_proxy.features.status", language))
        words = [write_problem(texts, problem, found) for problem in found.problems]
        assert len(set(words)) == len(words) > 10
        assert not set(words) & set(found.problems)


async def test_before_the_first_query_it_says_so(proxy: Proxy) -> None:
    assert (await summary(proxy))["sentence"] == "Working. 127.0.0.1 has not been queried yet."
    assert "In Betrieb. 127.0.0.1 wurde noch nicht gefragt." in await page(proxy, language="de")


@pytest.mark.parametrize("failures", [1, 9])
async def test_an_upstream_that_never_answered_has_the_time_of_its_first_failure(failures: int) -> None:
    async with Proxy(status_networks="0.0.0.0/0, ::/0", upstream_breaker_failures=failures) as proxy:
        start = int(proxy.clock())
        proxy.clock.advance(60)
        proxy.upstream.fault(NAME, "status", status=503)
        await proxy.get(f"/{NAME}")
        found = await summary(proxy)
    assert found["state"] == "down"
    assert found["down_since"] - start in (59, 60)
    assert "since –" not in found["sentence"]


async def test_a_sealed_service_without_records_says_what_it_lacks() -> None:
    async with Proxy(status_networks="0.0.0.0/0, ::/0", mode="sealed") as proxy:
        for number in range(9):
            assert (await proxy.get(f"/10.5555/{number}")).status == 504
        await record()
        found = await summary(proxy)
    assert (found["state"], found["problems"], found["cause"]) == ("sealed", ["DoiProxyCouldNotVerify"], "sealed")
    assert "the store does not have them" in found["sentence"]


async def test_a_working_service_has_its_rate_and_its_share(proxy: Proxy) -> None:
    for _ in range(4):
        await proxy.get(f"/{NAME}")
    await record()
    found = await summary(proxy)
    assert (found["state"], found["problems"], found["failed_share"]) == ("working", [], 0.0)
    assert found["hit_share"] == pytest.approx(3 / 4)
    assert found["sentence"].startswith("Working. 127.0.0.1 answers. ")
    assert found["sentence"].endswith(" requests per second, 75% from the cache.")
    assert "fresh, from the cache" in await page(proxy)


async def test_a_failure_among_few_names_is_counted_and_not_called_trouble() -> None:
    async with Proxy(status_networks="0.0.0.0/0, ::/0", upstream_breaker_failures=9) as proxy:
        await fail(proxy, 1)
        await record()
        found = await summary(proxy)
    assert (found["failed_share"], found["problems"]) == (1.0, ["DoiProxyUpstreamBreakerOpen"])


async def test_a_client_that_allows_no_query_does_not_make_a_failure(proxy: Proxy) -> None:
    for number in range(9):
        answer = await proxy.get(f"/10.5555/new-{number}", cache_control="only-if-cached")
        assert answer.status == 504
    await record()
    found = await summary(proxy)
    assert (found["failed_share"], found["problems"]) == (0.0, [])


async def test_an_outage_is_said_first_with_the_entry_of_the_runbook(proxy: Proxy) -> None:
    await proxy.get(f"/{NAME}")
    await fail(proxy, 4)
    await record()
    found = await summary(proxy)
    assert (found["state"], found["failed_share"]) == ("down", 0.8)
    assert found["problems"] == ["DoiProxyUpstreamBreakerOpen", "DoiProxyCouldNotVerify"]
    text = await page(proxy)
    assert "127.0.0.1 has given no usable answer since " in text
    assert "80% of the names are not." in text
    problem = "An upstream gives no usable answer: queries are refused (HTTP status 500)"
    assert f"{problem} <code>DoiProxyUpstreamBreakerOpen</code>" in text


async def test_a_browser_loads_the_page_again_if_it_is_told_to(proxy: Proxy) -> None:
    shown = await proxy.get("/status?refresh=10", accept="text/html")
    assert shown["refresh"] == "10"
    assert (await proxy.get("/status", accept="text/html"))["refresh"] is None
    assert (await proxy.get("/status?refresh=1", accept="text/html")).status == 400


async def test_it_says_how_long_it_has_run(proxy: Proxy) -> None:
    proxy.clock.advance(3 * 86_400 + 2 * 3_600)
    status = (await proxy.get("/status")).json
    assert status["uptime"] == 3 * 86_400 + 2 * 3_600
    assert "(3 d 2 h 0 min)" in await page(proxy)
    assert [write_uptime(seconds) for seconds in (0, 59, 3_600)] == ["0 min", "1 min", "1 h 0 min"]


async def test_a_store_that_failed_is_an_event_with_its_end() -> None:
    async with Proxy(status_networks="0.0.0.0/0, ::/0", store_url="valkey://127.0.0.1:6379/0") as proxy:
        await proxy.get(f"/{NAME}")
        proxy.valkey.stop()
        await proxy.get("/10.5555/new")
        await asyncio.sleep(60)
        assert "The store fails: no connection" in (await summary(proxy))["sentence"]
        proxy.valkey.start()
        await asyncio.sleep(60)
        assert re.search("The store failed for 1 min", await page(proxy))


@pytest.mark.parametrize("state", ["unknown", "ok"])
def test_an_upstream_of_some_prefixes_does_not_hide_that_the_others_are_down(state: Any) -> None:
    main = UpstreamName(name="doi.org", state="failing", down_since=1_000)
    route = UpstreamName(name="handle.example", state=state, down_since=None, is_route=True)
    found = summarize(Facts([main, route]), [], 0, 1_060)
    assert (found.state, found.down_since) == ("down", 1_000)
    assert found.sentence.startswith("doi.org has given no usable answer since ")
    swapped = [
        route.model_copy(update={"state": "failing", "down_since": 500}),
        main.model_copy(update={"state": "ok"}),
    ]
    found = summarize(Facts(swapped), [], 0, 1_060)
    assert (found.state, found.problems) == ("working", ["DoiProxyUpstreamBreakerOpen"])
    assert found.sentence.startswith("An upstream gives no usable answer. ")


async def test_an_outage_is_said_though_a_route_was_not_queried_yet() -> None:
    settings = {"upstream_breaker_failures": 1, "upstream_routes": "10.7777=http://127.0.0.1:9"}
    async with Proxy(status_networks="0.0.0.0/0, ::/0", **settings) as proxy:
        await fail(proxy, 2)
        assert (await summary(proxy))["state"] == "down"
