"""`doi-proxy demo`: during its outage, names that were requested before are answered."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.commands.main import main
from tests.ports import free_port

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).resolve().parents[3]
DEADLINE: Final = 300.0


def status_of(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def wait_until_it_answers(demo: subprocess.Popen[Any], port: int) -> None:
    ends = time.monotonic() + DEADLINE
    while status_of(port, "/healthz") != 200:
        assert time.monotonic() < ends
        with suppress(subprocess.TimeoutExpired):
            demo.wait(0.05)


def start_demo(port: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "doi_proxy", "demo", "--port", str(port)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_known_name_is_answered_in_the_outage_and_a_new_one_is_not() -> None:
    port = free_port()
    with start_demo(port) as demo:
        assert demo.stdin is not None and demo.stdout is not None
        wait_until_it_answers(demo, port)
        assert status_of(port, "/10.5555/known") == 302
        demo.stdin.write("o\n")
        demo.stdin.flush()
        assert any("The upstream is down." in line for line in demo.stdout)
        assert status_of(port, "/10.5555/known") == 302
        assert status_of(port, "/10.5555/new") in (502, 503)
        demo.stdin.write("q\n")
        demo.stdin.close()
        assert demo.wait(30) == 0


def test_a_setting_that_the_demo_would_not_obey_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--host", "::1"]) == 2
    assert capsys.readouterr().err == (
        "doi-proxy: --host: the demo has settings of its own, of which only --port can be changed\n"
    )


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_what_is_not_a_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--port", port]) == 2
    assert f"--port '{port}': this is not a port" in capsys.readouterr().err


def test_a_demo_that_is_ended_leaves_no_proxy() -> None:
    port = free_port()
    with start_demo(port) as demo:
        wait_until_it_answers(demo, port)
        os.kill(demo.pid, signal.SIGTERM)
        assert demo.wait(30) == 0
        assert status_of(port, "/healthz") == 0


def test_a_terminal_that_closes_leaves_no_proxy() -> None:
    port = free_port()
    terminal, inside = pty.openpty()
    command = ["setsid", "--ctty", sys.executable, "-m", "doi_proxy", "demo", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdin=inside, stdout=inside, stderr=inside) as demo:
        os.close(inside)
        wait_until_it_answers(demo, port)
        os.close(terminal)
        assert demo.wait(30) == 0
        assert status_of(port, "/healthz") == 0


def test_a_demo_whose_port_is_in_use_ends_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, start_demo(taken.getsockname()[1]) as demo:
        assert demo.wait(DEADLINE) == 1
        assert demo.stderr is not None
        assert "the port is in use" in demo.stderr.read()
