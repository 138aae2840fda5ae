"""`/metrics`: the metrics, docs/metrics.md, and Prometheus' own tools."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from doi_proxy.cache.store import CountingStore, Store
from doi_proxy.features.metrics.instruments import STORE_OPERATIONS, HttpMetrics
from doi_proxy.upstream.guard import list_outcomes
from tests.cluster.processes import Process, until
from tests.cluster.processes import Proxy as ProcessProxy
from tests.cluster.raw_http import ask
from tests.ports import free_port
from tests.table import table
from tests.web.proxy import Proxy

anyio = pytest.mark.anyio
ROOT: Final = Path(__file__).resolve().parents[3]
RULES: Final = ROOT / "config/prometheus/alerts.yml"
HANDBOOK: Final = "http://www.doi.org/hb.html"
#: The deadline for a program to start and for its output to arrive, in seconds.
DEADLINE: Final = 60.0

Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(text: str) -> dict[Sample, float]:
    """The samples of an exposition, by name and labels; read by the library's own parser."""
    families = list(text_string_to_metric_families(text))
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        yield proxy


async def scraped(proxy: Proxy) -> dict[Sample, float]:
    return samples((await proxy.get("/metrics")).text)


def value(found: dict[Sample, float], name: str, **labels: str) -> float:
    """The value of one series, 0 where there is none yet."""
    return found.get((f"doi_proxy_{name}", frozenset(labels.items())), 0.0)


