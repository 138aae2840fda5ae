"""The runbook: it has an entry for each alert and for each line of `/status`, and the alerts name theirs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.assembly.settings import Settings
from app.cli.main import create_parser
from app.features.status.prefixes import KINDS
from app.features.status.runbook import line_title, read_runbook, show_code
from app.web.languages import Catalogue, read_packaged
from tests.web.proxy import running

pytestmark = pytest.mark.anyio

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
TEMPLATE: Final = (ROOT / "app/features/status/texts/status.html").read_text(encoding="utf-8")


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "config/prometheus/alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_each_alert_has_an_entry_that_its_rule_names() -> None:
    assert list(read_runbook()["alert"]) == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        page, _, place = rule["annotations"]["runbook_url"].partition("#")
        assert (page, place) == ("docs/runbook.md", anchor(rule["alert"]))
        assert f"### {rule['alert']}\n" in PAGE


def test_each_line_of_the_status_page_has_an_entry() -> None:
    keys = set(re.findall(r'row\("(\w+)"', TEMPLATE)) | set(re.findall(r'\("(\w+)", view\.status\.\w+\)', TEMPLATE))
    keys |= {f"prefixes_{kind}" for kind in KINDS}
    assert len(keys) > 10
    assert keys <= set(read_runbook()["line"])
    english = Catalogue("en", read_packaged("app.features.status", "en"))
    assert all(f"### {line_title(english, key)}\n" in PAGE for key in keys)


def test_each_entry_that_another_names_is_there() -> None:
    entries = [*read_runbook()["alert"].values(), *read_runbook()["line"].values()]
    named = {name for one in entries for text in one.values() for name in re.findall(r"DoiProxy\w+", text)}
    assert named <= set(read_runbook()["alert"])


def test_each_command_setting_and_metric_that_an_entry_names_exists() -> None:
    texts = [text for part in ("alert", "line") for entry in read_runbook()[part].values() for text in entry.values()]
    codes = {code for text in texts for code in re.findall("`([^`]*)`", text)}
    commands = [shlex.split(code)[1:] for code in codes if code.startswith("doi-proxy ")]
    words = {code for code in codes if re.fullmatch(r"[a-z]+(_[a-z]+)+", code)} - {"scrape_configs"}
    metrics = {word for word in words if word.startswith("doi_proxy_")}
    assert len(commands) > 5 and len(words) > 10
    for command in commands:
        # Wrong arguments end the program.
        create_parser(is_complete=True).parse_args(command)
    assert words - metrics <= set(Settings.model_fields)
    listed = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert {metric for metric in metrics if f"`{metric}`" not in listed} == set()


def test_code_is_shown_as_code_and_nothing_else_is_html() -> None:
    assert show_code("`a<b` & c") == "<code>a&lt;b</code> &amp; c"


async def test_each_problem_of_the_status_page_leads_to_a_heading_of_the_running_proxy() -> None:
    texts = read_packaged("app.features.status", "en")
    problems = {key.removeprefix("status.problem_") for key in texts if key.startswith("status.problem_")}
    assert len(problems) > 5
    async with running() as proxy:
        shown = await proxy.ask("GET", "/status/runbook", client="127.0.0.1")
    assert problems <= set(re.findall(r'<h2 id="(\w+)">', shown.text))


async def test_the_running_proxy_shows_it_to_those_who_see_the_status() -> None:
    async with running() as proxy:
        shown = await proxy.ask("GET", "/status/runbook", client="127.0.0.1", accept_language="de")
        assert shown.status == 200
        assert '<h2 id="DoiProxyStoreFails">DoiProxyStoreFails</h2>' in shown.text
        assert (await proxy.ask("GET", "/status/runbook", client="192.0.2.7")).status == 403


async def test_with_access_admin_it_needs_the_token() -> None:
    token = "correct-horse-battery-staple"
    async with running(status_access="admin", admin_token=token) as proxy:
        assert (await proxy.get("/status/runbook")).status == 401
        assert (await proxy.get("/status/runbook", authorization=f"Bearer {token}")).status == 200
