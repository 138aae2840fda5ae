"""`doi-proxy demo` plays an outage: known names are answered, and no name is called not found."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.commands.main import main
from doi_proxy.features.setup.demo_command import open_stand_in, pull_plug

ROOT: Final = Path(__file__).resolve().parents[3]
DEADLINE: Final = 300.0
COMMAND: Final = (sys.executable, "-m", "doi_proxy", "demo")


def without_times(line: str) -> str:
    """A line of the play. Its second, and the time to live of a record, depend on the machine."""
    return re.sub(r"ttl=-?[0-9]+", "ttl=N", line.strip().partition(" s  ")[2])


def address_in(introduction: str) -> tuple[str, int]:
    """Where the proxy of a demo listens."""
    found = re.search(r"http://127\.0\.0\.1:([0-9]+)", introduction)
    assert found is not None
    return "127.0.0.1", int(found[1])


@contextmanager
def demo_in_terminal() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A demo with a terminal, and the other end of that."""
    terminal, inside = pty.openpty()
    with subprocess.Popen(["setsid", "--ctty", *COMMAND], cwd=ROOT, stdin=inside, stdout=inside, stderr=inside) as demo:
        os.close(inside)
        yield demo, terminal


def read_until(terminal: int, text: bytes) -> str:
    """What a demo prints, up to some text."""
    printed = b""
    while text not in printed:
        piece = os.read(terminal, 4096)
        assert piece
        printed += piece
    return printed.decode()


@pytest.mark.process
def test_without_a_terminal_it_plays_once_and_prints_what_the_readme_shows() -> None:
    done = subprocess.run(
        COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    played = done.stdout.splitlines()
    answers = [without_times(line) for line in played if "  302  http://www.doi.org/hb.html  " in line]
    assert len(answers) == 24
    assert sum("detail=upstream-unreachable" in answer for answer in answers) >= 6
    assert " 404 " not in done.stdout
    block = (ROOT / "README.md").read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    shown = [without_times(line) for line in block.splitlines() if line != " …"]
    rest = iter([without_times(line) for line in played])
    assert [line for line in shown if line not in rest] == []


@pytest.mark.process
@pytest.mark.parametrize("end", [pytest.param("signal", marks=pytest.mark.nightly), "closed"])
def test_a_demo_that_is_ended_leaves_no_proxy(end: str) -> None:
    with demo_in_terminal() as (demo, terminal):
        address = address_in(read_until(terminal, b"302"))
        if end == "signal":
            os.kill(demo.pid, signal.SIGTERM)
            assert demo.wait(DEADLINE) == 0
            os.close(terminal)
        else:
            os.close(terminal)
            demo.wait(DEADLINE)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)


@pytest.mark.process
def test_a_demo_whose_port_is_in_use_ends_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "--port", port], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=DEADLINE, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "the port is in use" in done.stderr


def test_a_stand_in_whose_plug_is_pulled_refuses_and_is_back_at_the_same_port() -> None:
    stand_in = open_stand_in()
    address = ("127.0.0.1", stand_in.server_port)
    asked = HTTPConnection(*address)
    asked.request("GET", "/api/handles/10.1000/182")
    assert b"http://www.doi.org/hb.html" in asked.getresponse().read()
    pull_plug(stand_in)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    stand_in = open_stand_in(stand_in.server_port)
    socket.create_connection(address).close()
    pull_plug(stand_in)


def test_a_setting_that_the_demo_would_not_obey_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--store-url", "memory:"]) == 2
    assert capsys.readouterr().err == (
        "doi-proxy: --store-url: the demo has settings of its own, of which only --port can be changed\n"
    )


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_what_is_not_a_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--port", port]) == 2
    assert f"--port '{port}': this is not a port" in capsys.readouterr().err
