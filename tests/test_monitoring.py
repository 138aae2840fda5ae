"""What Prometheus, Alertmanager and Grafana do with the files in config/, as far as they are installed here."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.ports import free_port

pytestmark = pytest.mark.repository

ROOT: Final = Path(__file__).resolve().parents[1]
ALERTMANAGER: Final = ROOT / "config/alertmanager/alertmanager.yml"
PROVISIONING: Final = ROOT / "config/grafana/provisioning"
#: For a program to answer, in seconds.
DEADLINE: Final = 30


def needs(program: str, package: str) -> pytest.MarkDecorator:
    reason = f"{program} is not installed (Debian package: {package})"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def document(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    return [rule for group in document("config/prometheus/alerts.yml")["groups"] for rule in group["rules"]]


# --- The rules ----------------------------------------------------------------------------------------------------


def test_each_rule_is_tested_while_it_alerts_and_while_it_does_not() -> None:
    tests = [
        (one["alertname"], bool(one["exp_alerts"]))
        for group in document("config/prometheus/alerts_test.yml")["tests"]
        for one in group["alert_rule_test"]
    ]
    assert set(tests) == {(rule["alert"], alerts) for rule in rules() for alerts in (True, False)}


def test_each_alert_has_a_severity_that_alertmanager_routes_and_a_summary() -> None:
    assert {rule["labels"]["severity"] for rule in rules()} == {"warning", "critical"}
    assert [rule["alert"] for rule in rules() if not rule["annotations"]["summary"].endswith(".")] == []


# --- Alertmanager -------------------------------------------------------------------------------------------------


def amtool(*arguments: str) -> str:
    done = subprocess.run(["amtool", *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@needs("amtool", "prometheus-alertmanager")
def test_alertmanager_accepts_its_configuration() -> None:
    assert "SUCCESS" in amtool("check-config", str(ALERTMANAGER))


@needs("amtool", "prometheus-alertmanager")
@pytest.mark.parametrize(("severity", "receiver"), [("critical", "on-call"), ("warning", "library")])
def test_an_alert_goes_to_the_receiver_of_its_severity(severity: str, receiver: str) -> None:
    routes = ("config", "routes", "test", f"--config.file={ALERTMANAGER}")
    assert amtool(*routes, f"severity={severity}") == receiver


def test_alertmanager_names_only_alerts_that_exist() -> None:
    inhibited = document("config/alertmanager/alertmanager.yml")["inhibit_rules"]
    matchers = [one for rule in inhibited for one in (*rule["source_matchers"], *rule["target_matchers"])]
    named = {word for one in matchers for word in one.split('"')[1].split("|")}
    assert named - {rule["alert"] for rule in rules()} == set()


@pytest.mark.nightly
@needs("prometheus-alertmanager", "prometheus-alertmanager")
def test_an_alert_that_explains_others_mutes_them(tmp_path: Path) -> None:
    down = [alert("DoiProxyDown", "a"), alert("DoiProxyStoreFails", "a"), alert("DoiProxyStoreFails", "b")]
    outage = [alert("DoiProxyUpstreamBreakerOpen", "c"), alert("DoiProxyServesStale", "c")]
    with alertmanager(tmp_path) as port:
        request(port, "POST", "/api/v2/alerts", [*down, *outage])
        # Alertmanager reads new alerts in the background.
        answer_is(
            lambda: states(port),
            {
                ("DoiProxyDown", "a"): "active",
                ("DoiProxyStoreFails", "a"): "suppressed",
                ("DoiProxyStoreFails", "b"): "active",
                ("DoiProxyUpstreamBreakerOpen", "c"): "active",
                ("DoiProxyServesStale", "c"): "suppressed",
            },
        )


def states(port: int) -> dict[tuple[str, str], str]:
    found = request(port, "GET", "/api/v2/alerts")
    return {(one["labels"]["alertname"], one["labels"]["instance"]): one["status"]["state"] for one in found}


def answer_is(question: Callable[[], Any], expected: Any) -> None:
    """Wait until a question has this answer."""
    deadline = time.monotonic() + DEADLINE
    while question() != expected and time.monotonic() < deadline:
        pass
    assert question() == expected


def alert(name: str, instance: str) -> dict[str, Any]:
    severity = next(rule["labels"]["severity"] for rule in rules() if rule["alert"] == name)
    return {"labels": {"alertname": name, "instance": instance, "severity": severity}}


@contextmanager
def alertmanager(folder: Path) -> Iterator[int]:
    """The port of an Alertmanager on this machine. Its mail server is a port on which nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        text = ALERTMANAGER.read_text(encoding="utf-8")
        settings = folder / "alertmanager.yml"
        settings.write_text(text.replace("mail.example.org:25", f"127.0.0.1:{closed.getsockname()[1]}"))
        port = free_port()
        flags = [f"--config.file={settings}", f"--storage.path={folder}/data", "--cluster.listen-address="]
        command = ["prometheus-alertmanager", *flags, f"--web.listen-address=127.0.0.1:{port}"]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_until_ready(port)
                yield port
            finally:
                process.terminate()


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        with suppress(OSError):
            request(port, "GET", "/api/v2/status")
            return
    raise AssertionError(f"Alertmanager does not answer on port {port}")


def request(port: int, method: str, path: str, content: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request(method, path, json.dumps(content), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body) if body else None
    finally:
        connection.close()


# --- The dashboard ------------------------------------------------------------------------------------------------


@needs("promtool", "prometheus")
def test_prometheus_parses_each_query_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads((ROOT / "config/grafana/doi-proxy.json").read_text(encoding="utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    # Grafana replaces these before it sends a query.
    filled = [query.replace("$instance", ".*").replace("$__rate_interval", "5m") for query in queries]
    assert [query for query in filled if "$" in query] == []
    checked = [{"record": f"dashboard:query_{number}", "expr": query} for number, query in enumerate(filled)]
    assert checked
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": checked}]}), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(checked)} rules found" in done.stdout


# --- docker-compose.yml -------------------------------------------------------------------------------------------


def test_the_services_of_the_compose_file_find_each_other() -> None:
    services = document("docker-compose.yml")["services"]
    managers = document("config/compose/prometheus.yml")["alerting"]["alertmanagers"]
    (source,) = document("config/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    addresses = [target for one in managers for group in one["static_configs"] for target in group["targets"]]
    addresses.append(source["url"].removeprefix("http://"))
    assert addresses == ["alertmanager:9093", "prometheus:9090"]
    assert {"alertmanager", "prometheus"} <= set(services)
    assert set.intersection(*(set(services[name]["networks"]) for name in ("alertmanager", "prometheus", "grafana")))


def test_grafana_loads_the_dashboard_from_the_folder_in_which_it_is_mounted() -> None:
    (provider,) = document("config/grafana/provisioning/dashboards/doi-proxy.yml")["providers"]
    mounts = document("docker-compose.yml")["services"]["grafana"]["volumes"]
    assert f"./config/grafana/doi-proxy.json:{provider['options']['path']}/doi-proxy.json:ro" in mounts
    provisioned = [path.relative_to(PROVISIONING) for path in PROVISIONING.rglob("*.yml")]
    assert len(provisioned) == 2
    assert [
        one for one in provisioned if not any(f"/etc/grafana/provisioning/{one}:ro" in mount for mount in mounts)
    ] == []
