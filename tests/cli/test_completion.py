"""Completion and the man page come from the parser: they know every command, option and setting."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from app.assembly.settings import Settings
from app.assembly.settings.sources import flag_of, variable
from app.cli.main import main


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


def test_fish_completes_commands_options_and_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish: apt-get install fish")
    script = tmp_path / "doi-proxy.fish"
    script.write_text(printed(capsys, "completion", "fish"))

    def offered(line: str) -> list[str]:
        code = f"source {script}; complete --do-complete '{line}'"
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        ended = subprocess.run(
            ["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        assert ended.stderr == ""
        return [one.partition("\t")[0] for one in ended.stdout.splitlines()]

    assert {"serve", "check", "doctor", "cache"} <= set(offered("doi-proxy "))
    assert offered("doi-proxy gen") == ["gen-config"]
    assert "--upstream-rate" in offered("doi-proxy serve --upstream-ra")
    assert offered("doi-proxy doctor --front ng") == ["nginx"]


def test_zsh_registers_its_completion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("there is no zsh: apt-get install zsh")
    (tmp_path / "_doi-proxy").write_text(printed(capsys, "completion", "zsh"))
    # As an installed file of $fpath: compinit reads its first line, and the function loads.
    code = (
        f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D; print -r -- $_comps[doi-proxy]; "
        "autoload +X _doi-proxy && whence -w _doi-proxy"
    )
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "dumb"}
    ended = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout.split() == ["_doi-proxy", "_doi-proxy:", "function"]
    assert ended.stderr == ""


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
