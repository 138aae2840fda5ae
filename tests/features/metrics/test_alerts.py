"""A real Prometheus alerts by the shipped rules about the faults of a night, with a text and a link to the runbook."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.processes import Process, until
from tests.cluster.raw_http import ask
from tests.features.status.test_night import FAULTS, Fault
from tests.ports import free_port
from tests.world.world import World

pytestmark = [
    pytest.mark.process,
    pytest.mark.nightly,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="prometheus is not installed (Debian package: prometheus)"
    ),
]

ROOT: Final = Path(__file__).resolve().parents[3]
#: Seconds until Prometheus has scraped everything twice and evaluated its rules, on a busy machine.
DEADLINE: Final = 120.0
#: Virtual seconds that a fault lasts. An outage is an alert after five minutes.
LASTING: Final = 60
OUTAGE: Final = 330
LOOK_EVERY: Final = 15
FINE: Final = "nothing is wrong"
_ALERTED: Final = {fault.name: fault for fault in FAULTS if fault.problem.startswith("DoiProxy")}
#: The alerts about the faults. The headline of /status names the first one.
EXPECTED: Final = {
    "login portal": {"DoiProxyUpstreamPortal"},
    "upstream fails": {"DoiProxyUpstreamBreakerOpen", "DoiProxyCouldNotVerify"},
    "upstream limits us": {"DoiProxyUpstreamPaused"},
    "upstream takes 3 s": {"DoiProxyUpstreamSlow"},
    "too few places": {"DoiProxyPlacesFull"},
    "too few tokens": {"DoiProxyBudgetSpent"},
    "store away": {"DoiProxyStoreFails"},
    "clock set back": {"DoiProxyClockWrong"},
    "reload fails": {"DoiProxyReloadFailed"},
    FINE: set[str](),
}


def scrape(fault: Fault | None, folder: Path) -> Iterator[bytes]:
    """The metrics of a service before a fault and while it lasts, which takes no real time."""
    (folder / "deny.txt").write_text("")
    usual = {"store_url": f"sqlite:///{folder}/store.sqlite3", "client_deny_file": folder / "deny.txt"}
    with World(**{**usual, **(fault.settings if fault else {})}) as world:
        world.get("/10.5555/before")
        world.sleep(20)
        yield world.get("/metrics").body
        if fault is not None:
            fault.begin(world, folder)
        clients = [world.client(f"192.0.{number}.7") for number in range(25)]
        for second in range(OUTAGE if fault is not None and fault.name == "upstream fails" else LASTING):
            for number in range(9 if fault is not None else 1):
                clients[(9 * second + number) % 25].ask(f"/10.5555/{second}.{number}")
            world.sleep(1)
            if second % LOOK_EVERY == LOOK_EVERY - 1:
                yield world.get("/metrics").body


@contextmanager
def exporter(scrapes: list[list[bytes]]) -> Iterator[int]:
    """The port of a server that has the scrapes of a service below its number, one after the other."""
    positions = [itertools.count() for _ in scrapes]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service = int(self.path.removeprefix("/"))
            known = scrapes[service]
            body = known[min(next(positions[service]), len(known) - 1)]
            # The clock of the service is virtual.
            body = re.sub(rb"(?m)^doi_proxy_time_seconds.*\n", b"", body)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_configuration(folder: Path, port: int) -> None:
    """The shipped rules, which here alert at once."""
    rules = (ROOT / "config/prometheus/alerts.yml").read_text("utf-8")
    (folder / "alerts.yml").write_text(re.sub(r"(?m)^ +for: .*\n", "", rules))
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": f"/{number}", "instance": name}}
        for number, name in enumerate(EXPECTED)
    ]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "doi-proxy", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))


async def read_alerts(port: int) -> dict[tuple[str, str], dict[str, str]]:
    """Wait until Prometheus has each expected alert. Returns the annotations of all, by instance and name."""
    alerts = dict[tuple[str, str], dict[str, str]]()

    async def all_alert() -> bool:
        try:
            reply = await ask(port, "/api/v1/alerts")
        except OSError:
            return False
        for alert in reply.json["data"]["alerts"] if reply.status == 200 else ():
            alerts[alert["labels"].get("instance", ""), alert["labels"]["alertname"]] = alert["annotations"]
        return {(name, alert) for name, expected in EXPECTED.items() for alert in expected} <= alerts.keys()

    await until(all_alert, DEADLINE, "each fault is an alert")
    return alerts


def test_each_fault_is_an_alert_with_a_text_and_a_link_in_a_real_prometheus(tmp_path: Path) -> None:
    scrapes = []
    for number, name in enumerate(EXPECTED):
        (folder := tmp_path / str(number)).mkdir()
        scrapes.append(list(scrape(_ALERTED.get(name), folder)))
    with exporter(scrapes) as exported:
        write_configuration(tmp_path, exported)
        port = free_port()
        flags = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        flags += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        process = Process(["prometheus", *flags], tmp_path / "log", folder=tmp_path)
        try:
            alerts = asyncio.run(read_alerts(port))
        finally:
            process.kill()
    assert [alert for instance, alert in alerts if instance == FINE] == []
    for (instance, alert), texts in alerts.items():
        assert instance in texts["summary"] and texts["summary"].endswith(".")
        assert texts["runbook_url"] == f"docs/runbook.md#{alert.lower()}"
