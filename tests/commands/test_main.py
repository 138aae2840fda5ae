"""The help of the program."""

from __future__ import annotations

import re

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.system.options import flag_of


def read_help(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    """The words and flags of a help text."""
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    return set(re.findall(r"[\w-]+", capsys.readouterr().out))


def test_help_names_every_command_and_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"serve", "config", "check"} <= read_help(capsys, "--help")
    short = read_help(capsys, "serve", "--help")
    assert {"--help-settings", "--port"} <= short and "--upstream-rate" not in short
    assert {flag_of(name) for name in Settings.model_fields} <= read_help(capsys, "serve", "--help-settings")
