"""A process that is forked by the zygote is what a real start makes: a child, with what it was given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.zygote import REAL_STARTS, can_fork

pytestmark = [
    pytest.mark.repository,
    pytest.mark.skipif(not can_fork(), reason=f"starts are real: no Linux, `make cov`, or {REAL_STARTS}"),
]

ROOT: Final = Path(__file__).parents[1]
COMMAND: Final = (sys.executable, "-m", "doi_proxy")


def start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "DOI_PROXY_STORE_URL": "memory:"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, text=True, env=environment, **(pipes | more))


@pytest.mark.parametrize(
    ("arguments", "given"),
    [(("parse", "-"), "doi:10.1000/182\nnone\n"), (("serve", "--seed", "missing"), "")],
)
def test_it_says_and_ends_like_a_real_start(arguments: tuple[str, ...], given: str) -> None:
    # With a descriptor to pass on, a start is real.
    with Path(os.devnull).open("rb") as passed:
        started = start(*arguments), start(*arguments, pass_fds=[passed.fileno()])
    command_lines = [psutil.Process(process.pid).cmdline() for process in started]
    forked, real = ((*process.communicate(given, timeout=60), process.returncode) for process in started)
    assert ["tests.zygote" in command_line for command_line in command_lines] == [True, False]
    assert forked == real


def test_it_is_a_child_in_a_session_of_its_own_and_is_killed_alone() -> None:
    with start("serve", "--port", "0", start_new_session=True) as process, start("serve", "--port", "0") as other:
        assert (psutil.Process(process.pid).ppid(), os.getsid(process.pid)) == (os.getpid(), process.pid)
        assert os.getsid(other.pid) == os.getsid(0)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        assert other.stderr is not None
        assert any("(Ctrl-C stops it)" in line for line in other.stderr)
        other.terminate()
        assert other.wait(60) == 0
