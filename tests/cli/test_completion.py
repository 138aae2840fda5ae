"""Completion and the man page come from the parser: they know every command, option and setting."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from app.cli.main import main
from app.settings import Settings
from app.settings.sources import flag_of, variable


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("doi-proxy", *words))
    variables = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}"
    code = f"source {script}; {variables}; _doi_proxy; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    ended = subprocess.run(["bash", "-uc", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_bash_completes_commands_options_settings_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "doi-proxy.bash"
    script.write_text(printed(capsys, "completion", "bash"))
    assert {"serve", "check", "doctor", "cache"} <= set(completed(script, ""))
    assert completed(script, "gen") == ["gen-config"]
    assert completed(script, "cache", "exp") == ["export"]
    assert completed(script, "cache", "export", "--out") == ["--output"]
    assert completed(script, "serve", "--port", "8000", "--upstream-ra") == ["--upstream-rate"]
    assert completed(script, "doctor", "--front", "ng") == ["nginx"]
    assert completed(script, "gen-config", "ca") == ["caddy"]
    # bash itself completes a file name here.
    assert completed(script, "serve", "--config", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_has_every_setting(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "completion", shell)
    flags = [flag_of(name) for name in Settings.model_fields]
    written = flags if shell != "fish" else [f"-l {flag.removeprefix('--')} " for flag in flags]
    assert [flag for flag in written if flag not in text] == []


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_shell_accepts_its_script(
    shell: str, check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = tmp_path / "script"
    script.write_text(printed(capsys, "completion", shell))
    subprocess.run([shell, check, str(script)], check=True)


def test_the_man_page_has_every_command_and_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "man-page")
    assert all(f'.SS "doi-proxy {command}"' in text for command in ("serve", "check", "cache export"))
    assert [name for name in Settings.model_fields if rf"\fB{variable(name)}\fR" not in text] == []
    if shutil.which("groff") is not None:
        page = tmp_path / "doi-proxy.1"
        page.write_text(text)
        ended = subprocess.run(["groff", "-man", "-ww", "-z", str(page)], capture_output=True, text=True, check=True)
        assert ended.stderr == ""
