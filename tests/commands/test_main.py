"""The help of the program, and its standard streams."""

from __future__ import annotations

import re
import sys

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


def test_help_writes_the_defaults_as_people_write_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help-settings"])
    text = " ".join(capsys.readouterr().out.split())
    for setting in (
        "CACHE_GRACE, default 30d",
        "CACHE_MEMORY_BYTES, default 256M",
        "METADATA, default off",
        "TLS_CERT, not set by default",
        "UPSTREAM_BURST",
        "UPSTREAM_ROUTES, not set by default",
        "UPSTREAM_URL, default https://doi.org",
    ):
        assert f"[DOI_PROXY_{setting}]" in text


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_standard_stream_that_was_closed_before_the_start_is_replaced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, None)
    assert main(["parse", "10.1000/182"]) == 0
    with getattr(sys, name) as stream:
        assert (stream.readable(), stream.writable()) == (name == "stdin", name != "stdin")
