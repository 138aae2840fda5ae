"""The workflow, the hooks and the development container call the commands of CONTRIBUTING.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

pytestmark = pytest.mark.repository

ROOT: Final = Path(__file__).resolve().parents[1]
TARGETS: Final = frozenset(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def document(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize(("name", "command"), [("ci", ".ci/run"), ("nightly", ".ci/run nightly")])
def test_a_workflow_runs_what_can_be_run_anywhere(name: str, command: str) -> None:
    (job,) = document(f".github/workflows/{name}.yml")["jobs"].values()
    assert {"run": command} in job["steps"]
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [action for action in actions if not re.search("@[0-9a-f]{40}$", action)] == []


def test_every_hook_calls_a_target_of_the_makefile() -> None:
    hooks = [hook for repo in document(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    calls = [hook["entry"].split() for hook in hooks]
    assert [call[0] for call in calls] == ["make"] * len(calls)
    assert {call[1] for call in calls} == {"lint", "check"} <= TARGETS


def test_the_development_container_is_set_up_by_make() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text("utf-8"))
    assert container["postCreateCommand"] == "make setup"