# --- What the page says -------------------------------------------------------------------------------------------


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each metric on the page."""
    rows = re.findall(r"^\| `(doi_proxy_\w+)` \| (\w+) \| ([^|]*)\|", page(), re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def page() -> str:
    return (ROOT / "docs/metrics.md").read_text("utf-8")


def exported(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    found = {}
    for family in text_string_to_metric_families(text):
        labels = frozenset(chain.from_iterable(one.labels for one in family.samples)) - {"le"}
        found[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    return found


async def everything_happens(proxy: Proxy) -> None:
    """Requests of every route, answers of several kinds, and a failure."""
    proxy.upstream.put("10.1000/182", url=HANDBOOK)
    for path in ("/", "/10.1000/182", "/10.1000/182", "/api/handles/10.5555/none", "/ra/10.1000", "/healthz"):
        await proxy.get(path)
    await proxy.get("/openurl?id=doi:10.1000/182")
    proxy.upstream.fault("10.5555/broken", "reset")
    await proxy.get("/10.5555/broken")
    await proxy.get("/metrics")


@anyio
async def test_the_page_and_a_running_proxy_name_the_same_metrics_of_the_same_types_and_labels(
    tmp_path: Path,
) -> None:
    # The metrics of handle servers are those of an upstream that has such servers. The access log has one, and so have
    # metadata and the native listener, which only a server opens.
    settings: dict[str, Any] = {
        "upstream_routes": "10.2641=hdl://127.0.0.1:1",
        "native_listen": "127.0.0.1:2641",
    }
    async with Proxy(access_log="json", metadata=True, **settings) as proxy:
        await everything_happens(proxy)
        assert exported((await proxy.get("/metrics")).text) == documented()


@anyio
async def test_every_value_of_a_label_is_on_the_page(proxy: Proxy) -> None:
    await everything_happens(proxy)
    labels = chain.from_iterable(labels for _, labels in await scraped(proxy))
    words = {word for label, word in labels if label not in ("le", "version", "status", "upstream", "reason")}
    assert {word for word in words if f"`{word}`" not in page()} == set()


@anyio
async def test_no_label_contains_a_name_or_an_address(proxy: Proxy) -> None:
    await everything_happens(proxy)
    text = (await proxy.get("/metrics")).text
    port = proxy.upstream.url.rpartition(":")[2]
    assert [
        word for word in ("10.1000", "10.5555", "192.0.2", "127.0.0", "localhost", port) if f'"{word}' in text
    ] == []


def test_the_rules_and_the_dashboard_use_documented_metrics_alone_and_most_of_them() -> None:
    parts = {name for name, (kind, _) in documented().items() if kind == "histogram"}
    known = set(documented()) | {f"{name}_bucket" for name in parts}
    dashboard = (ROOT / "config/grafana/doi-proxy.json").read_text("utf-8")
    in_rules, in_dashboard = (set(re.findall(r"doi_proxy_\w+", one)) for one in (RULES.read_text("utf-8"), dashboard))
    assert in_rules - known == set()
    assert in_dashboard - known == set()
    # A metric that is kept under its old name too has one panel.
    old = set(re.findall(r"^\| `(\w+)` .*\| the old name of", page(), re.MULTILINE))
    assert set(documented()) - old - {name.removesuffix("_bucket") for name in in_dashboard} == set()


def test_every_word_that_the_rules_and_the_dashboard_select_by_is_on_the_page() -> None:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]
    panels = json.loads((ROOT / "config/grafana/doi-proxy.json").read_text("utf-8"))["panels"]
    queries = [*rules, *(target["expr"] for panel in panels for target in panel["targets"])]
    selected = re.findall(r'\b(?:kind|outcome|route|operation|result)[!=~]+"([^"]*)"', " ".join(queries))
    words = {word for one in selected for word in one.split("|")}
    assert words
    assert {word for word in words if f"`{word}`" not in page()} == set()


def test_the_dashboard_has_panels_that_do_not_overlap() -> None:
    panels = json.loads((ROOT / "config/grafana/doi-proxy.json").read_text("utf-8"))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


# --- How it is answered -------------------------------------------------------------------------------------------


@anyio
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain; version=9.9; escaping=all", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text; version=x", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
async def test_the_format_is_negotiated_and_the_answer_is_not_cacheable(
    proxy: Proxy, accept: str | None, content_type: str
) -> None:
    reply = await proxy.get("/metrics", **({} if accept is None else {"accept": accept}))
    assert (reply.status, reply["content-type"], reply["cache-control"]) == (200, content_type, "no-store")


@anyio
async def test_openmetrics_is_read_by_the_library_s_own_parser(proxy: Proxy) -> None:
    await everything_happens(proxy)
    text = (await proxy.get("/metrics", accept="application/openmetrics-text")).text
    names = {family.name for family in read_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert names >= {"doi_proxy_cache_answers", "doi_proxy_build_info"}


# --- Requests -----------------------------------------------------------------------------------------------------


@anyio
@table(
    ("method", "target", "route", "status"),
    [
        ("GET", "/10.5555/x", "resolve", 404),
        ("HEAD", "/10.5555/x", "resolve", 404),
        ("GET", "/no-doi", "resolve", 400),
        ("POST", "/", "home", 200),
        ("OPTIONS", "/10.5555/x", "resolve", 204),
        ("GET", "/", "home", 200),
        ("GET", "/api/handles/10.5555/x", "api", 404),
        ("GET", "/API/handles/10.5555/x", "api", 404),
        ("GET", "/api", "api", 404),
        ("DELETE", "/api/handles/10.5555/x", "api", 405),
        ("GET", "/ra/10.5555", "which_ra", 200),
        ("GET", "/doiRA/10.5555/x", "which_ra", 200),
        ("GET", "/openurl?id=doi:10.5555/x", "openurl", 404),
        ("GET", "/openurl", "openurl", 400),
        ("GET", "/healthz", "operation", 200),
        ("HEAD", "/metrics", "operation", 200),
        ("POST", "/healthz", "operation", 405),
    ],
)
async def test_a_request_is_counted_by_route_method_and_status(
    proxy: Proxy,
    method: str,
    target: str,
    route: str,
    status: int,
) -> None:
    if (method, target) == ("POST", "/"):
        route = "resolve"  # the form's target: what is typed there is a name
    before = await scraped(proxy)
    assert (await proxy.ask(method, target)).status == status
    after = await scraped(proxy)
    counted = "other" if method == "DELETE" else method
    series = {"route": route, "method": counted, "status": str(status)}
    # The scrape before is a GET of /healthz's route too.
    own = 1.0 if series == {"route": "operation", "method": "GET", "status": "200"} else 0.0
    assert value(after, "http_requests_total", **series) - value(before, "http_requests_total", **series) == 1 + own
    seconds = "http_request_duration_seconds_count"
    took = value(after, seconds, route=route) - value(before, seconds, route=route)
    assert took == (2 if route == "operation" else 1)


@anyio
async def test_invented_methods_are_one_series(proxy: Proxy) -> None:
    for method in ("MKCOL", "PROPFIND", "PURGE"):
        await proxy.ask(method, "/10.5555/x")
    found = await scraped(proxy)
    assert value(found, "http_requests_total", route="resolve", method="other", status="405") == 3
    assert {dict(labels).get("method") for _, labels in found} <= {None, "GET", "other"}


def test_the_express_lane_counts_by_one_call() -> None:
    registry = CollectorRegistry()
    metrics = HttpMetrics(registry, routes=["resolve"])
    for _ in range(3):
        metrics.count_prepared("GET", 302)
    found = samples(generate_latest(registry).decode())
    assert value(found, "http_requests_total", route="prepared", method="GET", status="302") == 3


def test_durations_stay_in_their_buckets_over_several_scrapes() -> None:
    registry = CollectorRegistry()
    metrics = HttpMetrics(registry, routes=["resolve"])
    name = "http_request_duration_seconds"
    for seconds in (0.0005, 0.0006, 20.0):
        metrics.count("resolve", "GET", 302, seconds)
        generate_latest(registry)
    found = samples(generate_latest(registry).decode())
    at = {le: value(found, f"{name}_bucket", route="resolve", le=le) for le in ("0.0005", "0.001", "10.0", "+Inf")}
    # A bound belongs to its bucket (Prometheus exposition format: le is "less or equal").
    assert at == {"0.0005": 1, "0.001": 2, "10.0": 2, "+Inf": 3}
    assert value(found, f"{name}_count", route="resolve") == 3
    assert value(found, f"{name}_sum", route="resolve") == pytest.approx(20.0011)


# --- Answers and questions ----------------------------------------------------------------------------------------


@anyio
async def test_answers_are_counted_by_where_they_came_from(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/a", url="http://example.org/a", ttl=100)
    for name in ("a", "a", "gone", "gone"):
        await proxy.get(f"/api/handles/10.5555/{name}")
    await proxy.get("/api/handles/10.5555/a?auth")
    proxy.clock.advance(200)
    await proxy.get("/api/handles/10.5555/a")
    proxy.clock.advance(200)
    proxy.upstream.fault("10.5555/a", "reset")
    await proxy.get("/api/handles/10.5555/a")
    found = await scraped(proxy)
    kinds = ("fresh", "negative", "stale", "asked", "renewed", "joined", "bypassed")
    counts = {kind: value(found, "cache_answers_total", kind=kind) for kind in kinds}
    assert counts == {
        "fresh": 1, "negative": 1, "stale": 1, "asked": 2, "renewed": 1, "joined": 0, "bypassed": 1,
    }  # fmt: skip


@anyio
async def test_a_name_that_could_not_be_answered_is_counted_by_its_reason(proxy: Proxy) -> None:
    proxy.upstream.fault("10.5555/a", "reset")
    assert (await proxy.get("/10.5555/a")).status == 502
    found = await scraped(proxy)
    assert sum(number for (name, _), number in found.items() if name == "doi_proxy_could_not_verify_total") == 1
    assert value(found, "could_not_verify_total", reason="upstream-unreachable") == 1


@anyio
async def test_a_known_name_that_is_gone_is_counted_as_confirmed(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/a", url="http://example.org/a", ttl=100)
    await proxy.get("/api/handles/10.5555/a")
    proxy.upstream.delete("10.5555/a")
    proxy.clock.advance(200)
    assert (await proxy.get("/api/handles/10.5555/a")).status == 404
    found = await scraped(proxy)
    assert value(found, "not_found_confirmations_total", result="confirmed") == 1
    assert value(found, "not_found_confirmations_total", result="refuted") == 0


@anyio
async def test_questions_are_counted_by_outcome_and_only_those_asked_take_time() -> None:
    # A prepared answer about trouble would be the third one.
    async with Proxy(upstream_breaker_failures=1, express_lane=False) as proxy:
        proxy.upstream.put("10.5555/a", url="http://example.org/a")
        await proxy.get("/api/handles/10.5555/a")
        await proxy.get("/api/handles/10.5555/none")
        proxy.upstream.fault("10.5555/b", "reset")
        for _ in range(3):
            await proxy.get("/api/handles/10.5555/b")
        await asyncio.sleep(1)
        found = await scraped(proxy)
        outcomes = {one: value(found, "upstream_questions_total", upstream="1", outcome=one) for one in list_outcomes()}
        assert {one: count for one, count in outcomes.items() if count} == {
            "found": 1, "not_found": 1, "upstream-unreachable": 1, "breaker-open": 2,
        }  # fmt: skip
        assert value(found, "upstream_question_duration_seconds_count", upstream="1") == 3
        assert value(found, "upstream_breaker_state", upstream="1") == 2
        assert value(found, "upstream_down_seconds", upstream="1") > 0
        assert value(found, "upstream_retry_after_seconds", upstream="1") == 0


@anyio
async def test_a_pause_of_the_upstream_is_shown_in_seconds_until_it_ends(proxy: Proxy) -> None:
    proxy.upstream.fault("10.5555/a", "status", status=429, retry_after=50)
    await proxy.get("/api/handles/10.5555/a")
    await proxy.get("/api/handles/10.5555/b")
    found = await scraped(proxy)
    assert 45 <= value(found, "upstream_retry_after_seconds", upstream="1") <= 50
    assert value(found, "upstream_questions_total", upstream="1", outcome="upstream-paused") == 1


@anyio
async def test_several_upstreams_are_labelled_by_their_number_in_the_settings() -> None:
    async with Proxy() as other:
        other.upstream.put("10.7777/a", url="http://example.org/a")
        async with Proxy(upstream_routes=f"10.7777={other.upstream.url}") as proxy:
            await proxy.get("/api/handles/10.7777/a")
            found = await scraped(proxy)
            asked = [value(found, "upstream_questions_total", upstream=n, outcome="found") for n in ("1", "2")]
            assert asked == [0, 1]


# --- State --------------------------------------------------------------------------------------------------------


@anyio
async def test_questions_under_way_are_seen_while_they_last() -> None:
    async with Proxy(upstream_rate=0.01, upstream_burst=5) as proxy, asyncio.TaskGroup() as group:
        proxy.upstream.put("10.5555/slow", url="http://example.org/slow")
        proxy.upstream.hold("10.5555/slow")
        group.create_task(proxy.get("/api/handles/10.5555/slow"))
        await proxy.upstream.arrived("10.5555/slow")
        during = await scraped(proxy)
        proxy.upstream.release("10.5555/slow")
        assert value(during, "upstream_in_flight") == 1
        assert value(during, "upstream_waiting") == 0
        assert 4.0 <= value(during, "upstream_budget_tokens") < 4.5


@anyio
async def test_entries_and_bytes_of_both_tiers_are_seen(tmp_path: Path) -> None:
    async with Proxy(store_url=f"sqlite:///{tmp_path}/store.sqlite3") as proxy:
        proxy.upstream.put("10.5555/a", url="http://example.org/a")
        await proxy.get("/api/handles/10.5555/a")
        found = await scraped(proxy)
        assert value(found, "memory_entries") == 1
        assert 100 < value(found, "memory_bytes") < 5_000
        assert value(found, "store_up") == 1
    # What was written when the process ended is there when the next one begins.
    async with Proxy(store_url=f"sqlite:///{tmp_path}/store.sqlite3") as proxy:
        found = await scraped(proxy)
        assert value(found, "store_entries") == 1
        assert value(found, "store_bytes") > 50
        assert value(found, "memory_entries") == 0


@anyio
async def test_entries_that_leave_memory_for_lack_of_room_are_counted_once() -> None:
    async with Proxy(cache_memory_bytes=3_000) as proxy:
        for number in range(20):
            await proxy.get(f"/api/handles/10.5555/{number}")
        found = await scraped(proxy)
        assert value(found, "memory_evictions_total") == 20 - value(found, "memory_entries")
        assert value(await scraped(proxy), "memory_evictions_total") == value(found, "memory_evictions_total") > 0


@anyio
async def test_a_store_that_fails_is_seen() -> None:
    async with Proxy(store_url="valkey://127.0.0.1:9/0", upstream_rate=10, upstream_burst=10) as proxy:
        proxy.upstream.put("10.1000/182", url=HANDBOOK)
        assert (await proxy.get("/10.1000/182")).status == 302
        found = await scraped(proxy)
        assert value(found, "store_up") == 0
        assert value(found, "store_errors_total", operation="get") >= 1


def test_every_operation_of_a_store_has_a_series() -> None:
    operations = {name for part in (Store, CountingStore) for name in vars(part) if not name.startswith("_")}
    assert set(STORE_OPERATIONS) == operations | {"forget_registry", "count_registry"}


# --- Real programs ------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessProxy:
    """A proxy as a process of its own, with an upstream that refuses every connection."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    return ProcessProxy(tmp_path, "http://127.0.0.1:9", store)


