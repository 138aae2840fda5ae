"""docs/runbook.md has an entry for each alert, each problem and each line of `/status`, and the alerts name theirs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import create_parser
from doi_proxy.web.languages import read_packaged

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
TEMPLATE: Final = (ROOT / "app/doi_proxy/features/status/texts/status.html").read_text(encoding="utf-8")
TEXTS: Final = read_packaged("doi_proxy.features.status", "en")


def headings(section: str) -> list[str]:
    """The titles of the entries below a heading of the page."""
    return re.findall(r"^### (.+)$", PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0], re.MULTILINE)


ALERTS: Final = headings("Alerts")
LINES: Final = re.findall(r"^\| (.+?) \| [A-Z].+ \| .+\. \| .+\. \|$", PAGE, re.MULTILINE)


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "config/prometheus/alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_each_alert_has_an_entry_that_its_rule_names() -> None:
    assert [rule["alert"] for rule in alerts()] == ALERTS
    for rule in alerts():
        page, _, place = rule["annotations"]["runbook_url"].partition("#")
        assert (page, place) == ("docs/runbook.md", anchor(rule["alert"]))


def test_each_line_of_the_status_page_has_an_entry() -> None:
    keys = set(re.findall(r'row\("(\w+)"', TEMPLATE))
    keys |= {f"table_{key}" for key in re.findall(r'(?<!row)\("(\w+)", view\.status\.\w+\)', TEMPLATE)}
    assert len(keys) > 10
    assert {key for key in keys if TEXTS[f"status.{key}"] not in LINES} == set()


def test_each_entry_about_a_line_has_a_title_of_the_status_page() -> None:
    assert [title for title in LINES if title not in TEXTS.values()] == []


def test_each_problem_of_the_status_page_has_an_entry() -> None:
    problems = {key.removeprefix("status.problem_") for key in TEXTS if key.startswith("status.problem_")}
    assert len(problems) > 5
    assert {name for name in problems if name not in ALERTS and TEXTS[f"status.{name}"] not in LINES} == set()


def test_each_entry_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    entries = re.findall(r"^### .+\n\n[A-Z].+\n\n- \*\*Look at:\*\* .+\n- \*\*Do:\*\* .+$", PAGE, re.MULTILINE)
    assert len(entries) == len(ALERTS)
    assert len(LINES) == PAGE.partition("## Lines of the status page\n")[2].count("\n|") - 2


def test_each_entry_that_another_names_is_there() -> None:
    assert set(re.findall(r"DoiProxy\w+", PAGE)) == set(ALERTS)


def test_each_command_setting_and_metric_that_an_entry_names_exists() -> None:
    codes = set(re.findall("`([^`\n]*)`", PAGE))
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
