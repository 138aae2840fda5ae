"""The commands of docs/tutorial.md, run in order in one shell, print what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.ports import free_port
from tests.test_documented import CONSOLE, ROOT, plain_environment

pytestmark = pytest.mark.repository

#: For the whole page, in seconds: the end of a command that hangs.
DEADLINE: Final = 1_200
#: Printed before the output of each command.
MARK: Final = "=== command {} ==="
#: The ports on the page. The test replaces each by a free one.
PORTS: Final = ("8000", "8001", "8002", "8080")
PORT: Final = re.compile(r"(:|--port )(8000|8001|8002|8080)\b")
PROGRAMS: Final = ("bash", "curl", "nginx")
#: What differs between two runs: remaining seconds, dates, and the sizes of stored entries.
VARIABLE: Final = re.compile(r"(?<=ttl=)-?\d+|(?<=max-age=)\d+|(?<=expires: ).*|(?<=bytes:)\s+\d+")


class Command(NamedTuple):
    """A command on the page, and the output below it."""

    text: str
    output: str


def commands(page: Path) -> list[Command]:
    """The commands of every console block. A line that begins with `> ` continues the command before it."""
    found = []
    for block in CONSOLE.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *lines = part.splitlines()
            size = next((i for i, line in enumerate(lines) if not line.startswith(">")), len(lines))
            more = [line.removeprefix(">").removeprefix(" ") for line in lines[:size]]
            found.append(Command("\n".join([first, *more]), "\n".join(lines[size:])))
    return found


def script(found: list[Command]) -> str:
    """A shell script with a mark before each command. All output goes to one stream, as in a terminal."""
    marked = [f"echo\necho '{MARK.format(number)}'\n{one.text}\n" for number, one in enumerate(found)]
    return "exec 2>&1\n" + "".join(marked)


def search_path() -> str:
    """The folders of doi-proxy and of the other programs. Debian has nginx in /usr/sbin."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])


def run(text: str, folder: Path, settings: dict[str, str]) -> str:
    """The output of the script. The processes that it started end with it."""
    process = subprocess.Popen(
        ["bash"],
        cwd=folder,
        env={**plain_environment(), **settings, "PATH": search_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(text, timeout=DEADLINE)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def outputs(printed: str, count: int) -> list[str]:
    """The output of each command."""
    parts = re.split(r"^" + MARK.format(r"\d+") + r"\n", printed.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]
    assert len(parts) == count, printed
    return [part.strip("\n") for part in parts]


def steady(text: str) -> str:
    """The text without what differs between two runs."""
    return VARIABLE.sub("0", text)


def spare_ports() -> dict[str, str]:
    """A free port for each port on the page."""
    return {shown: str(free_port()) for shown in PORTS}


def missing_program() -> str | None:
    return next((name for name in PROGRAMS if shutil.which(name, path=search_path()) is None), None)


@pytest.mark.nightly
@pytest.mark.skipif(missing_program() is not None, reason=f"not installed: {missing_program()}")
def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "config").symlink_to(ROOT / "config")
    ports = spare_ports()
    found = commands(ROOT / "docs/tutorial.md")
    text = PORT.sub(lambda match: match[1] + ports[match[2]], script(found))
    printed = run(text, tmp_path, {"DOI_PROXY_PORT": ports["8000"]})
    for shown, port in ports.items():
        printed = re.sub(rf"(?<=:){port}\b", shown, printed)
    pairs = zip(found, outputs(printed, len(found)), strict=True)
    assert [(one.text, output) for one, output in pairs if steady(output) != steady(one.output)] == []
