"""What a command cannot write or open (a full disk, a pipe without a reader, an odd name): one line, no traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.processes import Process, until
from tests.cluster.raw_http import ask
from tests.commands.test_cli import COMMAND, PATIENCE, ROOT, environment, run
from tests.ports import free_port

pytestmark = pytest.mark.process

#: A short output is written when the command ends, a long one before, that of argparse beside the command, and each
#: line at once with PYTHONUNBUFFERED.
OUTPUTS: Final = pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        ("parse 10.1000/182", ""),
        ("gen-config nginx", ""),
        ("--version", "1"),
        ("parse --help", "1"),
    ],
)


def run_into(output: int, arguments: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments.split()],
        cwd=ROOT,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@OUTPUTS
def test_a_full_disk_is_told_in_one_line(arguments: str, unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run_into(full.fileno(), arguments, unbuffered)
    assert ended.returncode == 1
    assert ended.stderr == "doi-proxy: the output cannot be written: No space left on device\n"


@OUTPUTS
def test_a_reader_that_leaves_ends_a_command_in_silence(arguments: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = run_into(writer, arguments, unbuffered)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_closed_standard_streams_are_no_fault() -> None:
    command = shlex.join([*COMMAND, "status", "--port", "9"])
    for closed in (">&-", "<&- >&-"):
        ended = subprocess.run(
            ["/bin/sh", "-c", f"exec {command} {closed}"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resolve", "x" * 5_000], f"doi-proxy: {'x' * 200}: this is neither a file nor a DOI name;"),
        (["cache", "import", "x" * 5_000], f"doi-proxy: {'x' * 200}: File name too long\n"),
        (["serve", "--host", "\u202e"], "doi-proxy: cannot listen on "),
        (["explain", "10.1000/182", "--store-url", "sqlite:///none", "--client", "\udcff"], "doi-proxy: "),
    ],
    ids=["list", "import", "host", "client"],
)
def test_an_odd_name_or_address_is_told_in_one_line(arguments: list[str], said: str) -> None:
    ended = run(*arguments)
    assert ended.returncode in (1, 2)
    assert ended.stderr.startswith(said)
    assert ended.stderr.count("\n") == 1


@pytest.mark.anyio
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
async def test_a_service_whose_log_is_on_a_full_disk_answers_and_ends(tmp_path: Path) -> None:
    port = free_port()
    settings = {"MODE": "sealed", "STORE_URL": f"sqlite:///{tmp_path}/store.sqlite3", "PORT": str(port)}
    # Without a buffer that outlives what the disk refuses: its flush would be an error.
    variables = {f"DOI_PROXY_{name}": value for name, value in settings.items()} | {"PYTHONUNBUFFERED": ""}
    process = Process([*COMMAND, "serve"], Path("/dev/full"), variables)

    async def answers() -> bool:
        assert process.runs
        with suppress(OSError):
            return (await ask(port, "/healthz")).status == 200
        return False

    try:
        await until(answers, PATIENCE, "an answer")
        process.terminate()
        assert process.ended() == 0
    finally:
        process.kill()