async def scrape(proxy: ProcessProxy) -> dict[Sample, float]:
    return samples((await proxy.ask("/metrics")).body.decode())


def _needs(program: str) -> pytest.MarkDecorator:
    reason = f"{program} is not installed (Debian package: prometheus)"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


@pytest.mark.process
@anyio
@_needs("promtool")
async def test_promtool_accepts_the_metrics(proxy: Proxy) -> None:
    await everything_happens(proxy)
    text = (await proxy.get("/metrics")).text
    assert promtool("check", "metrics", text=text) == (0, "")


@pytest.mark.process
@_needs("promtool")
@pytest.mark.parametrize(
    "command",
    [["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]],
)
def test_promtool_accepts_the_configuration_and_the_rules_alert_as_tested(command: list[str]) -> None:
    status, said = promtool(*command)
    assert status == 0, said


def promtool(*arguments: str, text: str = "") -> tuple[int, str]:
    """The exit status and the output."""
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=RULES.parent,
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.nightly
@anyio
@_needs("prometheus")
async def test_a_real_prometheus_scrapes_a_proxy_with_the_configuration_that_is_shipped(
    tmp_path: Path, served: ProcessProxy
) -> None:
    async with served as proxy:
        await proxy.ask("/no-doi")
        settings = (RULES.parent / "prometheus.yml").read_text("utf-8")
        settings = settings.replace('"127.0.0.1:8101", "127.0.0.1:8102"', f'"127.0.0.1:{proxy.port}"')
        settings = settings.replace("15s", "1s")
        (tmp_path / "prometheus.yml").write_text(settings, "utf-8")
        shutil.copy(RULES, tmp_path)
        port = free_port()
        flags = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        flags += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        process = Process(["prometheus", *flags], tmp_path / "log", folder=tmp_path)

        async def query(path: str) -> Any:
            try:
                reply = await ask(port, path)
            except OSError:
                return None
            return reply.json["data"] if reply.status == 200 else None

        async def is_counted() -> bool:
            counted = quote('doi_proxy_http_requests_total{route="resolve",status="400"} == 1')
            return bool((found := await query(f"/api/v1/query?query={counted}")) and found["result"])

        try:
            await until(is_counted, DEADLINE, "Prometheus has the count")
            rules = (await query("/api/v1/rules"))["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        finally:
            process.kill()
