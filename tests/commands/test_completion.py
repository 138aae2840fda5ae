"""The completion scripts and the man page that packaging/built_files.py writes for the wheel, in real shells."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.system.options import flag_of, variable

pytestmark = pytest.mark.repository

ROOT: Final = Path(__file__).resolve().parents[2]
BASH: Final = "share/bash-completion/completions/doi-proxy"
ZSH: Final = "share/zsh/site-functions/_doi-proxy"
FISH: Final = "share/fish/vendor_completions.d/doi-proxy.fish"
MAN_PAGE: Final = "share/man/man1/doi-proxy.1"
#: Completes what was typed, and prints the line.
ZSHRC: Final = """\
fpath=({folder} $fpath)
autoload -U compinit
compinit -u -D
zstyle ':completion:*' menu no
show_line() {{ print -r -- "[$BUFFER]"; exit }}
zle -N show_line
bindkey '^X' show_line
PROMPT='READY '
"""
DEADLINE: Final = 60

needs_zsh: Final = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed (Debian package: zsh)")
needs_fish: Final = pytest.mark.skipif(
    shutil.which("fish") is None, reason="fish is not installed (Debian package: fish)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation, with the files of this checkout."""
    place = tmp_path_factory.mktemp("installed")
    script = ROOT / "packaging/built_files.py"
    subprocess.run([sys.executable, str(script), str(place)], check=True, timeout=DEADLINE)
    return place


def offered_by_bash(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("doi-proxy", *words))
    variables = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}"
    # Outside of a completion, bash has no options of one.
    code = f"source {script}; compopt() {{ :; }}; {variables}; _shtab_doi_proxy; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    ended = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_bash_completes_commands_options_settings_choices_and_files(folder: Path) -> None:
    script = folder / BASH
    assert {"serve", "check", "doctor", "cache"} <= set(offered_by_bash(script, ""))
    assert offered_by_bash(script, "gen") == ["gen-config"]
    assert offered_by_bash(script, "cache", "exp") == ["export"]
    assert offered_by_bash(script, "cache", "export", "--out") == ["--output"]
    assert offered_by_bash(script, "serve", "--port", "8000", "--upstream-ra") == ["--upstream-rate"]
    assert offered_by_bash(script, "doctor", "--front", "ng") == ["nginx"]
    assert offered_by_bash(script, "gen-config", "ca") == ["caddy"]
    assert offered_by_bash(script, "serve", "--config", "pyproj") == ["pyproject.toml"]


@needs_fish
def test_fish_completes_commands_options_choices_and_files(folder: Path, tmp_path: Path) -> None:
    def offered(line: str) -> list[str]:
        code = f"source {folder / FISH}; complete --do-complete '{line}'"
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        ended = subprocess.run(
            ["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
        )
        assert ended.stderr == ""
        return [line.partition("\t")[0] for line in ended.stdout.splitlines()]

    assert {"serve", "check", "doctor", "cache"} <= set(offered("doi-proxy "))
    assert offered("doi-proxy gen") == ["gen-config"]
    assert "--upstream-rate" in offered("doi-proxy serve --upstream-ra")
    assert offered("doi-proxy doctor --front ng") == ["nginx"]
    assert offered("doi-proxy serve --config pyproj") == ["pyproject.toml"]


@needs_zsh
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("gen", "gen-config"),
        ("cache exp", "cache export"),
        ("serve --upstream-ra", "serve --upstream-rate"),
        ("doctor --front ng", "doctor --front nginx"),
        ("serve --config pyproj", "serve --config pyproject.toml"),
    ],
)
def test_zsh_completes(folder: Path, tmp_path: Path, typed: str, completed: str) -> None:
    (tmp_path / ".zshrc").write_text(ZSHRC.format(folder=(folder / ZSH).parent))
    assert f"[doi-proxy {completed} ]" in type_into_zsh(tmp_path, f"doi-proxy {typed}\t\x18")


def type_into_zsh(home: Path, keys: str) -> str:
    """What an interactive zsh prints on its terminal, after its prompt."""
    terminal, other_end = pty.openpty()
    environment = {"ZDOTDIR": str(home), "HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb"}
    with subprocess.Popen(
        ["zsh", "-o", "NO_GLOBAL_RCS", "-i"],
        cwd=ROOT,
        env=environment,
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
    ) as shell:
        os.close(other_end)
        watchdog = threading.Timer(DEADLINE, shell.kill)
        watchdog.start()
        try:
            read_terminal(terminal, "READY ")
            os.write(terminal, keys.encode())
            return read_terminal(terminal, " ]")
        finally:
            watchdog.cancel()
            shell.kill()
            os.close(terminal)


def read_terminal(terminal: int, end: str) -> str:
    """What a terminal shows, up to a text, or to the end of its program."""
    shown = ""
    while end not in shown:
        try:
            shown += os.read(terminal, 4096).decode()
        except OSError:  # the program has closed its end
            break
    return shown


@pytest.mark.parametrize("name", [BASH, ZSH, FISH])
def test_a_completion_script_has_every_setting(name: str, folder: Path) -> None:
    text = (folder / name).read_text()
    flags = [flag_of(setting) for setting in Settings.model_fields]
    written = flags if name != FISH else [f"-l {flag.removeprefix('--')} " for flag in flags]
    assert [flag for flag in written if flag not in text] == []


@pytest.mark.parametrize(("name", "check"), [(BASH, "bash -n"), (ZSH, "zsh -n"), (FISH, "fish --no-execute")])
def test_the_shell_accepts_its_script(name: str, check: str, folder: Path) -> None:
    shell = check.split()
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed: apt-get install {shell[0]}")
    subprocess.run([*shell, str(folder / name)], check=True)


def test_the_man_page_has_every_command_and_setting(folder: Path) -> None:
    text = (folder / MAN_PAGE).read_text()
    commands = ("serve", "check", "cache export")
    assert [name for name in commands if rf"\fBdoi\-proxy {name}\fR" not in text] == []
    assert [name for name in Settings.model_fields if rf"\fB{variable(name)}\fR" not in text] == []
    if shutil.which("groff") is not None:
        command = ["groff", "-man", "-ww", "-z", str(folder / MAN_PAGE)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
